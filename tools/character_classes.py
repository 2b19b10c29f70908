#!/usr/bin/env python3
"""Writes src/text/character_class_tables.cc: what the `tokenizers` package takes each character for.

    pip install tokenizers==0.23.3
    tools/character_classes.py | clang-format > src/text/character_class_tables.cc

The package is asked itself, by splitting a text of all characters: its regular expressions
(Oniguruma) know Unicode 16, its digit splitter and its words Unicode 17 (both Rust's).
"""

from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers
from tokenizers.models import BPE

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

# In the order of enum CharacterClass in src/text/unicode.h.
OTHER, UPPER, LOWER, TITLE, MODIFIER, OTHER_LETTER, MARK, NUMBER, NEWER_NUMBER, SPACE = range(10)
PATTERNS = {
    UPPER: r"\p{Lu}", LOWER: r"\p{Ll}", TITLE: r"\p{Lt}", MODIFIER: r"\p{Lm}",
    OTHER_LETTER: r"\p{Lo}", MARK: r"\p{M}", NUMBER: r"\p{N}", SPACE: r"\s",
}


def matched_by(pre_tokenizer, text):
    """The code points that stand alone where the pre-tokenizer isolates what it looks for."""
    found = set()
    for piece, _ in pre_tokenizer.pre_tokenize_str(text):
        if len(piece) == 1:
            found.add(ord(piece))
    return found


def all_matching(make):
    # Each character between two that nothing looks for, so that only a match stands alone.
    found = set()
    for first in range(0, len(CODE_POINTS), 0x8000):
        text = "!!" + "!!".join(map(chr, CODE_POINTS[first : first + 0x8000])) + "!!"
        found |= matched_by(make, text)
    return found - {ord("!")}


def isolating(pattern):
    return all_matching(pre_tokenizers.Split(Regex(pattern), "isolated"))


def word_characters():
    """Characters beside which an added token with single_word does not count."""
    tokenizer = Tokenizer(BPE(vocab={"x": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("#", single_word=True, normalized=False)])
    id_of_sign = tokenizer.token_to_id("#")
    words = set()
    for first in range(0, len(CODE_POINTS), 0x8000):
        chosen = [c for c in CODE_POINTS[first : first + 0x8000] if c != ord("#")]
        text = "".join(f"#{chr(c)} " for c in chosen)
        encoding = tokenizer.encode(text, add_special_tokens=False)
        counted = {start for i, (start, _) in zip(encoding.ids, encoding.offsets) if i == id_of_sign}
        words |= {c for n, c in enumerate(chosen) if 3 * n not in counted}
    return words


def ranges_of(code_points):
    ranges = []
    for code_point in sorted(code_points):
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return ranges


def print_ranges(name, code_points):
    print(f"std::span<const CodePointRange> {name}() {{")
    print("static constexpr CodePointRange ranges[] = {")
    print(", ".join(f"{{{low:#x}, {high:#x}}}" for low, high in ranges_of(code_points)))
    print("};\nreturn ranges;\n}\n")


def main():
    kinds = dict.fromkeys(CODE_POINTS, OTHER)
    digits = all_matching(pre_tokenizers.Digits(individual_digits=True))
    kinds.update(dict.fromkeys(digits, NEWER_NUMBER))
    for kind, pattern in PATTERNS.items():
        kinds.update(dict.fromkeys(isolating(pattern), kind))
    runs = []
    for code_point in CODE_POINTS:  # surrogates take their neighbour's class
        if not runs or runs[-1][1] != kinds[code_point]:
            runs.append((code_point, kinds[code_point]))

    print("// Made by tools/character_classes.py, which says from what: do not edit.")
    print('#include "text/unicode_tables.h"\n\nnamespace octet {\n')
    print("std::span<const std::uint32_t> character_class_runs() {")
    print("static constexpr std::uint32_t runs[] = {")
    print(", ".join(hex(first * 16 + kind) for first, kind in runs))
    print("};\nreturn runs;\n}\n")
    print_ranges("han_ranges", isolating(r"\p{Han}"))
    print_ranges("word_ranges", word_characters())
    print("}  // namespace octet")


if __name__ == "__main__":
    main()
