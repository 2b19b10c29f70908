#!/usr/bin/env python3
"""How much memory octet takes on the CPU, beside what it may take.

    tools/bench_memory.py --octet build/octet models/*.gguf [--json] [--write docs/benchmarks.md]
    tools/bench_memory.py --results FILE... [--write docs/benchmarks.md]

Runs `octet generate` and `octet serve` with each model and arithmetic, once with a short prompt and once
with a document, and reads what the system counts: the most memory that was resident (VmHWM), and the
most of it that is no mapped file (RssAnon: all but the weights, which stay in the file's pages). The
bound is 1.3 times the file, the cache that was in use, and 200 MB; where it is broken the exit status
is 1. Prints a Markdown table, or with --json an object a line, of which --results makes the table later;
--write puts it between the markers of a document. Needs Linux and Python's standard library alone.
"""

import argparse
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from benchmark_tables import BenchmarkError, tell, write_between_marks

FILE_SHARE = 1.3
FIXED_BYTES = 200_000_000
START_SECONDS = 120
ANSWER_SECONDS = 1800
SHORT_PROMPT = "A lighthouse is"
ANSWER_TOKENS = 32
BEGIN = "<!-- memory figures: begin (tools/bench_memory.py) -->"
END = "<!-- memory figures: end -->"


