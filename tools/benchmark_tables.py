"""What the benchmarks' tools share: running a program that prints JSON, and tables between marks of documents.

Needs Python's standard library alone.
"""

import json
import os
import subprocess
import sys


class BenchmarkError(Exception):
    """What went wrong, as one sentence for the user."""


def tell(tool, text):
    """Progress or an error, on standard error."""
    print(f"{tool}: {text}", file=sys.stderr, flush=True)


def run_json(command, show_errors=True):
    """What the command prints, as JSON. Its standard error is shown, or else its last line is told."""
    command = [str(part) for part in command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if show_errors else subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        message = f"{' '.join(command)} ended with status {done.returncode}"
        if not show_errors:
            message += ": " + (done.stderr.strip().splitlines()[-1:] or ["no message"])[0]
        raise BenchmarkError(message)
    return json.loads(done.stdout)


def write_between_marks(path, text, begin, end, section=None):
    """Puts the text between two lines of a file, at once or not at all. A file that has neither gets the
    section and them at its end, where there is a section."""
    whole = path.read_text(encoding="utf-8")
    if section is not None and begin not in whole and end not in whole:
        whole += section + f"{begin}\n{end}\n"
    head, found_begin, rest = whole.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end or whole.count(begin) != 1 or whole.count(end) != 1:
        raise BenchmarkError(f"{path}: expected one line {begin} and one line {end} after it")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")
    os.replace(temporary, path)
