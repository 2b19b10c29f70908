#!/usr/bin/env python3
"""What each cache format costs on this machine's CPU, measured with the demo's model.

    tools/bench_cpu.py --octet build/octet --model models/SmolLM2-135M-Instruct.Q4_1.gguf

Lets the model read a document with every cache format in turn, `--repeats` rounds of it, so that the
machine's moods fall on all formats alike, and takes medians; then `octet eval kl` for each against a
float32 cache. Rewrites the table between the markers of README.md and docs/benchmarks.md, with the
machine, the command and the date. Needs Python's standard library alone.
"""

import argparse
import datetime
import pathlib
import statistics
import sys

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

ROOT = pathlib.Path(__file__).resolve().parent.parent
# --kv-cache-dtype and --kv-cache-scales.
POLICIES = [
    ("float32", "auto"),
    ("bfloat16", "auto"),
    ("fp8", "dynamic"),
    ("fp8", "unit"),
    ("int8:fp8", "auto"),
    ("int8", "auto"),
]
BEGIN = "<!-- cpu figures: begin (make benchmarks) -->"
END = "<!-- cpu figures: end -->"


def octet(options, *arguments):
    return run_json([options.octet, *arguments, "--json"])


def cache_flags(policy):
    return ["--kv-cache-dtype", policy[0], "--kv-cache-scales", policy[1]]


def measure(options):
    """Median TTFT and ITL of each policy, and what it does to the predictions."""
    runs = {policy: [] for policy in POLICIES}
    for repeat in range(options.repeats):
        for policy in POLICIES:
            tell("bench", f"round {repeat + 1} of {options.repeats}, {policy[0]} ({policy[1]})")
            runs[policy].append(octet(
                options, "generate", "--model", options.model, "--prompt-file", options.document,
                "--max-tokens", "64", "--ignore-eos", *cache_flags(policy)))
    results = []
    for policy in POLICIES:
        tell("bench", f"divergence of {policy[0]} ({policy[1]})")
        kl = octet(options, "eval", "kl", "--model", options.model, "--text", options.document,
                   "--context", str(options.context), "--reference", "float32",
                   *cache_flags(policy))
        first = runs[policy][0]
        results.append({
            "dtype": policy[0],
            "scales": first["kv_cache"]["scales"],
            "bytes_per_token": first["kv_cache"]["bytes_per_token"],
            "prompt_tokens": first["prompt_tokens"],
            "ttft_s": statistics.median(r["timing"]["ttft_ms"] for r in runs[policy]) / 1e3,
            "itl_p50_ms": statistics.median(r["timing"]["itl_ms"]["p50"] for r in runs[policy]),
            "kl_mean": kl["mean"],
            "top1_agreement": kl["top1_agreement"],
            "threads": first["threads"],
            "instruction_set": first["instruction_set"],
        })
    return results


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def table(results, options):
    first = results[0]
    tokens = f"{first['prompt_tokens']:,}"
    lines = [
        f"{options.model.name}, {first['threads']} threads of an {cpu_name()}"
        f" ({first['instruction_set']}), {datetime.date.today().isoformat()},"
        f" `make benchmarks BENCH_ROUNDS={options.repeats}`: medians of {options.repeats} interleaved rounds; divergence to a float32 cache over"
        f" {options.context:,} tokens, float32 arithmetic.",
        "",
        f"| cache | bytes per token | TTFT, {tokens} tokens | ITL p50 at {tokens}"
        " | mean KL divergence | same top token |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        name = result["dtype"] + (", scales `unit`" if result["scales"] == "unit" else "")
        lines.append(
            f"| {name} | {result['bytes_per_token']:,.0f} | {result['ttft_s']:.1f} s"
            f" | {result['itl_p50_ms']:.1f} ms | {result['kl_mean']:.1e}"
            f" | {result['top1_agreement']:.1%} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--document", default="/usr/share/common-licenses/GPL-3")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--context", type=int, default=1024, help="tokens of the divergence")
    parser.add_argument("--print-only", action="store_true", help="leave the documents alone")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats is {options.repeats}, expected at least 1")
    try:
        text = table(measure(options), options)
        print(text)
        if not options.print_only:
            for name in ["README.md", "docs/benchmarks.md"]:
                write_between_marks(ROOT / name, text, BEGIN, END)
    except (BenchmarkError, OSError) as error:
        tell("bench", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
