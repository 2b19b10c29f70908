"""tools/bench_memory.py, and with it that octet keeps no second copy of a model's weights."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTET = pathlib.Path(os.environ.get("OCTET_BINARY", ROOT / "build" / "octet"))
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = ROOT / "models" / "gemma-3-270m.Q4_K_M.gguf"
TOOL = ROOT / "tools" / "bench_memory.py"
MB = 1_000_000

# Keeps {megabytes} MB while it answers.
FAKE_OCTET = """\
    #!{python}
    import json, sys, time
    kept = b"x" * ({megabytes} * 1_000_000)
    time.sleep(0.2)
    print(json.dumps({{"prompt_tokens": 3, "kv_cache": {{"bytes_used": 5_000_000}}}}))
    if not kept:
        print("no model", file=sys.stderr)
        sys.exit(2)
"""


class BenchMemoryTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = self.folder / "tiny.gguf"
        self.model.write_bytes(b"x" * 10 * MB)

    def run_tool(self, octet, model, *arguments):
        command = [sys.executable, "-B", str(TOOL), "--octet", str(octet), str(model),
                   "--contexts", "short", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    def fake(self, megabytes):
        path = self.folder / f"octet_{megabytes}"
        path.write_text(textwrap.dedent(FAKE_OCTET).format(python=sys.executable, megabytes=megabytes))
        path.chmod(0o755)
        return path

    def test_octet_keeps_its_bound_and_no_copy_of_the_weights(self):
        done = self.run_tool(OCTET, MODEL, "--json")
        results = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(r["command"], r["dtype"]) for r in results],
                         [("generate", "auto"), ("serve", "auto"), ("generate", "int8"),
                          ("serve", "int8")], done.stderr)
        # What sanitizers keep beside each byte.
        slack = 4000 * MB if "OCTET_SANITIZE" in os.environ else 0
        file_bytes = MODEL.stat().st_size
        for result in results:
            self.assertEqual(result["file_bytes"], file_bytes)
            self.assertEqual(result["bound_bytes"],
                             int(1.3 * file_bytes) + result["cache_bytes"] + 200 * MB)
            self.assertLessEqual(result["peak_bytes"], result["bound_bytes"] + slack, result)
            # All weights were read; it takes 10 to 12 MB beside them and the cache, where a copy of
            # the weights would be 97 MB.
            self.assertGreater(result["peak_bytes"], 0.9 * file_bytes)
            self.assertGreater(result["anonymous_bytes"], 1 * MB)
            self.assertLess(result["anonymous_bytes"] - result["cache_bytes"], 60 * MB + slack, result)
        if slack == 0:
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_long_context_that_nobody_uses_takes_nothing(self):
        # 32,768 positions, whose cosines and sines would be 67 MB; the vocabulary of 262,144 takes 50.
        done = self.run_tool(OCTET, GEMMA, "--json", "--commands", "serve", "--dtypes", "auto")
        slack = 4000 * MB if "OCTET_SANITIZE" in os.environ else 0
        result = json.loads(done.stdout)
        self.assertLess(result["anonymous_bytes"] - result["cache_bytes"], 90 * MB + slack, result)

    def test_more_than_the_bound_is_told(self):
        # 1.3 x 10 MB, 5 MB of cache and 200 MB.
        done = self.run_tool(self.fake(300), self.model, "--commands", "generate", "--dtypes", "auto")
        self.assertEqual(done.returncode, 1)
        self.assertIn("tiny.gguf, generate, --dtype auto, 3 tokens: 3", done.stderr)
        self.assertIn("218 MB are the bound", done.stderr)
        self.assertRegex(done.stdout, r"tiny, generate \| auto \| 3 \| 10 \| 5 \| 3\d\d \| 3\d\d \| 218 \| 1\d\d%")
        done = self.run_tool(self.fake(100), self.model, "--commands", "generate", "--dtypes", "auto")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_run_that_fails_is_told_in_its_own_words(self):
        done = self.run_tool(self.fake(0), self.model, "--commands", "generate")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        self.assertTrue(done.stderr.splitlines()[-1].endswith("no model"), done.stderr)
        done = self.run_tool(OCTET, self.model, "--commands", "serve", "--dtypes", "auto")
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not serve: octet: ", done.stderr)

    def test_the_table_goes_between_the_markers_alone(self):
        document = self.folder / "document.md"
        arguments = ["--commands", "generate", "--dtypes", "auto", "--write", str(document)]
        begin = "<!-- memory figures: begin (tools/bench_memory.py) -->\n"
        end = "<!-- memory figures: end -->\nafter\n"
        document.write_text("before\n" + begin + "old\n" + end)
        done = self.run_tool(self.fake(100), self.model, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(document.read_text(), "before\n" + begin + done.stdout + end)
        document.write_text("nothing")
        done = self.run_tool(self.fake(100), self.model, *arguments)
        self.assertEqual(done.returncode, 1)
        self.assertIn("document.md: expected one line <!-- memory figures: begin", done.stderr)
        self.assertEqual(document.read_text(), "nothing")

    def test_a_table_of_results_that_were_kept(self):
        results = self.folder / "results.jsonl"
        results.write_text(json.dumps({
            "model": "tiny.gguf", "command": "serve", "dtype": "int8", "kv_cache_dtype": "fp8",
            "prompt_tokens": 7639, "file_bytes": 98_362_432, "cache_bytes": 176_947_200,
            "peak_bytes": 314_494_976, "anonymous_bytes": 205_062_144, "bound_bytes": 504_818_361,
            "date": "2026-12-01"}) + "\n")
        command = [sys.executable, "-B", str(TOOL), "--results", str(results)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2026-12-01, `tools/bench_memory.py models/*.gguf --kv-cache-dtype fp8`, MB:\n",
                      done.stdout)
        self.assertTrue(done.stdout.endswith(
            "| tiny, serve | int8 | 7,639 | 98 | 177 | 314 | 205 | 505 | 62% |\n"), done.stdout)


if __name__ == "__main__":
    unittest.main()
