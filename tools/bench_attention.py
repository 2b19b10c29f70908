#!/usr/bin/env python3
"""Runs the attention benchmarks' cases on this machine's GPU, and prints their tables.

    tools/bench_attention.py run --octet build-cuda/octet --output FILE.jsonl [--no-overlap]
    tools/bench_attention.py run --phase prefill --octet build-cuda/octet --output FILE.jsonl
    tools/bench_attention.py table [--write]

`run` writes one JSON object of `octet bench attention --json --check` a line, with its date. `table`
prints docs/benchmarks/*.jsonl as Markdown, or puts it between the markers of docs/benchmarks.md.
"""

import argparse
import datetime
import json
import pathlib
import sys

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
# What the document holds, in its order: a file in docs/benchmarks/ and how `run` was called for it.
RUNS = [
    ("h200_decode.jsonl", ""),
    ("h200_decode_no_overlap.jsonl", " --no-overlap --first 8"),
]
PREFILL_RUNS = [("h200_prefill.jsonl", "")]
MARKERS = {
    phase: (f"<!-- {phase} figures: begin (tools/bench_attention.py table --write) -->",
            f"<!-- {phase} figures: end -->")
    for phase in ("decode", "prefill")
}

INT8_KEYS = ["--kv-cache-dtype", "int8:fp8"]
BFLOAT16 = ["--kv-cache-dtype", "bfloat16"]
SINGLE = ["--attention-accumulation", "single"]
# One long context among short ones, from a single key on.
MIXED_LENGTHS = "1,63,64,65,127,512,4096,8192,32768,131072"
# head_dim, heads, batch, context, and what else the case needs; those that count most come first.
CASES = [
    (128, "32/8", 8, 20480, []),
    (128, "32/8", 32, 8192, []),
    (128, "32/8", 1, 131072, []),
    (128, "32/8", 1, 32768, []),
    (128, "32/8", 1, 8192, []),
    (128, "32/8", 1, 1024, []),
    (64, "64/8", 8, 20480, []),
    (256, "16/4", 8, 20480, []),
    (128, "32/8", 8, 20480, BFLOAT16),
    (128, "32/8", 8, 20480, INT8_KEYS),
    (64, "64/8", 32, 8192, []),
    (256, "16/4", 1, 131072, []),
    (128, "32/8", 1, 131072, ["--v-mean", "0.5"]),
    (128, "32/8", 1, 131072, ["--v-mean", "0.5", *SINGLE]),
    (128, "32/8", 1, 1024, BFLOAT16),
    (128, "32/8", 1, 256, []),
    (128, "32/8", 1, 256, BFLOAT16),
    (128, "32/8", 1, 1, []),
    (128, "32/8", 1, 1, BFLOAT16),
    (128, "32/8", 32, 8192, ["--window", "128"]),
    (128, "32/8", 32, 8192, ["--window", "128", *BFLOAT16]),
    (128, "32/8", 1, 8192, BFLOAT16),
    (128, "32/8", 1, 131072, BFLOAT16),
    (128, "32/8", 8, 20480, ["--kv-cache-scales", "head"]),
    (128, "32/8", 1, 131072, INT8_KEYS),
    (128, "32/8", 1, 8192, INT8_KEYS),
    (64, "64/8", 8, 20480, INT8_KEYS),
    (256, "16/4", 8, 20480, INT8_KEYS),
    (64, "64/8", 8, 20480, BFLOAT16),
    (256, "16/4", 8, 20480, BFLOAT16),
    (128, "64/8", 8, 20480, []),
    (128, "32/2", 8, 20480, []),
    (128, "32/2", 8, 131072, []),
    (128, "32/8", 1, 2048, []),
    (128, "32/8", 8, 20480, ["--query-rows", "4"]),
    (64, "64/8", 32, 8192, ["--window", "128", "--sink"]),
    (256, "16/4", 8, 20480, ["--soft-cap", "50"]),
    (64, "64/8", 1, 1024, []),
    (64, "64/8", 1, 8192, []),
    (256, "16/4", 1, 8192, []),
    (128, "32/8", 1, 4096, []),
    (128, "32/8", 8, 1024, []),
    (96, "32/8", 8, 20480, []),
    (192, "16/4", 8, 20480, []),
    (512, "8/2", 8, 20480, []),
    (128, "32/8", 1, 32768, BFLOAT16),
    (128, "32/8", 8, 1024, BFLOAT16),
    (128, "8/8", 8, 131072, ["--v-mean", "0.5", *SINGLE]),
    (128, "8/8", 8, 131072, ["--v-mean", "0.5"]),
    (128, "32/8", 8, 20480, ["--kv-cache-scales", "unit"]),
    (128, "32/8", 10, 131072, ["--lengths", MIXED_LENGTHS]),
    (128, "32/8", 10, 131072, ["--lengths", MIXED_LENGTHS, *BFLOAT16]),
    (128, "32/8", 32, 8192, INT8_KEYS),
    (128, "32/8", 1, 32768, INT8_KEYS),
    (128, "32/8", 1, 1024, INT8_KEYS),
    (64, "64/8", 32, 8192, INT8_KEYS),
    (256, "16/4", 1, 131072, INT8_KEYS),
    (64, "64/8", 1, 1, []),
    (64, "64/8", 1, 1, BFLOAT16),
    (64, "64/8", 1, 1024, BFLOAT16),
    (256, "16/4", 1, 1, []),
    (256, "16/4", 1, 1, BFLOAT16),
    (256, "16/4", 1, 1024, []),
    (256, "16/4", 1, 1024, BFLOAT16),
]

