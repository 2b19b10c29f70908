#!/usr/bin/env python3
"""Writes src/text/unicode_tables.cc.

The NFC normaliser of the `tokenizers` package 0.23 knows Unicode 9. Needs, in a folder of its own,

    pip install --target DIR17 unicodedata2==17.0.0

and DerivedAge.txt of any Unicode version (Debian: /usr/share/unicode/ of the package unicode-data).

    tools/unicode_tables.py DIR17 DerivedAge.txt | clang-format > src/text/unicode_tables.cc
"""

import argparse
import importlib.util
import pathlib
import sys

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

def load_unicodedata(folder, version):
    files = list(pathlib.Path(folder).glob("unicodedata2*.so"))
    if len(files) != 1:
        sys.exit(f"{folder}: expected unicodedata2=={version} installed with pip --target")
    spec = importlib.util.spec_from_file_location("unicodedata2", files[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.unidata_version != version:
        sys.exit(f"{folder}: holds Unicode {module.unidata_version}, expected {version}")
    return module


def characters_of_unicode_9(path):
    known = set()
    for line in open(path, encoding="utf-8"):
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and float(fields[1]) <= 9.0:
            bounds = [int(part, 16) for part in fields[0].split("..")]
            known.update(range(bounds[0], bounds[-1] + 1))
    return known


def inert_ranges(unicode_17, known):
    """Characters newer than Unicode 9 that normalisation would touch, as inclusive ranges."""
    touched = set()
    for code_point in CODE_POINTS:
        decomposition = unicode_17.decomposition(chr(code_point))
        if decomposition and not decomposition.startswith("<"):
            touched.add(code_point)
            touched.update(int(part, 16) for part in decomposition.split())
        elif unicode_17.combining(chr(code_point)):
            touched.add(code_point)
    ranges = []
    for code_point in sorted(touched - known):
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1][1] = code_point
        else:
            ranges.append([code_point, code_point])
    return ranges


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("unicode_17", help="folder that holds unicodedata2 17.0.0")
    parser.add_argument("derived_age", help="DerivedAge.txt")
    arguments = parser.parse_args()
    unicode_17 = load_unicodedata(arguments.unicode_17, "17.0.0")

    print("// Made by tools/unicode_tables.py, which says from what: do not edit.")
    print('#include "text/unicode_tables.h"\n\nnamespace octet {\n')
    print("std::span<const CodePointRange> inert_ranges() {")
    print("static constexpr CodePointRange ranges[] = {")
    known = characters_of_unicode_9(arguments.derived_age)
    print(", ".join(f"{{{low:#x}, {high:#x}}}" for low, high in inert_ranges(unicode_17, known)))
    print("};\nreturn ranges;\n}\n\n}  // namespace octet")


if __name__ == "__main__":
    main()
