#!/usr/bin/env python3
"""octet's server and llama.cpp's under the same load, in turn, as a table.

    tools/compare_llama_cpp.sh --server models/SmolLM2-135M-Instruct.Q4_1.gguf --write docs/benchmarks.md

Each round starts every server afresh, one at a time, on the same model file and as many threads, and
puts the same load on it with `octet bench serve`: as many clients as --clients, each with a prompt of
--input-len random words and answers of --output-len tokens. Then a stream of short answers runs while
a prompt of --long-prompt tokens is read: how long do its tokens wait? Figures are medians of the
rounds. Of octet's servers it is told what all but the model costs: choosing rows, delivering and drawing
tokens (octet:step_seconds_total) as a share of the time in the model, and the processor time of the
threads that speak HTTP as a share of that of the engine's thread. Needs Python's standard library
alone; compare_llama_cpp.sh builds llama.cpp.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from benchmark_tables import BenchmarkError, run_json, tell, write_between_marks

LLAMA_SETTINGS = {
    "f16": ["-ctk", "f16", "-ctv", "f16", "-fa", "off"],
    "f16 FA": ["-ctk", "f16", "-ctv", "f16", "-fa", "on"],
    "q8_0 FA": ["-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"],
}
START_SECONDS = 120
BEGIN = "<!-- server figures: begin (tools/compare_llama_cpp.sh --server) -->"
END = "<!-- server figures: end -->"
# What comes before the table in a file that has none yet.
SECTION = """
## Serving: octet and llama.cpp under the same load

Every server starts afresh, one at a time. Gaps are those between the tokens of a stream: alone, while
a long prompt is read beside it, and the longest of these.