PREFILL_CASES = [
    (128, "32/8", 1, 4096, []),
    (128, "32/8", 1, 16384, []),
    (128, "32/8", 1, 65536, []),
    (128, "32/8", 1, 131072, ["--chunk", "16384"]),
    (128, "32/8", 1, 131072, ["--chunk", "16384", "--v-mean", "0.5"]),
    (128, "32/8", 8, 2048, []),
    (128, "32/8", 1, 16384, ["--window", "1024"]),
    (128, "32/8", 1, 16384, ["--kv-cache-scales", "unit"]),
    (64, "64/8", 1, 4096, []),
    (64, "64/8", 1, 16384, []),
    (256, "16/4", 1, 4096, []),
    (256, "16/4", 1, 16384, []),
    (256, "16/4", 1, 65536, []),
    (128, "32/8", 1, 4096, BFLOAT16),
    (128, "32/8", 1, 16384, BFLOAT16),
    (128, "32/8", 1, 65536, BFLOAT16),
    (64, "64/8", 1, 16384, BFLOAT16),
    (256, "16/4", 1, 16384, BFLOAT16),
    (128, "32/8", 1, 16384, ["--kv-cache-scales", "head"]),
    (128, "32/8", 1, 4096, INT8_KEYS),
    (128, "32/8", 1, 16384, INT8_KEYS),
    (128, "32/8", 1, 65536, INT8_KEYS),
    (128, "32/8", 1, 131072, ["--chunk", "16384", *INT8_KEYS]),
    (64, "64/8", 1, 16384, INT8_KEYS),
    (256, "16/4", 1, 16384, INT8_KEYS),
]


def run_cases(arguments):
    cases = CASES if arguments.phase == "decode" else PREFILL_CASES
    output = pathlib.Path(arguments.output)
    output.write_text("", encoding="utf-8")
    row_of = row_of_decode if arguments.phase == "decode" else row_of_prefill
    for head_dim, heads, batch, context, more in cases[:arguments.first]:
        command = [arguments.octet, "bench", "attention", "--phase", arguments.phase, "--json",
                   "--check",
                   "--head-dim", str(head_dim), "--heads", heads, *more]
        if "--lengths" not in more:
            command += ["--batch", str(batch), "--context", str(context)]
        if "--kv-cache-dtype" not in more:
            command += ["--kv-cache-dtype", "fp8"]
        if arguments.no_overlap:
            command.append("--no-overlap")
        report = run_json(command)
        report["date"] = datetime.date.today().isoformat()
        # At once, so that a run that is cut short leaves what it has.
        with output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(report) + "\n")
        print(row_of(report), flush=True)


