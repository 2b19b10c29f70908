#!/usr/bin/env python3
"""octet's main job, shown: a real model reads a long document from a bfloat16 and an fp8 KV cache.

    tools/demo.py --octet build/octet --model models/SmolLM2-135M-Instruct.Q4_1.gguf

Runs `octet generate` over the document with each cache and `octet eval kl` between the two, prints
a table of what each cost, and writes the three reports of octet as one JSON object:
{"bfloat16": ..., "fp8": ..., "kl": ...}. Needs Python's standard library alone.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

CACHES = ["bfloat16", "fp8"]
PROGRESS_EVERY_S = 10.0


class DemoError(Exception):
    """What went wrong, as one sentence for the user."""


def say(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


def run_octet(octet, arguments, task):
    """Runs octet and returns its JSON report; tells every few seconds that it still runs, unless
    standard error is a terminal, where octet itself shows how far it is."""
    say(f"{task}: {octet} {' '.join(arguments)}")
    start = time.monotonic()
    done = threading.Event()

    def tell():
        while not done.wait(PROGRESS_EVERY_S):
            say(f"{task}: {time.monotonic() - start:.0f} s so far")

    teller = threading.Thread(target=tell, daemon=True)
    if not sys.stderr.isatty():
        teller.start()
    try:
        process = subprocess.run(
            [octet, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
    except OSError as error:
        raise DemoError(f"{octet} could not be started: {error.strerror}.") from None
    finally:
        done.set()
        if teller.is_alive():
            teller.join()
    if process.returncode != 0:
        raise DemoError(
            f"octet {arguments[0]} ended with status {process.returncode}; its message is above."
        )
    say(f"{task}: done in {time.monotonic() - start:.1f} s")
    try:
        report = json.loads(process.stdout)
    except ValueError as error:
        raise DemoError(f"octet {arguments[0]} --json printed no JSON object: {error}.") from None
    if not isinstance(report, dict):
        raise DemoError(f"octet {arguments[0]} --json printed no JSON object.")
    return report


def number(report, key):
    """The finite number at a dotted key of a report."""
    value = report
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise DemoError(f"octet's report has no number at '{key}'.")
    return value


def table_rows(reports):
    """Label and one cell per cache for each figure of the generate reports."""
    figures = [
        ("cache in use, MB", "kv_cache.bytes_used", lambda value: f"{value / 1e6:.1f}"),
        ("cache bytes per token", "kv_cache.bytes_per_token", lambda value: f"{value:,.0f}"),
        ("time to first token (TTFT), s", "timing.ttft_ms", lambda value: f"{value / 1e3:.1f}"),
        ("inter-token latency (ITL) p50, ms", "timing.itl_ms.p50", lambda value: f"{value:.1f}"),
        ("prefill, tokens/s", "timing.prefill_tokens_per_s", lambda value: f"{value:.1f}"),
        ("decode, tokens/s", "timing.decode_tokens_per_s", lambda value: f"{value:.1f}"),
    ]
    for label, key, show in figures:
        values = [number(reports[cache], key) for cache in CACHES]
        ratio = f"{values[1] / values[0]:.2f}" if values[0] > 0 else ""
        yield [label, *[show(value) for value in values], ratio]


def summary(reports, model, document):
    """The demo's result as text for a person."""
    first = reports[CACHES[0]]
    kl = reports["kl"]
    widths = [34, 12, 12, 10]
    lines = [
        f"{model.name} read {document} ({number(first, 'prompt_tokens'):,} tokens) and wrote"
        f" {number(first, 'completion_tokens')} more,",
        f"on {first.get('threads')} threads ({first.get('instruction_set')}):",
        "",
    ]
    rows = [["KV cache", *CACHES, "ratio"], *table_rows(reports)]
    for label, *cells in rows:
        line = label.ljust(widths[0])
        line += "".join(cell.rjust(width) for cell, width in zip(cells, widths[1:]))
        lines.append(line.rstrip())
    lines += [
        "",
        f"fp8 against bfloat16 over the first {number(kl, 'tokens'):,} tokens:"
        f" mean KL divergence {number(kl, 'mean'):.2e},"
        f" same top token {number(kl, 'top1_agreement'):.1%}",
    ]
    for cache in CACHES:
        text = reports[cache].get("text")
        if not isinstance(text, str):
            raise DemoError("octet's report has no string at 'text'.")
        lines += ["", f"{cache} wrote:", textwrap.indent(text.strip("\n"), "  | ", lambda _: True)]
    return "\n".join(lines)


def write_atomically(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def demonstrate(options):
    for path, what in [(options.model, "model"), (options.document, "document")]:
        if not path.is_file():
            raise DemoError(f"there is no {what} at {path}.")
    reports = {}
    for cache in CACHES:
        # Greedy, and on past an end of text: both caches then do the same amount of work.
        arguments = ["generate", "--model", str(options.model)]
        arguments += ["--prompt-file", str(options.document)]
        arguments += ["--max-tokens", str(options.max_tokens), "--temperature", "0"]
        arguments += ["--ignore-eos", "--kv-cache-dtype", cache, "--json"]
        reports[cache] = run_octet(options.octet, arguments, f"reading, cache in {cache}")
    arguments = ["eval", "kl", "--model", str(options.model), "--text", str(options.document)]
    arguments += ["--context", str(options.context), "--kv-cache-dtype", "fp8"]
    arguments += ["--reference", "bfloat16", "--json"]
    reports["kl"] = run_octet(options.octet, arguments, "comparing fp8 with bfloat16")
    text = summary(reports, options.model, options.document)
    write_atomically(options.output, json.dumps(reports, indent=1, ensure_ascii=False) + "\n")
    print(f"\n{text}\n", flush=True)
    say(f"the full reports are in {options.output}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Shows octet's main job on a real model.")
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument(
        "--model",
        type=pathlib.Path,
        default=pathlib.Path("models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    )
    parser.add_argument(
        "--document", type=pathlib.Path, default=pathlib.Path("/usr/share/common-licenses/GPL-3")
    )
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=1024, help="tokens that eval kl compares")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/demo.json"))
    try:
        demonstrate(parser.parse_args(arguments))
    except (DemoError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
