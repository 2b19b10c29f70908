#!/usr/bin/env python3
"""Runs `octet bench step` over geometries of models on this machine's GPU, and prints its tables.

    tools/bench_step.py run --octet build-cuda/octet --output FILE.jsonl [--slopes]
    tools/bench_step.py table [--write]

`run` writes one JSON object of `octet bench step --json` a line, with its date; `table` prints
docs/benchmarks/h200_step.jsonl and h200_step_slopes.jsonl (made by `run --slopes`: how a step grows with
the context) as Markdown, or puts them between the markers of docs/benchmarks.md.
"""

import argparse
import datetime
import json
import pathlib
import sys

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

ROOT = pathlib.Path(__file__).resolve().parent.parent
GEOMETRIES = ROOT / "tests" / "data" / "models" / "geometry"
LLAMA = "llama-3.1-8b"
FIGURES = ROOT / "docs" / "benchmarks" / "h200_step.jsonl"
SLOPES = ROOT / "docs" / "benchmarks" / "h200_step_slopes.jsonl"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- step figures: begin (tools/bench_step.py table --write) -->"
END = "<!-- step figures: end -->"

# Weights, sequences, caches and contexts; two caches are timed step by step in turn. The long ones are as far
# as the slopes of vLLM go, to which these are held.
BOTH = "bfloat16,fp8"
SLOPE_CASES = [
    (LLAMA, "bfloat16", 1, BOTH, "256,512,1024,4096,16384,65536"),
    (LLAMA, "bfloat16", 1, BOTH, "4096,32768,122880"),
    ("llama-head-dim-256", "bfloat16", 1, BOTH, "4096,32768,122880"),
    ("gemma3-head-dim-64", "bfloat16", 1, BOTH, "4096,32768,122880"),
]
# A slope is fitted from here on: what is shorter does not fill the machine.
FIRST_OF_SLOPE = 4096
CASES = [(LLAMA, *case) for case in [
    ("bfloat16", 1, "bfloat16", "256"),
    ("fp8", 1, "bfloat16", "256"),
    ("bfloat16", 1, "bfloat16,fp8", "256,4096,16384"),
    ("fp8", 1, "fp8", "16384"),
    ("bfloat16", 1, "int8:fp8", "16384"),
    ("bfloat16", 8, "bfloat16,fp8", "8192"),
    ("bfloat16", 64, "bfloat16,fp8", "2048"),
]]


def run_cases(arguments):
    lines = []
    for model, weights, batch, caches, contexts in SLOPE_CASES if arguments.slopes else CASES:
        command = [arguments.octet, "bench", "step", "--model", str(GEOMETRIES / model), "--random-weights",
                   "--device", "cuda", "--json", "--weight-dtype", weights, "--batch", str(batch),
                   "--kv-cache-dtype", caches, "--contexts", contexts]
        report = run_json(command)
        report["model"] = model
        report["date"] = datetime.date.today().isoformat()
        lines.append(json.dumps(report))
        pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
        for figure in report["figures"]:
            print(row_of(report, figure), flush=True)


