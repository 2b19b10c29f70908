"""A server's memory stays within what was configured, however many prompts come.

By day 400 prompts, with OCTET_NIGHT=1 in the environment 10,000; OCTET_MEMORY_MODEL names another
model than the small one of the tests. Every prompt is another text, so that the prefix cache is full
soon and gives up pages from then on.
"""

import contextlib
import http.client
import json
import os
import pathlib
import random
import threading
import unittest

from octet_server import SMALL, OctetServer

NIGHT = "OCTET_NIGHT" in os.environ
PROMPTS = 10_000 if NIGHT else 400
MODEL = pathlib.Path(os.environ.get("OCTET_MEMORY_MODEL", SMALL))
CLIENTS = 4
PAGES = 32
MB = 1 << 20


def resident_bytes(process):
    fields = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE")


def read_metric(server, name):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as to:
        to.request("GET", "/metrics")
        lines = to.getresponse().read().decode().splitlines()
    values = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{")]
    assert values, f"no metric {name}"
    return sum(values)


class Memory(unittest.TestCase):
    def ask_all(self, server, numbers):
        """Asks from one connection; the numbers are seeds of the prompts."""
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        for number in numbers:
            draw = random.Random(number)
            prompt = [draw.randrange(200) for _ in range(65 + number % 64)]
            body = json.dumps({"prompt": prompt, "max_tokens": 2, "ignore_eos": True})
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            self.answers.append((response.status, answer.get("usage", {}).get("completion_tokens")))
        connection.close()

    def run_prompts(self, server, first, last):
        threads = [
            threading.Thread(target=self.ask_all, args=(server, range(first + i, last, CLIENTS)))
            for i in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def test_memory_stays_within_the_configured_sum(self):
        self.answers = []
        flags = ["--num-gpu-blocks-override", str(PAGES), "--max-model-len", "256",
                 "--max-num-seqs", str(CLIENTS), "--kv-cache-dtype", "fp8"]
        with OctetServer(MODEL, *flags) as server:
            started = resident_bytes(server.process)
            self.run_prompts(server, 0, PROMPTS // 4)
            settled = resident_bytes(server.process)
            self.run_prompts(server, PROMPTS // 4, PROMPTS)
            ended = resident_bytes(server.process)
            arena = read_metric(server, "octet:kv_cache_arena_bytes")
            cached = read_metric(server, "octet:kv_cache_bytes")
            figures = (
                f"{PROMPTS} prompts: {started / MB:.1f} MB at the start, {settled / MB:.1f} MB after "
                f"a quarter, {ended / MB:.1f} MB at the end; the cache's arena has {arena / MB:.1f} MB")
            print(figures)
            self.assertEqual(self.answers.count((200, 2)), PROMPTS)
            self.assertEqual(read_metric(server, "vllm:kv_cache_usage_perc"), 0)
            # The prefix cache is full: pages were given up for new ones.
            self.assertLessEqual(cached, arena)
            self.assertGreater(cached, 0.9 * arena)
            slack = 1024 if os.environ.get("OCTET_SANITIZE") else 8
            self.assertLess(ended - settled, slack * MB, figures)
            # Beside the model and the cache: activations, requests, the index of what is cached.
            self.assertLess(ended - started, arena + 4 * slack * MB, figures)


if __name__ == "__main__":
    unittest.main()