"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class Server:
    """A server on a free port of the loopback, ready to answer; ends with the `with` block."""

    def __init__(self, command):
        self.port = free_port()
        self.log = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen([*command, "--port", str(self.port)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + START_SECONDS
        while self._health() != 200:
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                self.log.seek(0)
                tail = self.log.read().strip().splitlines()[-1:] or ["no message"]
                raise BenchmarkError(f"{' '.join(command)} does not serve: {tail[0]}")
            time.sleep(0.1)

    def _health(self):
        try:
            return self.get("/health")[0]
        except (OSError, http.client.HTTPException):
            return 0

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def read_stream(port, prompt, tokens, on_token):
    """Asks for a completion and calls on_token(seconds) for each of its tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"prompt": prompt, "max_tokens": tokens, "stream": True, "temperature": 0,
            "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise BenchmarkError(f"a stream got status {response.status}: {response.read()[:300]}")
    for line in response:
        if line.startswith(b"data: {") and json.loads(line[6:]).get("choices"):
            on_token(time.monotonic())
    connection.close()


def measure_stall(options, server):
    """Gaps between the tokens of a stream in ms: alone, and while a long prompt is read."""
    draw = random.Random(7)
    long_prompt = [draw.randrange(1000, 20000) for _ in range(options.long_prompt)]
    times, done = [], threading.Event()

    def follow():
        try:
            read_stream(server.port, "Count from one to a thousand: one, two,",
                        options.long_prompt // 32, times.append)
        finally:
            done.set()

    stream = threading.Thread(target=follow)
    stream.start()
    while len(times) < 20 and not done.is_set():
        time.sleep(0.01)
    first_tokens = []
    start = time.monotonic()
    read_stream(server.port, long_prompt, 2, first_tokens.append)
    stream.join()
    if len(times) < 20 or not first_tokens:
        raise BenchmarkError("a stream ended early")
    gaps = list(zip(times, times[1:]))
    alone = [b - a for a, b in gaps if b < start]
    beside = [b - a for a, b in gaps if b > start and a < first_tokens[0]]
    return {"gap_alone_ms": 1000 * statistics.median(alone),
            "gap_beside_ms": 1000 * statistics.median(beside),
            "longest_gap_ms": 1000 * max(beside),
            "long_prompt_s": first_tokens[0] - start}


def thread_seconds(process):
    """Processor seconds of the process's threads by name; the first is called `main`."""
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            name, fields = (task / "stat").read_text().rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has just ended
        name = "main" if task.name == str(process.pid) else name.split("(", 1)[1]
        used = fields.split()
        seconds[name] = seconds.get(name, 0) + (int(used[11]) + int(used[12])) / ticks
    return seconds


def step_seconds(server):
    """octet:step_seconds_total by phase."""
    phases = {}
    for line in server.get("/metrics")[1].splitlines():
        if line.startswith("octet:step_seconds_total{"):
            phases[line.split('phase="', 1)[1].split('"', 1)[0]] = float(line.rsplit(" ", 1)[1])
    if not phases:
        raise BenchmarkError("/metrics holds no octet:step_seconds_total")
    return phases


def load(options, server, round_number):
    """The report of `octet bench serve`."""
    command = [options.octet, "bench", "serve", "--port", str(server.port), "--num-prompts",
               str(options.prompts), "--max-concurrency", str(options.clients),
               "--random-input-len", str(options.input_len), "--random-output-len",
               str(options.output_len), "--ignore-eos", "--seed", str(round_number), "--json"]
    report = run_json(command, show_errors=False)
    if report["failed"] or report["completed"] != options.prompts:
        raise BenchmarkError(f"{report['failed']} of {options.prompts} requests failed")
    return report


def run(options, name, round_number):
    """The figures of one server in one round."""
    with Server(command_of(options, name, options.clients,
                           options.input_len + options.output_len + 64)) as server:
        before = thread_seconds(server.process)
        report = load(options, server, round_number)
        figures = {key: report[key] for key in (
            "output_throughput", "total_token_throughput", "median_ttft_ms", "median_itl_ms")}
        if name.startswith("octet"):
            after = thread_seconds(server.process)
            if "octet engine" not in after:
                raise BenchmarkError(f"{options.octet} has no thread called octet engine")
            used = {thread: after[thread] - before.get(thread, 0) for thread in after}
            phases = step_seconds(server)
            model = phases["forward_prefill"] + phases["forward_decode"]
            figures["scheduler_share"] = (phases["schedule"] + phases["deliver"]) / model
            # Of the engine's thread, which takes part in all of a step: the machine's other work
            # must not make the share look small.
            figures["http_share"] = (
                (used["main"] + used.get("octet requests", 0)) / max(used["octet engine"], 1e-9))
            figures["sampler_share"] = phases["sample"] / model
    if options.long_prompt:
        with Server(command_of(options, name, 2, options.long_prompt + 256)) as server:
            figures.update(measure_stall(options, server))
    return figures


def command_of(options, name, clients, length):
    """What starts a server for so many clients, each with texts of `length` tokens."""
    program, cache = name.split(" ", 1)
    if program == "octet":
        cache, _, arithmetic = cache.partition(" ")
        return [options.octet, "serve", "--model", str(options.model), "--threads",
                str(options.threads), "--kv-cache-dtype", cache, "--dtype", arithmetic or "auto"]
    return [options.llama_server, "-m", str(options.model), "-t", str(options.threads), "-c",
            str(clients * length), "--parallel", str(clients), "--host", "127.0.0.1",
            *LLAMA_SETTINGS[cache]]


def measure(options):
    """{server: {figure: median}}; "load_average" is the machine's when the server started."""
    names = [f"llama.cpp {cache}" for cache in options.llama_caches]
    names += [f"octet {cache}" for cache in options.octet_caches.split(",")]
    runs = {}
    for round_number in range(1, options.rounds + 1):
        for name in names:
            load_average = os.getloadavg()[0]
            tell("compare", f"round {round_number} of {options.rounds}: {name}, load {load_average:.1f}")
            figures = run(options, name, round_number)
            figures["load_average"] = load_average
            for figure, value in figures.items():
                runs.setdefault(name, {}).setdefault(figure, []).append(value)
    return {name: {figure: statistics.median(values) for figure, values in figures.items()}
            for name, figures in runs.items()}


def table(options, medians):
    fastest = max((figures["output_throughput"] for name, figures in medians.items()
                   if name.startswith("llama.cpp")), default=None)
    loads = ", ".join(f"{figures['load_average']:.1f}" for figures in medians.values())
    lines = [
        f"{options.model.name}, {options.threads} threads, {datetime.date.today().isoformat()}: "
        f"{options.clients} clients, {options.prompts} prompts of {options.input_len:,} tokens, "
        f"answers of {options.output_len}, medians of {options.rounds} interleaved rounds"
        + ("; x: to llama.cpp's fastest." if fastest else ".")
        + f" Load average of the machine before each: {loads}.", ""]
    head = ["server, cache", "output tokens/s", "TTFT p50", "ITL p50"]
    if options.long_prompt:
        head += ["gap of a stream", f"beside {options.long_prompt:,} tokens", "longest"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, figures in medians.items():
        rate = figures["output_throughput"]
        ratio = f" ({rate / fastest:.2f} x)" if fastest and name.startswith("octet") else ""
        cells = [name, f"{rate:.1f}{ratio}", f"{figures['median_ttft_ms'] / 1000:.1f} s",
                 f"{figures['median_itl_ms']:.0f} ms"]
        if options.long_prompt:
            cells += [f"{figures[key]:.0f} ms" for key in
                      ("gap_alone_ms", "gap_beside_ms", "longest_gap_ms")]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, figures in medians.items():
        if "http_share" in figures:
            lines.append(
                f"{name}: beside the model's time, choosing rows and delivering tokens take "
                f"{100 * figures['scheduler_share']:.2f} %, HTTP "
                f"{100 * figures['http_share']:.2f} % (of processor time), drawing "
                f"tokens {100 * figures['sampler_share']:.2f} %.")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--llama-server")
    parser.add_argument("--octet", default="build/octet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prompts", type=int, help="requests in all (default: one per client)")
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--long-prompt", type=int, default=7000, metavar="TOKENS",
                        help="of the prompt that a stream runs beside (0: leave that out)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--llama-caches", default="f16,q8_0 FA", help="some of "
                        + ", ".join(LLAMA_SETTINGS) + "; none: octet alone")
    parser.add_argument("--octet-caches", default="bfloat16,fp8,fp8 int8",
                        help="each CACHE or CACHE ARITHMETIC, as --kv-cache-dtype and --dtype say")
    parser.add_argument("--json", type=pathlib.Path, help="write the medians here as well")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE.md",
                        help="put the table between the marks of this file, or at its end")
    options = parser.parse_args()
    options.prompts = options.prompts or options.clients
    for name in ("rounds", "clients", "prompts", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}, expected at least 1")
    options.llama_caches = [] if options.llama_caches == "none" else options.llama_caches.split(",")
    if options.llama_caches and not options.llama_server:
        parser.error("--llama-server is missing (tools/compare_llama_cpp.sh --server builds it)")
    for name in options.llama_caches:
        if name not in LLAMA_SETTINGS:
            parser.error(f"--llama-caches {name}: expected some of {', '.join(LLAMA_SETTINGS)}")
    return options


def main():
    options = parse_arguments()
    try:
        medians = measure(options)
        text = table(options, medians)
        print(text)
        if options.json:
            options.json.write_text(json.dumps(medians, indent=1) + "\n", encoding="utf-8")
        if options.write:
            write_between_marks(options.write, text, BEGIN, END, SECTION)
    except (BenchmarkError, OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        tell("compare", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
