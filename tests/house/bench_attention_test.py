"""tools/bench_attention.py: what it runs, and the rows that it makes of figures."""

import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import bench_attention

# Prints its flags as `octet bench attention --json` does.
FAKE_OCTET = """\
    #!{python}
    import json, pathlib, sys
    arguments = sys.argv[1:]
    with pathlib.Path({calls!r}).open("a") as file:
        file.write(json.dumps(arguments) + "\\n")
    value = lambda flag, other: arguments[arguments.index(flag) + 1] if flag in arguments else other
    heads = value("--heads", "").split("/")
    report = {{"device": "NVIDIA H200", "head_dim": int(value("--head-dim", "")),
              "query_heads": int(heads[0]), "kv_heads": int(heads[1]),
              "batch": int(value("--batch", "2")), "context": int(value("--context", "131072")),
              "query_rows": 1, "window": 0, "value_mean": 0.0, "kv_cache_dtype": "fp8:fp8",
              "kv_cache_scales": "dynamic", "us": 83.4, "tb_per_s": 4.09,
              "share_of_read_rate": 0.92, "error": 5.6e-4, "error_bfloat16_output": 1.8e-3}}
    if "--lengths" in arguments:
        report["lengths"] = [int(length) for length in value("--lengths", "").split(",")]
    print(json.dumps(report))
"""


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            calls = folder / "calls"
            octet = folder / "octet"
            octet.write_text(textwrap.dedent(FAKE_OCTET).format(python=sys.executable,
                                                                calls=str(calls)))
            octet.chmod(0o755)
            cls.done = subprocess.run(
                [sys.executable, "-B", ROOT / "tools" / "bench_attention.py", "run", "--octet", octet,
                 "--output", folder / "out.jsonl"], capture_output=True, text=True, check=False)
            cls.calls = [json.loads(line) for line in calls.read_text().splitlines()]
            cls.reports = (folder / "out.jsonl").read_text().splitlines()

    def setUp(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)

    def test_rows_say_what_was_measured(self):
        self.assertIn("| 128, 32/8 | 8 x 20480 | fp8:fp8 | dynamic | 83.4 | 4.09 | 92 % | 5.6e-04 "
                      "| 1.8e-03 |", self.done.stdout)
        mixed = bench_attention.MIXED_LENGTHS.replace(",", ", ")
        self.assertIn(f"| 128, 32/8 | {mixed} | fp8:fp8 |", self.done.stdout)

    def test_cases_are_of_one_length_or_of_lengths(self):
        self.assertEqual(len(self.calls), len(bench_attention.CASES))
        self.assertEqual(len(self.reports), len(bench_attention.CASES))
        for call in self.calls:
            self.assertIn("--check", call)
            self.assertEqual("--lengths" in call, "--context" not in call)
            self.assertEqual("--lengths" in call, "--batch" not in call)

    def test_int8_keys_are_timed_wherever_a_target_is_told(self):
        def cases(flags):
            return {case[:4] for case in bench_attention.CASES if case[4] == flags}

        targets = [(128, "32/8", 8, 20480), (128, "32/8", 32, 8192), (128, "32/8", 1, 131072),
                   (128, "32/8", 1, 32768), (128, "32/8", 1, 8192), (128, "32/8", 1, 1024),
                   (64, "64/8", 8, 20480), (64, "64/8", 32, 8192), (256, "16/4", 8, 20480),
                   (256, "16/4", 1, 131072)]
        for target in targets:
            self.assertIn(target, cases([]))
            self.assertIn(target, cases(bench_attention.INT8_KEYS))


if __name__ == "__main__":
    unittest.main()
