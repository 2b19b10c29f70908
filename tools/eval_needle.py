#!/usr/bin/env python3
"""Runs `octet eval needle` with the caches and accumulations of a Hopper GPU, and draws what it found.

    tools/eval_needle.py run --octet build-cuda/octet --output FILE.jsonl
    tools/eval_needle.py draw [--figures FILE.jsonl] [--output FILE.svg]

`run` makes the model (tools/make_needle_model.py) in a temporary folder and writes one JSON object a line,
with its date. `draw` makes docs/benchmarks/h200_needle.svg of docs/benchmarks/h200_needle.jsonl with gnuplot,
and prints the table of docs/kernels/decode_sm90.md.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "benchmarks" / "h200_needle.jsonl"
PICTURE = ROOT / "docs" / "benchmarks" / "h200_needle.svg"

LENGTHS = "4096,8192,16384,32768,65536,98304,131072"
DEPTHS = "0,10,20,30,40,50,60,70,80,90,100"
QUESTIONS = ["--samples", "8", "--batch", "88"]
# Cache, accumulation and questions; the last answers one question after the other.
CASES = [
    ("bfloat16", "two-level", QUESTIONS),
    ("fp8", "two-level", QUESTIONS),
    ("fp8", "single", QUESTIONS),
    ("int8:fp8", "two-level", QUESTIONS),
    ("fp8", "single", ["--samples", "8", "--batch", "1"]),
]
DRAWN = 3


def run_cases(arguments):
    output = pathlib.Path(arguments.output)
    output.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "needle"
        subprocess.run([sys.executable, str(ROOT / "tools" / "make_needle_model.py"), str(model)],
                       check=True)
        for cache, accumulation, questions in CASES:
            command = [arguments.octet, "eval", "needle", "--model", str(model), "--device", "cuda",
                       "--lengths", LENGTHS, "--depths", DEPTHS, *questions, "--json",
                       "--kv-cache-dtype", cache, "--attention-accumulation", accumulation]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                print(f"eval_needle: {' '.join(command)} ended with {done.returncode}",
                      file=sys.stderr)
                return 1
            report = json.loads(done.stdout)
            report["model"] = "tools/make_needle_model.py"
            report["date"] = datetime.date.today().isoformat()
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report) + "\n")
            print(row_of(report), flush=True)
    return 0


def lengths_of(report):
    return sorted({cell["length"] for cell in report["cells"]})


def share(cells):
    return sum(cell["right"] for cell in cells) / sum(cell["asked"] for cell in cells)


def name_of(report):
    name = f"{report['cache'].split(' ')[0].rstrip(',')}, {report['attention_accumulation']}"
    return name if report["batch"] > 1 else name + ", one question a step"


def row_of(report):
    cells = [f"{100 * share([c for c in report['cells'] if c['length'] == length]):.0f} %"
             for length in lengths_of(report)]
    return "| " + " | ".join([name_of(report), *cells]) + " |"


def table(reports):
    lengths = [f"{length // 1024}k" for length in lengths_of(reports[0])]
    return "\n".join(["| cache, accumulation | " + " | ".join(lengths) + " |",
                      "|---" * (len(lengths) + 1) + "|", *map(row_of, reports)])


def gnuplot_script(reports, output):
    """A panel a report: lengths across, depths down, green where all answers are right."""
    lines = [f"set terminal svg noenhanced background 'white' size {330 * len(reports)}, 380",
             f"set output '{output}'", f"set multiplot layout 1, {len(reports)}",
             "set palette defined (0 '#b2182b', 0.5 '#fddbc7', 1 '#1b7837')", "set cbrange [0:1]",
             "unset colorbox", "set xlabel 'tokens'", "set ylabel 'depth, %'",
             "set yrange [*:*] reverse", "unset key", "set tics font ',9'"]
    for report in reports:
        lengths = lengths_of(report)
        depths = sorted({cell["depth"] for cell in report["cells"]})
        right = {(cell["length"], cell["depth"]): cell["right"] / cell["asked"]
                 for cell in report["cells"]}
        lines.append("$cells << EOD")
        for depth in depths:
            lines.append(" ".join(f"{right[length, depth]:.3f}" for length in lengths))
        lines += ["EOD", f"set title '{name_of(report)}'"]
        lines.append("set xtics (" + ", ".join(f"'{length // 1024}k' {i}"
                                               for i, length in enumerate(lengths)) + ")")
        lines.append("set ytics (" + ", ".join(f"'{depth:g}' {i}"
                                               for i, depth in enumerate(depths)) + ")")
        lines.append("plot $cells matrix with image, "
                     "$cells matrix using 1:2:(sprintf('%.0f', 100 * $3)) with labels font ',9'")
    return "\n".join([*lines, "unset multiplot", ""])


def draw(arguments):
    text = pathlib.Path(arguments.figures).read_text(encoding="utf-8")
    reports = [json.loads(line) for line in text.splitlines()]
    script = gnuplot_script(reports[:DRAWN], arguments.output)
    done = subprocess.run(["gnuplot", "-"], input=script, text=True, check=False)
    if done.returncode != 0:
        print("eval_needle: gnuplot failed", file=sys.stderr)
        return 1
    print(table(reports))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run the cases")
    run.add_argument("--octet", required=True, help="the program, built with CUDA")
    run.add_argument("--output", required=True, help="JSON lines")
    run.set_defaults(action=run_cases)
    picture = commands.add_parser("draw", help="draw a run's figures")
    picture.add_argument("--figures", default=str(FIGURES))
    picture.add_argument("--output", default=str(PICTURE))
    picture.set_defaults(action=draw)
    arguments = parser.parse_args()
    return arguments.action(arguments)


if __name__ == "__main__":
    sys.exit(main())
