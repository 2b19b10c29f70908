#!/usr/bin/env python3
"""Runs `octet bench operations` on this machine's GPU by case, and prints the table.

    tools/bench_operations.py run --octet build-cuda/octet --output FILE.jsonl
    tools/bench_operations.py table [--write]

`run` writes one JSON object a line, with its date. `table` prints docs/benchmarks/h200_operations.jsonl
as Markdown, or puts it between the markers of docs/benchmarks.md.
"""

import argparse
import datetime
import json
import pathlib
import sys

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "benchmarks" / "h200_operations.jsonl"
BEGIN = "<!-- operation figures: begin (tools/bench_operations.py table --write) -->"
END = "<!-- operation figures: end -->"

CASES = [
    ["--rows", "1", "--context", "256", "--prefill", "0"],
    ["--rows", "8", "--context", "20480", "--prefill", "16384"],
    ["--rows", "64", "--context", "1024", "--prefill", "0"],
    ["--rows", "8", "--context", "20480", "--prefill", "16384", "--kv-cache-dtype", "fp8"],
    ["--rows", "8", "--context", "20480", "--prefill", "16384", "--kv-cache-dtype", "int8:fp8"],
]


def run_cases(arguments):
    output = pathlib.Path(arguments.output)
    output.write_text("", encoding="utf-8")
    for case in CASES:
        command = [arguments.octet, "bench", "operations", "--json", *case]
        report = run_json(command)
        report["date"] = datetime.date.today().isoformat()
        # At once, so that a run that is cut short leaves what it has.
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")


def cell_of(operation):
    text = f"{operation['us']:.1f} us" if operation["us"] < 1000 else f"{operation['us'] / 1e3:.2f} ms"
    if operation["bytes"] > 1e8:
        text += f", {operation['bytes'] / operation['us'] * 1e-6:.2f} TB/s"
    if operation["multiply_adds"] > 0:
        text += f", {2 * operation['multiply_adds'] / operation['us'] * 1e-6:.0f} TFLOPS"
    return text


def make_table(reports):
    columns = []
    for report in reports:
        title = f"{report['rows']} x {report['context']}, {report['cache']}"
        columns.append((title, {each["name"]: cell_of(each) for each in report["operations"]}))
    names = []
    for _, cells in columns:
        names += [name for name in cells if name not in names]
    first = reports[0]
    lines = [
        f"{first['device']}, {first['date']}, `tools/bench_operations.py run --octet "
        f"build-cuda/octet --output docs/benchmarks/{FIGURES.name}`:",
        "",
        "| operation | " + " | ".join(title for title, _ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(cells.get(name, "") for _, cells in columns) + " |")
    return "\n".join(lines)


def write_table(arguments):
    lines = FIGURES.read_text(encoding="utf-8").splitlines()
    table = make_table([json.loads(line) for line in lines])
    if arguments.write:
        write_between_marks(DOCUMENT, table, BEGIN, END)
    else:
        print(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--octet", required=True)
    run.add_argument("--output", required=True)
    table = commands.add_parser("table")
    table.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            run_cases(arguments)
        else:
            write_table(arguments)
    except BenchmarkError as error:
        tell("bench_operations", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
