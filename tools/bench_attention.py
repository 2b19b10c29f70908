#!/usr/bin/env python3
"""Runs the decode benchmark's cases on this machine's GPU, and prints their table.

    tools/bench_attention.py run --octet build-cuda/octet --output FILE.jsonl [--no-overlap]
    tools/bench_attention.py table [--write]

`run` writes one JSON object of `octet bench attention --json --check` a line, with its date. `table`
prints docs/benchmarks/*.jsonl as Markdown, or puts it between the markers of docs/benchmarks.md.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
# What the document holds, in its order: a file in docs/benchmarks/ and how `run` was called for it.
RUNS = [
    ("h200_decode.jsonl", ""),
    ("h200_decode_no_overlap.jsonl", " --no-overlap"),
]
BEGIN = "<!-- decode figures: begin (tools/bench_attention.py table --write) -->"
END = "<!-- decode figures: end -->"

# head_dim, heads, batch, context, and what else the case needs.
CASES = [
    (128, "32/8", 8, 20480, []),
    (128, "32/8", 32, 8192, []),
    (128, "32/8", 1, 131072, []),
    (128, "32/8", 1, 131072, ["--v-mean", "0.5"]),
    (128, "32/8", 1, 32768, []),
    (128, "32/8", 1, 8192, []),
    (128, "32/8", 1, 1024, []),
    (128, "32/8", 1, 256, []),
    (128, "32/8", 32, 8192, ["--window", "128"]),
    (128, "32/8", 8, 20480, ["--kv-cache-scales", "unit"]),
    (64, "64/8", 8, 20480, []),
    (64, "64/8", 32, 8192, []),
    (64, "64/8", 1, 8192, []),
    (64, "64/8", 1, 1024, []),
    (256, "16/4", 8, 20480, []),
    (256, "16/4", 32, 8192, []),
    (256, "16/4", 1, 131072, []),
    (256, "16/4", 1, 8192, []),
]


def run_cases(arguments):
    lines = []
    for head_dim, heads, batch, context, more in CASES:
        command = [arguments.octet, "bench", "attention", "--phase", "decode", "--json", "--check",
                   "--head-dim", str(head_dim), "--heads", heads, "--batch", str(batch),
                   "--context", str(context), "--kv-cache-dtype", "fp8", *more]
        if arguments.no_overlap:
            command.append("--no-overlap")
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(f"bench_attention: {' '.join(command)} ended with {done.returncode}", file=sys.stderr)
            return 1
        report = json.loads(done.stdout)
        report["date"] = datetime.date.today().isoformat()
        lines.append(json.dumps(report))
        print(row_of(report), flush=True)
    pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def row_of(report):
    case = f"{report['batch']} x {report['context']}"
    if report["window"]:
        case += f", window {report['window']}"
    if report["value_mean"]:
        case += f", V mean {report['value_mean']:g}"
    cells = [
        f"{report['head_dim']}, {report['query_heads']}/{report['kv_heads']}",
        case,
        report["kv_cache_scales"],
        f"{report['us']:.1f}",
        f"{report['tb_per_s']:.2f}",
        f"{100 * report['share_of_read_rate']:.0f} %",
        f"{report['error']:.1e}",
        f"{report['error_bfloat16_output']:.1e}",
    ]
    return "| " + " | ".join(cells) + " |"


def table_of(name, flags):
    """The lines of one file: machine, date and command, then the table."""
    text = (ROOT / "docs" / "benchmarks" / name).read_text(encoding="utf-8")
    reports = [json.loads(line) for line in text.splitlines()]
    dates = sorted({report["date"] for report in reports})
    devices = sorted({report["device"] for report in reports})
    command = ("tools/bench_attention.py run --octet build-cuda/octet --output "
               f"docs/benchmarks/{name}{flags}")
    return [
        f"{', '.join(devices)}, {', '.join(dates)}, `{command}`:",
        "",
        "| head_dim, heads | batch x context | scales | us | TB/s | of the read rate | error "
        "| error, bfloat16 output |",
        "|---|---|---|---|---|---|---|---|",
        *[row_of(report) for report in reports],
    ]


def print_table(arguments):
    tables = "\n\n".join("\n".join(table_of(name, flags)) for name, flags in RUNS)
    if not arguments.write:
        print(tables)
        return 0
    document = DOCUMENT.read_text(encoding="utf-8")
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"bench_attention: {DOCUMENT} lacks the markers of the decode figures", file=sys.stderr)
        return 1
    DOCUMENT.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}", encoding="utf-8")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run the cases")
    run.add_argument("--octet", required=True, help="the program, built with CUDA")
    run.add_argument("--output", required=True, help="JSON lines")
    run.add_argument("--no-overlap", action="store_true",
                     help="let no launch begin before the one ahead has ended")
    run.set_defaults(action=run_cases)
    table = commands.add_parser("table", help="print the tables of the runs in docs/benchmarks/")
    table.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    table.set_defaults(action=print_table)
    arguments = parser.parse_args()
    return arguments.action(arguments)


if __name__ == "__main__":
    sys.exit(main())