def status_of(pid):
    """The memory counts of a process in bytes; empty once it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name: int(kilobytes) * 1024
            for name, kilobytes in re.findall(r"^(VmHWM|RssAnon):\s*(\d+) kB$", text, re.MULTILINE)}


def last_line(log):
    log.seek(0)
    return (log.read().strip().splitlines() or ["no message"])[-1]


def run_generate(octet, flags, prompt_file):
    """Peak, anonymous peak, tokens of the prompt, bytes of the cache."""
    command = [octet, "generate", *flags, "--prompt-file", str(prompt_file), "--max-tokens",
               str(ANSWER_TOKENS), "--ignore-eos", "--json"]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)
        anonymous = 0
        while True:
            # wait4 alone tells the peak of a process that has ended.
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid != 0:
                break
            anonymous = max(anonymous, status_of(process.pid).get("RssAnon", 0))
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise BenchmarkError(f"{' '.join(command)}: {last_line(log)}")
        output.seek(0)
        report = json.load(output)
    return (usage.ru_maxrss * 1024, anonymous, report["prompt_tokens"],
            report["kv_cache"]["bytes_used"])


def ask(port, method, path, body=None):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port,
                                                       timeout=ANSWER_SECONDS)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        if response.status != 200:
            raise BenchmarkError(f"octet serve answered {path} with status {response.status}: {text[:300]}")
        return text


def run_serve(octet, flags, prompt_file):
    """As run_generate; the cache is what requests hold and what is kept for later prompts."""
    command = [octet, "serve", *flags, "--port", "0"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=log)
        try:
            end = time.monotonic() + START_SECONDS
            while True:
                log.seek(0)
                listening = re.search(r"listening on http://[^ ]*:(\d+)/", log.read())
                if listening:
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise BenchmarkError(f"{' '.join(command)} does not serve: {last_line(log)}")
                time.sleep(0.05)
            port = int(listening[1])
            body = {"prompt": prompt_file.read_text(encoding="utf-8"), "temperature": 0,
                    "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
            answer = json.loads(ask(port, "POST", "/v1/completions", json.dumps(body)))
            metrics = ask(port, "GET", "/metrics")
            memory = status_of(process.pid)
        finally:
            process.terminate()
            process.wait(60)
    cache = re.findall(r"^octet:kv_cache_bytes\{.* ([0-9.e+]+)$", metrics, re.MULTILINE)
    if not cache or "VmHWM" not in memory:
        raise BenchmarkError(f"{' '.join(command)} ended early or tells no octet:kv_cache_bytes")
    return (memory["VmHWM"], memory["RssAnon"], answer["usage"]["prompt_tokens"],
            int(sum(float(value) for value in cache)))


COMMANDS = {"generate": run_generate, "serve": run_serve}


def measure(options, model, dtype, command, prompt_file):
    flags = ["--model", str(model), "--dtype", dtype, "--device", "cpu", "--kv-cache-dtype",
             options.kv_cache_dtype]
    tell("bench_memory", f"{model.name}, {command}, --dtype {dtype}, {prompt_file.name}")
    peak, anonymous, tokens, cache = COMMANDS[command](options.octet, flags, prompt_file)
    file_bytes = model.stat().st_size
    return {"model": model.name, "command": command, "dtype": dtype,
            "kv_cache_dtype": options.kv_cache_dtype, "prompt_tokens": tokens,
            "file_bytes": file_bytes, "cache_bytes": cache, "peak_bytes": peak,
            "anonymous_bytes": anonymous,
            "bound_bytes": int(FILE_SHARE * file_bytes) + cache + FIXED_BYTES,
            "date": datetime.date.today().isoformat()}


def holds(result):
    return result["peak_bytes"] <= result["bound_bytes"]


def table(results):
    lines = [
        f"{results[0]['date']}, `tools/bench_memory.py models/*.gguf"
        f" --kv-cache-dtype {results[0]['kv_cache_dtype']}`, MB:",
        "",
        "| model, command | --dtype | prompt, tokens | file | cache | peak | of it no mapped file"
        " | bound | peak of bound |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        size = {name: f"{result[name + '_bytes'] / 1e6:.0f}"
                for name in ("file", "cache", "peak", "anonymous", "bound")}
        lines.append(
            f"| {result['model'].removesuffix('.gguf')}, {result['command']} | {result['dtype']}"
            f" | {result['prompt_tokens']:,} | {size['file']} | {size['cache']} | {size['peak']}"
            f" | {size['anonymous']} | {size['bound']}"
            f" | {result['peak_bytes'] / result['bound_bytes']:.0%} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", type=pathlib.Path, nargs="*")
    parser.add_argument("--results", type=pathlib.Path, nargs="+", metavar="FILE", default=[],
                        help="what earlier runs printed with --json")
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument("--document", type=pathlib.Path,
                        default=pathlib.Path("/usr/share/common-licenses/GPL-3"),
                        help="the long prompt (7,600 tokens)")
    parser.add_argument("--contexts", nargs="+", choices=["short", "long"], default=["short", "long"])
    parser.add_argument("--commands", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--dtypes", nargs="+", default=["auto", "int8"])
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--json", action="store_true", help="print an object a line")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE",
                        help="put the table between the markers of this document")
    options = parser.parse_args()
    if bool(options.models) == bool(options.results):
        parser.error("expected models or --results, and not both")
    results = []
    try:
        for file in options.results:
            results += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        with tempfile.TemporaryDirectory() as folder:
            short = pathlib.Path(folder) / "short"
            short.write_text(SHORT_PROMPT, encoding="utf-8")
            prompts = {"short": short, "long": options.document}
            for model in options.models:
                for dtype in options.dtypes:
                    for context in options.contexts:
                        for command in options.commands:
                            result = measure(options, model, dtype, command, prompts[context])
                            results.append(result)
                            if options.json:
                                print(json.dumps(result), flush=True)
        if not options.json:
            print(table(results))
        if options.write:
            write_between_marks(options.write, table(results), BEGIN, END)
    except (BenchmarkError, OSError) as error:
        tell("bench_memory", error)
        return 1
    broken = [result for result in results if not holds(result)]
    for result in broken:
        tell("bench_memory",
             f"{result['model']}, {result['command']}, --dtype {result['dtype']},"
             f" {result['prompt_tokens']} tokens: {result['peak_bytes'] / 1e6:.0f} MB were resident,"
             f" {result['bound_bytes'] / 1e6:.0f} MB are the bound")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
