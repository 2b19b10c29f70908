"""tools/compare_llama_cpp.py against programs that speak llama-bench's and octet's JSON."""

import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Twice as fast without flash attention as with it; each call a little faster than the one before.
FAKE_LLAMA_BENCH = """\
    #!{python}
    import json, pathlib, sys
    arguments = sys.argv[1:]
    calls = pathlib.Path({calls!r})
    count = len(calls.read_text().splitlines()) if calls.exists() else 0
    with calls.open("a") as file:
        file.write(json.dumps(arguments) + "\\n")
    value = lambda flag: arguments[arguments.index(flag) + 1]
    rate = 100.0 if value("-fa") == "0" else 50.0
    rows = []
    for depth in value("-d").split(","):
        rows.append({{"n_prompt": int(value("-p")), "n_gen": 0, "n_depth": int(depth),
                     "avg_ts": rate + count}})
        rows.append({{"n_prompt": 0, "n_gen": int(value("-n")), "n_depth": int(depth),
                     "avg_ts": rate / 10}})
    print(json.dumps(rows))
"""
FAKE_OCTET = """\
    #!{python}
    import json, sys
    arguments = sys.argv[1:]
    value = lambda flag: arguments[arguments.index(flag) + 1]
    rows = []
    for cache in value("--kv-cache-dtype").split(","):
        for depth in value("--depths").split(","):
            for phase, rate in (("prefill", 400.0), ("decode", 30.0)):
                rows.append({{"phase": phase, "depth": int(depth), "kv_cache_dtype": cache,
                             "tokens_per_s": rate}})
    print(json.dumps({{"instruction_set": "avx2", "dtype": "float32", "model": rows}}))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.llama = self.program("llama-bench", FAKE_LLAMA_BENCH)
        self.octet = self.program("octet", FAKE_OCTET)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(textwrap.dedent(text).format(python=sys.executable, calls=str(self.calls)))
        path.chmod(0o755)
        return path

    def compare(self, *arguments):
        return subprocess.run(
            [sys.executable, "-B", ROOT / "tools/compare_llama_cpp.py", "some.gguf",
             "--llama-bench", self.llama, "--llama-quantize", self.llama, "--octet", self.octet,
             "--depths", "0,4096", *arguments],
            capture_output=True, text=True, check=False)

    def test_ratios_are_to_the_fastest_setting_and_figures_are_medians(self):
        done = self.compare("--rounds", "3", "--llama-caches", "f16,q8_0 FA", "--octet-caches", "fp8",
                            "--json", self.folder / "out.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        # f16 is calls 0, 2 and 4 (100, 102, 104), q8_0 calls 1, 3 and 5 (51, 53, 55).
        self.assertIn("| prefill 512 | 0 | 102.0 | 53.0 | 400.0 (3.92 x) |", done.stdout)
        self.assertIn("| decode | 4,096 | 10.0 | 5.0 | 30.0 (3.00 x) |", done.stdout)
        rows = json.loads((self.folder / "out.json").read_text())
        self.assertIn({"program": "octet fp8", "phase": "decode", "depth": 4096,
                       "tokens_per_s": 30.0}, rows)

    def test_a_quantised_cache_runs_with_flash_attention(self):
        self.assertEqual(self.compare("--rounds", "1").returncode, 0)
        calls = [json.loads(line) for line in self.calls.read_text().splitlines()]
        self.assertEqual(len(calls), 3)
        for call in calls:
            if call[call.index("-ctv") + 1] == "q8_0":
                self.assertEqual(call[call.index("-fa") + 1], "1")

    def test_a_failing_program_is_named(self):
        self.octet.write_text("#!/bin/sh\necho octet: no such model >&2\nexit 2\n")
        done = self.compare("--rounds", "1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("octet: no such model", done.stderr)

    def test_unknown_settings_are_refused(self):
        self.assertEqual(self.compare("--llama-caches", "q2").returncode, 2)
        self.assertEqual(self.compare("--rounds", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
