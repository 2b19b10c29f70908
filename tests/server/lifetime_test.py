"""`octet serve` as a process: how it starts, what its log says, and how signals end it."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import threading
import time
import unittest

from octet_server import GEMMA3, OCTET, SMALL, SMALL_WIDE, SMOLLM2, OctetServer


def ask(server, method, path, body=None):
    """Status and text of an answer, or of a whole stream."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as to:
        to.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        response = to.getresponse()
        return response.status, response.read().decode()


def complete(server, **fields):
    status, text = ask(server, "POST", "/v1/completions", fields)
    assert status == 200, text
    return json.loads(text)


def metric(server, name):
    """The sum of a metric's values."""
    lines = ask(server, "GET", "/metrics")[1].splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{")]
    assert values, f"no metric {name}"
    return sum(values)


def unfinished(server):
    return metric(server, "vllm:num_requests_running") + metric(server, "vllm:num_requests_waiting")


STREAM = {"prompt": "he", "stream": True, "max_tokens": 400, "ignore_eos": True}


class Lifetime(unittest.TestCase):
    def test_metrics_count_what_was_done(self):
        with OctetServer(SMALL) as server:
            answer = complete(server, prompt="he he", max_tokens=7, ignore_eos=True)
            self.assertEqual(answer["usage"]["completion_tokens"], 7)
            prompt_tokens = answer["usage"]["prompt_tokens"]
            self.assertEqual(metric(server, "vllm:generation_tokens_total"), 7)
            self.assertEqual(metric(server, "vllm:prompt_tokens_total"), prompt_tokens)
            self.assertEqual(metric(server, "vllm:time_to_first_token_seconds_count"), 1)
            self.assertEqual(metric(server, "vllm:inter_token_latency_seconds_count"), 6)
            self.assertEqual(metric(server, "vllm:e2e_request_latency_seconds_count"), 1)
            self.assertEqual(metric(server, "vllm:num_requests_running"), 0)
            self.assertEqual(metric(server, "vllm:kv_cache_usage_perc"), 0)
            self.assertGreater(metric(server, "octet:step_seconds_total"), 0)
            text = ask(server, "GET", "/metrics")[1]
            self.assertIn('block_size="64"', text)
            self.assertIn('cache_dtype="', text)
            self.assertIn('le="0.006"', text)

    def test_the_log_says_what_serves(self):
        with OctetServer(SMALL_WIDE, "--kv-cache-dtype", "int8:fp8") as server:
            log = server.log()
            self.assertRegex(log, r"device (cpu|cuda), ")
            self.assertIn("int8:fp8 x 2", log)
            self.assertIn("scales dynamic", log)
            self.assertRegex(log, r"KV cache size: \d+ tokens, Maximum concurrency for 512 tokens")

    def test_the_log_says_what_each_layer_is_cached_in_and_why(self):
        flags = ["--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", "sliding_window 5"]
        with OctetServer(GEMMA3, *flags, "--max-model-len", "256") as server:
            lines = [line.split("KV cache of ", 1)[1] for line in server.log().splitlines()
                     if "KV cache of " in line]
        skipped = "(--kv-cache-dtype-skip-layers names them)"
        self.assertEqual(lines, [
            f"layers 0 to 4, 6 to 10, 12 to 16: keys bfloat16, values bfloat16, window 512 {skipped}",
            f"layer 5: keys bfloat16, values bfloat16 {skipped}",
            "layers 11, 17: keys fp8 (dynamic), values fp8 (dynamic), key means (as "
            "--kv-cache-dtype says; key means of 500 built-in tokens)",
        ])
        with OctetServer(SMALL) as server:
            self.assertIn("KV cache of layers 0 to 2: keys bfloat16, values bfloat16 (auto: the "
                          "checkpoint names no cache format, so bfloat16)", server.log())

    def test_aborted_streams_leave_no_page_behind(self):
        with OctetServer(SMALL, "--max-num-seqs", "4") as server:
            body = json.dumps({**STREAM, "prompt": "he " * 60}).encode()
            head = (
                "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            ).encode()
            for index in range(300):
                with socket.create_connection(("127.0.0.1", server.port)) as client:
                    client.sendall(head + body)
                    if index % 3 == 0:
                        client.recv(64)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if unfinished(server) == 0:
                    break
                time.sleep(0.05)
            self.assertEqual(metric(server, "vllm:num_requests_running"), 0)
            self.assertEqual(metric(server, "vllm:kv_cache_usage_perc"), 0)
            answer = complete(server, prompt="he", max_tokens=3, ignore_eos=True)
            self.assertEqual(answer["usage"]["completion_tokens"], 3)

    def test_sigterm_with_a_hundred_open_streams(self):
        # More than can be answered in the grace period, whatever the machine.
        with OctetServer(SMOLLM2, "--grace-period", "3", "--max-num-seqs", "16") as server:
            lasts = []

            def read():
                text = ask(server, "POST", "/v1/completions", {**STREAM, "max_tokens": 4000})[1]
                lasts.append(text.rstrip().rsplit("\n", 1)[-1])

            threads = [threading.Thread(target=read) for _ in range(100)]
            for thread in threads:
                thread.start()
            end = time.monotonic() + 60
            while unfinished(server) < 100:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.1)
            start = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(30), 0, server.log())
            # The period, a step, and what clients get to take their last bytes.
            self.assertLess(time.monotonic() - start, 15)
            for thread in threads:
                thread.join()
            # Whole to the last, and told why: to read a stream that is cut short throws.
            self.assertEqual(len(lasts), 100)
            for last in lasts:
                self.assertIn("the server is shutting down", last)

    def test_a_second_signal_ends_at_once(self):
        with OctetServer(SMOLLM2, "--grace-period", "300") as server:
            thread = threading.Thread(
                target=lambda: self.assertRaises(
                    (http.client.HTTPException, OSError),
                    lambda: ask(server, "POST", "/v1/completions", {**STREAM, "max_tokens": 8000}),
                )
            )
            thread.start()
            while metric(server, "vllm:num_requests_running") == 0:
                time.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            self.assertIsNone(server.process.poll())
            self.assertEqual(ask(server, "GET", "/health")[0], 503)
            start = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(10), 128 + signal.SIGTERM)
            self.assertLess(time.monotonic() - start, 5)
            thread.join()

    def test_bench_serve_measures_a_server(self):
        with OctetServer(SMALL) as server:
            result = subprocess.run(
                [str(OCTET), "bench", "serve", "--port", str(server.port), "--num-prompts", "6",
                 "--max-concurrency", "2", "--random-input-len", "40", "--random-output-len", "9",
                 "--ignore-eos", "--num-warmups", "1", "--json"],
                capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual((report["completed"], report["failed"]), (6, 0))
            self.assertEqual(report["total_output_tokens"], 6 * 9)
            self.assertEqual(report["max_concurrent_requests"], 2)
            self.assertEqual(metric(server, "vllm:generation_tokens_total"), 7 * 9)
            self.assertGreater(report["mean_ttft_ms"], 0)

    def test_bench_serve_takes_the_time_of_each_token(self):
        # Were the times those of the answer's end, there would be no gaps and the first token late.
        with OctetServer(SMOLLM2) as server:
            result = subprocess.run(
                [str(OCTET), "bench", "serve", "--port", str(server.port), "--num-prompts", "1",
                 "--random-input-len", "20", "--random-output-len", "20", "--ignore-eos", "--json"],
                capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
            )
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        after_first_ms = 1000 * report["duration"] - report["mean_ttft_ms"]
        self.assertGreater(19 * report["median_itl_ms"], 0.5 * after_first_ms)
        self.assertGreater(19 * report["mean_tpot_ms"], 0.5 * after_first_ms)
        self.assertLess(report["mean_ttft_ms"], 900 * report["duration"])

    def test_wrong_flags_are_told_in_one_line(self):
        for flags in (
            ["--port", "70000"],
            ["--host", "no.such.host.invalid"],
            ["--max-model-len", "100000"],
            ["--log-level", "loud"],
            ["--api-key", ""],
            ["--grace-period", "-1"],
        ):
            result = subprocess.run(
                [str(OCTET), "serve", "--model", str(SMALL), "--port", "0", *flags],
                capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
            )
            self.assertEqual(result.returncode, 2, (flags, result.stderr))
            last = result.stderr.strip().splitlines()[-1]
            self.assertIn("octet: ", last)
            self.assertIn(flags[0].lstrip("-"), last)

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            result = subprocess.run(
                [str(OCTET), "serve", "--model", str(SMALL), "--port", str(port)],
                capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
            )
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"port {port}", result.stderr)


if __name__ == "__main__":
    unittest.main()
