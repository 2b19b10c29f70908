"""tools/compare_llama_cpp_server.py against programs that serve as llama.cpp and octet do."""

import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Streams a token every 2 ms; a prompt of token ids takes 0.3 s, in which streams wait for 0.1 s once.
FAKE = """\
    #!{python}
    import http.server, json, pathlib, sys, threading, time
    arguments = sys.argv[1:]
    calls = pathlib.Path({calls!r})
    with calls.open("a") as file:
        file.write(json.dumps(arguments) + "\\n")
    value = lambda flag: arguments[arguments.index(flag) + 1]
    if arguments[:2] == ["bench", "serve"]:
        count = int(value("--num-prompts"))
        rate = {rate} + int(value("--seed"))
        print(json.dumps({{"completed": count, "failed": 0, "output_throughput": rate,
                          "total_token_throughput": 9 * rate, "median_ttft_ms": 1500.0,
                          "median_itl_ms": 12.0}}))
        sys.exit()
    held = threading.Event()

    def work():
        pathlib.Path(f"/proc/self/task/{{threading.get_native_id()}}/comm").write_text("octet engine")
        while True:
            time.sleep(1 - sum(range(1_000_000)) * 0)

    threading.Thread(target=work, daemon=True).start()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            text = "ok"
            if self.path == "/metrics":
                text = "".join('octet:step_seconds_total{{phase="%s"}} %s\\n' % pair for pair in
                               (("schedule", 0.1), ("deliver", 0.1), ("sample", 0.5),
                                ("forward_prefill", 15.0), ("forward_decode", 5.0)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            if isinstance(body["prompt"], list):
                held.set()
                time.sleep(0.3)
            for _ in range(body["max_tokens"]):
                waits = held.is_set() and isinstance(body["prompt"], str)
                time.sleep(0.1 if waits else 0.002)
                if waits:
                    held.clear()
                self.wfile.write(b'data: {{"choices": [{{"text": "a"}}]}}\\n\\n')

    http.server.ThreadingHTTPServer(("127.0.0.1", int(value("--port"))), Handler).serve_forever()
"""


class CompareServerTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.llama = self.program("llama-server", 20)
        self.octet = self.program("octet", 60)

    def program(self, name, rate):
        path = self.folder / name
        path.write_text(textwrap.dedent(FAKE).format(
            python=sys.executable, calls=str(self.calls), rate=rate))
        path.chmod(0o755)
        return path

    def compare(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", ROOT / "tools/compare_llama_cpp_server.py", "some.gguf",
             "--llama-server", self.llama, "--octet", self.octet, *arguments],
            capture_output=True, text=True, check=False)

    def test_the_table_is_written_between_its_marks(self):
        page = self.folder / "page.md"
        page.write_text(
            "before\n<!-- server figures: begin (tools/compare_llama_cpp.sh --server) -->\nold\n"
            "<!-- server figures: end -->\nafter\n")
        done = self.compare("--rounds", "3", "--long-prompt", "9600", "--llama-caches", "f16",
                            "--octet-caches", "fp8", "--write", page,
                            "--json", self.folder / "out.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        text = page.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)
        self.assertNotIn("old", text)
        # Every load runs through octet's generator: seeds 1, 2 and 3 on 60.
        self.assertRegex(text, r"\| octet fp8 \| 62\.0 \(1\.00 x\) \| 1\.5 s \| 12 ms \|")
        self.assertIn("choosing rows and delivering tokens take 1.00 %", text)
        self.assertRegex(text, r"HTTP \d+\.\d\d % \(of processor time\), drawing tokens 2.50 %")
        figures = json.loads((self.folder / "out.json").read_text())["octet fp8"]
        self.assertGreater(figures["longest_gap_ms"], 95)
        self.assertLess(figures["gap_alone_ms"], 50)
        self.assertGreater(figures["long_prompt_s"], 0.29)
        calls = [json.loads(line) for line in self.calls.read_text().splitlines()]
        # Two servers, each for the load and for the stream, and two loads, in three rounds.
        self.assertEqual(len(calls), 3 * 6)

    def test_a_server_that_does_not_start_is_named(self):
        self.llama.write_text("#!/bin/sh\necho no such model >&2\nexit 2\n")
        done = self.compare("--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not serve: no such model", done.stderr)

    def test_octet_alone(self):
        page = self.folder / "page.md"
        page.write_text("# Benchmarks\n")
        done = self.compare("--rounds", "1", "--long-prompt", "0", "--llama-caches", "none",
                            "--octet-caches", "fp8", "--write", page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(page.read_text(), r"(?s)^# Benchmarks\n\n## Serving.*\| octet fp8 \| 61.0")
        self.assertIn("| octet fp8 | 61.0 | 1.5 s | 12 ms |", done.stdout)
        self.assertNotIn("llama", done.stdout)

    def test_unknown_settings_are_refused(self):
        self.assertEqual(self.compare("--llama-caches", "q2").returncode, 2)
        self.assertEqual(self.compare("--rounds", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