def row_of(report, figure):
    read = figure["weight_bytes"] + figure["cache_bytes"]
    step = figure["itl_ms"]["p50"]
    cells = [
        report["weights"].removeprefix("random "),
        figure["kv_cache_dtype"],
        f"{report['batch']} x {figure['context']}",
        f"{step:.3f}",
        f"{figure['itl_ms']['p99']:.3f}",
        f"{read / 1e9:.2f}",
        f"{read / step * 1e-9:.2f}",
        f"{figure['ttft_ms']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def difference_rows(report):
    caches = list(dict.fromkeys(figure["kv_cache_dtype"] for figure in report["figures"]))
    for difference in report["differences"]:
        yield (f"| {report['weights'].removeprefix('random ')} | {caches[1]} less {caches[0]} "
               f"| {report['batch']} x {difference['context']} | {difference['mean_ms']:+.4f} "
               f"| {difference['ci95_half_width_ms']:.4f} | {difference['pairs']} |")


def slope_of(figures):
    """Of a step in ms a token, by least squares."""
    points = [(figure["context"], figure["itl_ms"]["p50"]) for figure in figures
              if figure["context"] >= FIRST_OF_SLOPE]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    return (sum((x - mean_x) * (y - mean_y) for x, y in points)
            / sum((x - mean_x) ** 2 for x, _ in points))


def slope_rows(report):
    caches = list(dict.fromkeys(figure["kv_cache_dtype"] for figure in report["figures"]))
    slopes = [slope_of([f for f in report["figures"] if f["kv_cache_dtype"] == cache])
              for cache in caches]
    for cache, slope in zip(caches, slopes):
        last = [f for f in report["figures"] if f["kv_cache_dtype"] == cache][-1]
        bytes_per_token = last["cache_bytes"] / last["context"]
        yield (f"| {report['model']} | {last['context']} | {cache} "
               f"| {1e5 * slope:.2f}e-5 | {slope / slopes[0]:.2f} "
               f"| {bytes_per_token / slope * 1e-9:.2f} |")


def slope_tables():
    reports = [json.loads(line) for line in SLOPES.read_text(encoding="utf-8").splitlines()]
    first = reports[0]
    return [
        "",
        f"{first['device']}, {first['date']}, `tools/bench_step.py run --slopes --octet build-cuda/octet "
        f"--output docs/benchmarks/h200_step_slopes.jsonl`; slopes from {FIRST_OF_SLOPE} keys on:",
        "",
        "| geometry, one sequence | to | cache | ms a token | of the first's | TB/s of the slope |",
        "|---|---|---|---|---|---|",
        *(row for report in reports for row in slope_rows(report)),
        "",
        "| geometry | cache | context | step, ms | p99 |",
        "|---|---|---|---|---|",
        *(f"| {report['model']} | {figure['kv_cache_dtype']} | {figure['context']} "
          f"| {figure['itl_ms']['p50']:.3f} | {figure['itl_ms']['p99']:.3f} |"
          for report in reports for figure in report["figures"]),
        "",
        "| geometry | difference of a step | context | ms | 95 % within | pairs |",
        "|---|---|---|---|---|---|",
        *(row.replace(report["weights"].removeprefix("random "), report["model"], 1)
          .replace("| 1 x ", "| ")
          for report in reports for row in difference_rows(report)),
    ]


def operation_rows(operations, unit):
    key, form = {"TB/s": ("tb_per_s", "{:.2f}"), "TFLOPS": ("tflops", "{:.0f}")}[unit]
    for line in operations:
        rate = form.format(line[key]) if key in line else ""
        yield f"| {line['operation']} | {line['launches']} | {line['us']:.1f} | {rate} |"


def operation_table(report, figure, key, what):
    unit = "TB/s" if key == "operations" else "TFLOPS"
    return [
        "",
        f"{what}, {report['weights'].removeprefix('random ')} weights, {figure['kv_cache_dtype']} cache, "
        f"{figure['context']} keys; operations one after the other, by events, whose own time counts:",
        "",
        f"| operation | launches | us | {unit} |",
        "|---|---|---|---|",
        *operation_rows(figure[key], unit),
    ]


def table():
    reports = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
    first = reports[0]
    lines = [
        f"{first['device']}, {first['date']}, `tools/bench_step.py run --octet build-cuda/octet "
        f"--output docs/benchmarks/h200_step.jsonl`:",
        "",
        "| weights | cache | sequences x context | step, ms | p99 | GB read | TB/s "
        "| first token of one prompt, ms |",
        "|---|---|---|---|---|---|---|---|",
        *(row_of(report, figure) for report in reports for figure in report["figures"]),
        "",
        "| weights | difference of a step | sequences x context | ms | 95 % within | pairs |",
        "|---|---|---|---|---|---|",
        *(row for report in reports for row in difference_rows(report)),
    ]
    for report in reports[:2]:
        lines += operation_table(report, report["figures"][0], "operations", "A step")
    for report in reports:
        for figure in report["figures"]:
            if report["batch"] == 1 and figure["context"] == 16384:
                lines += operation_table(report, figure, "prompt_operations",
                                         "The last 8,192 tokens of a prompt")
    if SLOPES.exists():
        lines += slope_tables()
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--octet", required=True)
    run.add_argument("--output", required=True)
    run.add_argument("--slopes", action="store_true", help="the cases of slopes in their place")
    show = commands.add_parser("table")
    show.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    try:
        if arguments.command == "run":
            run_cases(arguments)
        elif arguments.write:
            write_between_marks(DOCUMENT, table(), BEGIN, END)
        else:
            print(table())
    except BenchmarkError as error:
        tell("bench_step", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
