#!/usr/bin/env python3
"""Writes src/text/jinja/{flag,case}_tables.cc: what Python's str knows of each character.

Chat templates are written for Python, so its own methods are asked. Python 3.11 (Unicode 14) made the
files in the tree.

    tools/python_characters.py flags | clang-format > src/text/jinja/flag_tables.cc
    tools/python_characters.py cases | clang-format > src/text/jinja/case_tables.cc
"""

import sys
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def is_case_ignorable(c):
    """What str.lower() skips when it looks for the end of a word (the final sigma)."""
    before = "1" if is_cased(c) else "A"
    return (before + c + "\u03a3").lower().endswith("\u03c2") == (before == "A")


def is_cased(c):
    return c.islower() or c.isupper() or c.istitle()


def flags(c):
    """The bits of CharacterFlag, in its order."""
    checks = (
        *(c.isalpha(), c.isdecimal(), c.isdigit(), c.isnumeric(), c.isprintable()),
        *(c.islower(), c.isupper(), unicodedata.category(c) == "Lt", is_case_ignorable(c)),
    )
    return sum(bit << i for i, bit in enumerate(checks))


def flag_runs():
    runs = []
    for code_point in CODE_POINTS:
        value = flags(chr(code_point))
        if not runs or runs[-1][1] != value:
            runs.append((code_point, value))
    return runs


def mappings(c):
    return c.upper(), c.lower(), c.title(), c.casefold()


def case_ranges():
    """[first, last, stride, four differences] of characters that map to one character each."""
    ranges = []
    for code_point in CODE_POINTS:
        mapped = mappings(chr(code_point))
        if any(len(text) != 1 for text in mapped):
            continue
        differences = tuple(ord(text) - code_point for text in mapped)
        if not any(differences):
            continue
        last = next((r for r in reversed(ranges[-2:]) if r[3] == differences), None)
        if last and code_point - last[1] in (1, 2) and last[2] in (0, code_point - last[1]):
            last[2] = code_point - last[1]
            last[1] = code_point
        else:
            ranges.append([code_point, code_point, 0, differences])
    return ranges


def quote(text):
    """A C++ literal; all of these characters are below U+10000."""
    return '"' + "".join(c if c.isascii() else f"\\u{ord(c):04x}" for c in text) + '"'


def print_flags():
    print("std::span<const std::uint32_t> character_flag_runs() {")
    print("static constexpr std::uint32_t runs[] = {")
    print(", ".join(f"{first << 9 | value:#x}" for first, value in flag_runs()))
    print("};\nreturn runs;\n}\n")


def print_cases():
    print("std::span<const CaseRange> case_ranges() {")
    print("static constexpr CaseRange ranges[] = {")
    for first, last, stride, differences in case_ranges():
        print(f"{{{first:#x}, {last:#x}, {max(stride, 1)}, {{{', '.join(map(str, differences))}}}}},")
    print("};\nreturn ranges;\n}\n")
    print("std::span<const LongCase> long_cases() {")
    print("static constexpr LongCase cases[] = {")
    for code_point in CODE_POINTS:
        mapped = mappings(chr(code_point))
        if any(len(text) != 1 for text in mapped):
            print(f"{{{code_point:#x}, {{{', '.join(map(quote, mapped))}}}}},")
    print("};\nreturn cases;\n}\n")


def main():
    if sys.argv[1:] not in (["flags"], ["cases"]):
        sys.exit(__doc__)
    print("// Made by tools/python_characters.py, which says from what: do not edit.")
    print('#include "text/jinja/character_tables.h"\n\nnamespace octet::jinja {\n')
    print_flags() if sys.argv[1] == "flags" else print_cases()
    print("}  // namespace octet::jinja")


if __name__ == "__main__":
    main()
