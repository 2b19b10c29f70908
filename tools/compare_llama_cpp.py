#!/usr/bin/env python3
"""octet and llama.cpp on the same model file: prefill and decode at depths, in turn, as a table.

    tools/compare_llama_cpp.sh models/SmolLM2-135M-Instruct.Q4_1.gguf --depths 0,4096,7500

Each round runs llama.cpp once with every cache setting (f16 with and without flash attention, q8_0
with it) and octet once with its caches, so that the machine's moods fall on both alike; figures are
medians of the rounds. A ratio is octet's tokens/s over those of llama.cpp's fastest setting in that
row. `--requantize Q8_0` compares on a copy that llama.cpp's own tool made, the same file in both.
Needs Python's standard library alone; compare_llama_cpp.sh builds llama.cpp.
"""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

# Name, and the arguments of llama-bench: a quantised V needs flash attention there.
LLAMA_SETTINGS = [
    ("f16", ["-ctk", "f16", "-ctv", "f16", "-fa", "0"]),
    ("f16 FA", ["-ctk", "f16", "-ctv", "f16", "-fa", "1"]),
    ("q8_0 FA", ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "1"]),
]


def run_llama(options, model, arguments):
    """{(phase, depth): tokens/s} of one setting of llama.cpp."""
    rows = run_json([
        options.llama_bench, "-m", str(model), "-t", str(options.threads),
        "-p", str(options.prefill), "-n", str(options.decode), "-d", options.depths,
        "-r", "1", "-ngl", "0", "-o", "json", *arguments], show_errors=False)
    return {("prefill" if row["n_prompt"] > 0 else "decode", row["n_depth"]): row["avg_ts"]
            for row in rows}


def run_octet(options, model):
    """{cache: {(phase, depth): tokens/s}}"""
    command = [
        options.octet, "bench", "cpu", "--model", str(model), "--threads", str(options.threads),
        "--prefill", str(options.prefill), "--decode", str(options.decode), "--depths",
        options.depths, "--kv-cache-dtype", options.octet_caches, "--rounds", "1",
        "--no-matrices", "--no-attention", "--json"]
    if options.dtype:
        command += ["--dtype", options.dtype]
    report = run_json(command, show_errors=False)
    caches = {}
    for row in report["model"]:
        figures = caches.setdefault(row["kv_cache_dtype"], {})
        figures[(row["phase"], row["depth"])] = row["tokens_per_s"]
    return caches, f"{report['instruction_set']}, {report['dtype']}"


def measure(options, model):
    """{program's setting: {(phase, depth): median tokens/s}}, and octet's kernels in words."""
    runs = {}
    kernels = ""

    def add(name, figures):
        for place, rate in figures.items():
            runs.setdefault(name, {}).setdefault(place, []).append(rate)

    settings = [s for s in LLAMA_SETTINGS if s[0] in options.llama_caches.split(",")]
    for round_number in range(options.rounds):
        for name, arguments in settings:
            tell("compare", f"round {round_number + 1} of {options.rounds}: llama.cpp, {name}")
            add(f"llama.cpp {name}", run_llama(options, model, arguments))
        tell("compare", f"round {round_number + 1} of {options.rounds}: octet")
        caches, kernels = run_octet(options, model)
        for cache, figures in caches.items():
            add(f"octet {cache}", figures)
    medians = {name: {place: statistics.median(rates) for place, rates in places.items()}
               for name, places in runs.items()}
    return medians, kernels


def table(medians, kernels, options, model):
    llama = [name for name in medians if name.startswith("llama.cpp")]
    octet = [name for name in medians if name.startswith("octet")]
    lines = [
        f"{model.name}, {options.threads} threads ({kernels}), {datetime.date.today().isoformat()},"
        f" tokens/s, medians of {options.rounds} interleaved rounds; x: to llama.cpp's fastest:",
        "",
        "| test | depth | " + " | ".join(llama + octet) + " |",
        "|---|---|" + "---|" * len(llama + octet),
    ]
    for place in sorted(medians[octet[0]], key=lambda p: (p[1], p[0] == "decode")):
        phase, depth = place
        fastest = max(medians[name][place] for name in llama)
        cells = [f"{medians[name][place]:.1f}" for name in llama]
        cells += [f"{medians[name][place]:.1f} ({medians[name][place] / fastest:.2f} x)"
                  for name in octet]
        test = f"prefill {options.prefill}" if phase == "prefill" else "decode"
        lines.append(f"| {test} | {depth:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def requantized(options, model):
    """A copy of the model that llama.cpp's tool made in another weight type."""
    folder = pathlib.Path(options.llama_quantize).resolve().parent.parent.parent
    copy = folder / f"{model.stem}.requantized-{options.requantize}.gguf"
    if not copy.exists():
        tell("compare", f"requantising to {options.requantize}")
        partial = copy.with_suffix(".partial")
        command = [options.llama_quantize, "--allow-requantize", str(model), str(partial),
                   options.requantize]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise BenchmarkError(f"{' '.join(command)} ended with status {done.returncode}")
        partial.replace(copy)
    return copy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--llama-quantize", required=True)
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depths", default="0,4096,7500")
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-caches", default=",".join(name for name, _ in LLAMA_SETTINGS))
    parser.add_argument("--octet-caches", default="fp8,bfloat16")
    parser.add_argument("--dtype", help="octet's arithmetic (default: its own choice)")
    parser.add_argument("--requantize", help="Q8_0, Q4_0, ...")
    parser.add_argument("--json", type=pathlib.Path, help="write the medians here as well")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE.md",
                        help="put the table between the model's marks of this file, or at its end")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}, expected at least 1")
    if not any(name in options.llama_caches.split(",") for name, _ in LLAMA_SETTINGS):
        parser.error(f"--llama-caches is {options.llama_caches}, expected some of "
                     + ", ".join(name for name, _ in LLAMA_SETTINGS))
    try:
        model = requantized(options, options.model) if options.requantize else options.model
        medians, kernels = measure(options, model)
        text = table(medians, kernels, options, model)
        print(text)
        if options.write:
            name = f"llama.cpp figures of {model.name}, {options.dtype or 'auto'}"
            write_between_marks(options.write, text, f"<!-- {name}: begin -->",
                                f"<!-- {name}: end -->", "\n")
        if options.json:
            rows = [{"program": name, "phase": phase, "depth": depth, "tokens_per_s": rate}
                    for name, places in medians.items()
                    for (phase, depth), rate in places.items()]
            options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    except (BenchmarkError, OSError, json.JSONDecodeError) as error:
        tell("compare", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
