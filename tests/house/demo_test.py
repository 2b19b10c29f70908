"""tools/demo.py against a program that speaks octet's JSON contract."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Answers as octet does, notes how it was called, and does what SPOIL says wrong.
FAKE_OCTET = """\
    #!{python}
    import json, os, sys
    arguments = sys.argv[1:]
    with open({calls!r}, "a") as calls:
        calls.write(json.dumps(arguments) + "\\n")
    spoil = {spoil!r}
    print("loading", file=sys.stderr)
    if spoil == "status" and arguments[0] == "eval":
        print("octet: the model has no such layer", file=sys.stderr)
        sys.exit(2)
    if spoil == "text":
        print("not an object")
        sys.exit(0)
    if arguments[0] == "generate":
        dtype = arguments[arguments.index("--kv-cache-dtype") + 1]
        per_token = {{"bfloat16": 23040, "fp8": 11880}}[dtype]
        report = {{
            "text": " wrote by " + dtype + "\\n", "token_ids": [1, 2], "prompt_tokens": 7600,
            "completion_tokens": 64, "finish_reason": "length",
            "timing": {{"load_s": 0.5, "ttft_ms": 52500.0,
                        "itl_ms": {{"mean": 21.0, "p50": 20.5, "p99": 30.0}},
                        "prefill_tokens_per_s": 144.8, "decode_tokens_per_s": 48.7}},
            "kv_cache": {{"dtype": dtype, "bytes_per_token": per_token,
                          "bytes_used": per_token * 7680}},
            "device": "cpu", "threads": 2, "instruction_set": "avx2"}}
        if spoil == "key":
            del report["kv_cache"]["bytes_used"]
        if spoil == "nan":
            report["timing"]["ttft_ms"] = float("nan")
    else:
        report = {{"tokens": 1024, "mean": 0.0131, "median": 0.004, "p99": 0.1,
                   "top1_agreement": 0.9414}}
    print(json.dumps(report))
"""


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.calls = self.folder / "calls"
        self.octet = self.folder / "octet"
        self.output = self.folder / "build" / "demo.json"
        for name in ["model.gguf", "document"]:
            (self.folder / name).write_text("x", encoding="utf-8")

    def run_demo(self, spoil="", **changes):
        self.octet.write_text(
            textwrap.dedent(FAKE_OCTET).format(
                python=sys.executable, calls=str(self.calls), spoil=spoil
            ),
            encoding="utf-8",
        )
        self.octet.chmod(0o755)
        options = {
            "octet": self.octet,
            "model": self.folder / "model.gguf",
            "document": self.folder / "document",
            "output": self.output,
            **changes,
        }
        command = [sys.executable, "-B", str(ROOT / "tools" / "demo.py")]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_reports_of_all_three_runs_are_kept(self):
        result = self.run_demo()
        self.assertEqual(result.returncode, 0, result.stderr)
        reports = json.loads(self.output.read_text(encoding="utf-8"))
        self.assertEqual(list(reports), ["bfloat16", "fp8", "kl"])
        self.assertEqual(reports["bfloat16"]["kv_cache"]["dtype"], "bfloat16")
        self.assertEqual(reports["fp8"]["kv_cache"]["bytes_per_token"], 11880)
        self.assertEqual(reports["kl"]["top1_agreement"], 0.9414)
        self.assertEqual(os.listdir(self.output.parent), ["demo.json"])

    def test_octet_is_asked_for_the_document_greedily_with_each_cache(self):
        self.run_demo()
        calls = [json.loads(line) for line in self.calls.read_text(encoding="utf-8").splitlines()]
        model, document = str(self.folder / "model.gguf"), str(self.folder / "document")
        for call, dtype in zip(calls, ["bfloat16", "fp8"]):
            self.assertEqual(
                call,
                ["generate", "--model", model, "--prompt-file", document, "--max-tokens", "64"]
                + ["--temperature", "0", "--ignore-eos", "--kv-cache-dtype", dtype, "--json"],
            )
        self.assertEqual(
            calls[2:],
            [
                ["eval", "kl", "--model", model, "--text", document, "--context", "1024"]
                + ["--kv-cache-dtype", "fp8", "--reference", "bfloat16", "--json"]
            ],
        )

    def test_the_table_shows_what_was_reported(self):
        output = self.run_demo().stdout
        rows = [line.rsplit(maxsplit=3)[-3:] for line in output.splitlines()]
        self.assertIn(["176.9", "91.2", "0.52"], rows)
        self.assertIn(["23,040", "11,880", "0.52"], rows)
        self.assertIn(["52.5", "52.5", "1.00"], rows)
        self.assertIn(["20.5", "20.5", "1.00"], rows)
        self.assertIn("1.31e-02", output)
        self.assertIn("94.1%", output)
        self.assertIn("|  wrote by fp8", output)

    def assert_fails(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.splitlines()[-1]
        for part in ["demo: ", *parts]:
            self.assertIn(part, last)
        self.assertFalse(self.output.exists())

    def test_a_failing_octet_fails_the_demo(self):
        result = self.run_demo(spoil="status")
        self.assert_fails(result, "eval", "status 2")
        self.assertIn("no such layer", result.stderr)

    def test_a_missing_figure_is_named(self):
        self.assert_fails(self.run_demo(spoil="key"), "kv_cache.bytes_used")

    def test_a_figure_that_is_no_number_is_named(self):
        self.assert_fails(self.run_demo(spoil="nan"), "timing.ttft_ms")

    def test_other_output_than_json_is_refused(self):
        self.assert_fails(self.run_demo(spoil="text"), "no JSON object")

    def test_missing_files_are_named(self):
        self.assert_fails(self.run_demo(octet=self.folder / "gone"), "gone")
        self.assert_fails(self.run_demo(model=self.folder / "gone.gguf"), "model", "gone.gguf")
        self.assert_fails(self.run_demo(document=self.folder / "gone.txt"), "document", "gone.txt")


if __name__ == "__main__":
    unittest.main()