def row_of_decode(report):
    case = f"{report['batch']} x {report['context']}"
    if "lengths" in report:
        case = ", ".join(map(str, report["lengths"]))
    if report["query_rows"] > 1:
        case += f", {report['query_rows']} query rows"
    if report["window"]:
        case += f", window {report['window']}"
    if report["value_mean"]:
        case += f", V mean {report['value_mean']:g}"
    if report.get("sink"):
        case += ", sinks"
    if report.get("soft_cap"):
        case += f", soft cap {report['soft_cap']:g}"
    if report.get("attention_accumulation") == "single":
        case += ", single-level"
    cells = [
        f"{report['head_dim']}, {report['query_heads']}/{report['kv_heads']}",
        case,
        report["kv_cache_dtype"],
        report["kv_cache_scales"],
        f"{report['us']:.1f}",
        f"{report['tb_per_s']:.2f}",
        f"{100 * report['share_of_read_rate']:.0f} %",
        f"{report['error']:.1e}",
        f"{report['error_bfloat16_output']:.1e}",
    ]
    return "| " + " | ".join(cells) + " |"


def row_of_prefill(report):
    case = f"{report['batch']} x {report['context']}"
    if report["chunk"] != report["context"]:
        case = f"{report['chunk']} at the end of {report['context']}"
    if report["window"]:
        case += f", window {report['window']}"
    if report["value_mean"]:
        case += f", V mean {report['value_mean']:g}"
    cells = [
        f"{report['head_dim']}, {report['query_heads']}/{report['kv_heads']}",
        case,
        report["kv_cache_dtype"],
        report["kv_cache_scales"],
        f"{report['us'] / 1000:.3f}",
        f"{report['tflops']:.0f}",
        f"{100 * report['share_of_multiply_rate']:.0f} %",
        f"{report['error']:.1e}",
        f"{report['emulated_error']:.1e}",
    ]
    return "| " + " | ".join(cells) + " |"


HEADS = {
    "decode": ["| head_dim, heads | batch x context | cache | scales | us | TB/s | of the read rate "
               "| error | error, bfloat16 output |",
               "|---|---|---|---|---|---|---|---|---|"],
    "prefill": ["| head_dim, heads | batch x rows | cache | scales | ms | TFLOPS "
                "| of e4m3's multiply rate | error | emulated |",
                "|---|---|---|---|---|---|---|---|---|"],
}


def table_of(phase, name, flags):
    """The lines of one file: machine, date and command, then the table."""
    text = (ROOT / "docs" / "benchmarks" / name).read_text(encoding="utf-8")
    reports = [json.loads(line) for line in text.splitlines()]
    dates = sorted({report["date"] for report in reports})
    devices = sorted({report["device"] for report in reports})
    if phase == "prefill":
        flags += " --phase prefill"
    command = ("tools/bench_attention.py run --octet build-cuda/octet --output "
               f"docs/benchmarks/{name}{flags}")
    row_of = row_of_decode if phase == "decode" else row_of_prefill
    return [
        f"{', '.join(devices)}, {', '.join(dates)}, `{command}`:",
        "",
        *HEADS[phase],
        *[row_of(report) for report in reports],
    ]


def print_table(arguments):
    for phase, runs in (("decode", RUNS), ("prefill", PREFILL_RUNS)):
        tables = "\n\n".join("\n".join(table_of(phase, name, flags)) for name, flags in runs)
        if arguments.write:
            write_between_marks(DOCUMENT, tables, *MARKERS[phase])
        else:
            print(tables)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run the cases")
    run.add_argument("--phase", choices=["decode", "prefill"], default="decode")
    run.add_argument("--octet", required=True, help="the program, built with CUDA")
    run.add_argument("--output", required=True, help="JSON lines")
    run.add_argument("--no-overlap", action="store_true",
                     help="let no launch begin before the one ahead has ended")
    run.add_argument("--first", type=int, help="only so many cases")
    run.set_defaults(action=run_cases)
    table = commands.add_parser("table", help="print the tables of the runs in docs/benchmarks/")
    table.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    table.set_defaults(action=print_table)
    arguments = parser.parse_args()
    try:
        arguments.action(arguments)
    except BenchmarkError as error:
        tell("bench_attention", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
