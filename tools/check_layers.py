#!/usr/bin/env python3
"""Checks that every include in src/ names a file of src/ and points down the layer list.

    tools/check_layers.py [SOURCE_FOLDER]      (default: the src/ beside tools/)

Prints one line per fault and exits with 1 if there is any.
"""

import pathlib
import re
import sys

# From the top down; folders on one line are neighbours and know nothing of one another.
LAYERS = [
    ["cli"],
    ["server"],
    ["bench", "eval"],
    ["engine"],
    ["models"],
    ["ops"],
    ["kv"],
    ["text"],
    ["files"],
    ["core"],
]
RANK = {folder: rank for rank, folders in enumerate(LAYERS) for folder in folders}
SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<quote>["<])(?P<path>[^">]+)[">]')


def faults_of(source, file):
    """Yields one sentence per faulty include of a file."""
    here = file.relative_to(source)
    folder = here.parts[0]
    if len(here.parts) == 1 or folder not in RANK:
        yield f"{here}: '{folder}' is no folder of the layer list"
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        path = match["path"]
        exists = (source / path).is_file()
        if match["quote"] == "<":
            if exists:
                yield f'{here}:{number}: <{path}> is octet\'s own; write "{path}"'
            continue
        if not exists or ".." in pathlib.PurePosixPath(path).parts:
            yield f"{here}:{number}: includes {path}, which is no file's path from src/"
            continue
        target = pathlib.PurePosixPath(path).parts[0]
        if target not in RANK:
            yield f"{here}:{number}: includes {path}, outside the layer list"
        elif target != folder and RANK[target] <= RANK[folder]:
            yield f"{here}:{number}: {folder} may not include {path}: {target} is not below {folder}"


def main(arguments):
    root = pathlib.Path(__file__).resolve().parent.parent
    source = pathlib.Path(arguments[0]) if arguments else root / "src"
    files = sorted(file for file in source.rglob("*") if file.suffix in SUFFIXES)
    if not files:
        print(f"{source}: holds no source file to check")
        return 1
    faults = [fault for file in files for fault in faults_of(source, file)]
    for fault in faults:
        print(fault)
    print(f"layers: {len(files)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
