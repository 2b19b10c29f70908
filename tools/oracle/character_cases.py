#!/usr/bin/env python3
"""What Python's str says of every character: hashes for tests/text/characters_test.cc.

    character_cases.py tests/data/text/characters.json

For each test (str.isalpha() and so on) of the characters that pass it, and for each mapping of the
characters that it changes, each with what it becomes. Python 3.11 (Unicode 14) makes the stored file.
"""

import json
import pathlib
import sys

import corpus

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TESTS = ["isalpha", "isdecimal", "isdigit", "isnumeric", "isprintable", "islower", "isupper"]
MAPPINGS = ["upper", "lower", "title", "casefold"]


def main():
    result = {}
    for name in TESTS:
        passing = [ord(c) for c in CHARACTERS if getattr(c, name)()]
        result[name] = f"{corpus.hash_numbers(passing):016x}"
    for name in MAPPINGS:
        changed = [(c, getattr(c, name)()) for c in CHARACTERS if getattr(c, name)() != c]
        result[name] = f"{corpus.hash_text(''.join(c + mapped for c, mapped in changed)):016x}"
    pathlib.Path(sys.argv[1]).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
