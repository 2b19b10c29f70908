"""tools/bench_step.py: the tables that it makes of figures."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


def load_tool():
    spec = importlib.util.spec_from_file_location("bench_step", ROOT / "tools" / "bench_step.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def figure(cache, context, step):
    return {
        "kv_cache_dtype": cache, "context": context, "ttft_ms": 12.34,
        "itl_ms": {"p50": step, "p99": step + 0.1}, "weight_bytes": 15e9, "cache_bytes": 1e9,
        "operations": [{"operation": "norm", "launches": 65, "us": 130.0},
                       {"operation": "down", "launches": 32, "us": 1000.0, "tb_per_s": 3.76}],
        "prompt_operations": [{"operation": "down", "launches": 32, "us": 9.0, "tflops": 701.4}],
    }


def report(weights, contexts, caches):
    differences = [{"context": context, "mean_ms": -0.3195, "ci95_half_width_ms": 0.0036, "pairs": 200}
                   for context in contexts]
    return {
        "device": "NVIDIA H200", "date": "2026-11-30", "weights": "random " + weights, "batch": 1,
        "figures": [figure(cache, context, 4.0) for context in contexts for cache in caches],
        "differences": differences if len(caches) == 2 else [],
    }


class Tables(unittest.TestCase):
    def setUp(self):
        self.tool = load_tool()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tool.FIGURES = self.folder / "figures.jsonl"
        self.tool.SLOPES = self.folder / "slopes.jsonl"
        reports = [report("bfloat16", [256], ["bfloat16"]), report("fp8", [256], ["bfloat16"]),
                   report("bfloat16", [256, 16384], ["bfloat16", "fp8"])]
        self.tool.FIGURES.write_text("\n".join(map(json.dumps, reports)) + "\n", encoding="utf-8")

    def test_rows_say_what_was_measured(self):
        table = self.tool.table()
        self.assertIn("NVIDIA H200, 2026-11-30, `tools/bench_step.py run", table)
        self.assertIn("| fp8 | bfloat16 | 1 x 256 | 4.000 | 4.100 | 16.00 | 4.00 | 12.3 |", table)
        self.assertIn("| bfloat16 | fp8 less bfloat16 | 1 x 16384 | -0.3195 | 0.0036 | 200 |", table)
        self.assertIn("| down | 32 | 1000.0 | 3.76 |", table)
        self.assertIn("| norm | 65 | 130.0 |  |", table)
        self.assertNotIn("slopes", table)
        # Of the prompts at 16,384 tokens, one for each cache.
        self.assertEqual(table.count("| down | 32 | 9.0 | 701 |"), 2)

    def test_slopes_are_fitted_from_4096_keys_on(self):
        slopes = report("bfloat16", [256, 4096, 16384, 65536], ["bfloat16", "fp8"])
        slopes["model"] = "llama-3.1-8b"
        for line in slopes["figures"]:
            each = 3e-5 if line["kv_cache_dtype"] == "bfloat16" else 1.5e-5
            line["itl_ms"]["p50"] = 9.9 if line["context"] == 256 else 4 + each * line["context"]
            line["cache_bytes"] = 131072.0 * line["context"]
        self.tool.SLOPES.write_text(json.dumps(slopes) + "\n", encoding="utf-8")
        table = self.tool.table()
        self.assertIn("| llama-3.1-8b | 65536 | bfloat16 | 3.00e-5 | 1.00 | 4.37 |", table)
        self.assertIn("| llama-3.1-8b | 65536 | fp8 | 1.50e-5 | 0.50 | 8.74 |", table)
        self.assertIn("| llama-3.1-8b | fp8 | 256 | 9.900 | 4.100 |", table)
        self.assertIn("| llama-3.1-8b | fp8 less bfloat16 | 65536 | -0.3195 | 0.0036 | 200 |", table)

    def test_the_tables_of_the_document_are_those_of_its_figures(self):
        tool = load_tool()
        self.assertIn(tool.table(), tool.DOCUMENT.read_text(encoding="utf-8"))

    def test_an_8_bit_cache_costs_no_launch_that_a_bfloat16_one_does_not(self):
        tool = load_tool()
        compared = 0
        for path in (tool.FIGURES, tool.SLOPES):
            for report in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
                launches = {(figure["context"], figure["kv_cache_dtype"]):
                            {line["operation"]: line["launches"] for line in figure["operations"]}
                            for figure in report["figures"]}
                for (context, cache), of_operations in launches.items():
                    if cache != "bfloat16" and (context, "bfloat16") in launches:
                        self.assertEqual(of_operations, launches[context, "bfloat16"], report["date"])
                        compared += 1
        self.assertGreaterEqual(compared, 10)


# Steps of bfloat16 and fp8 caches whose slopes are 2e-5 and 1e-5 ms a token.
FAKE_OCTET = """\
    #!{python}
    import json, pathlib, sys
    arguments = sys.argv[1:]
    with pathlib.Path({calls!r}).open("a") as file:
        file.write(json.dumps(arguments) + "\\n")
    value = lambda flag: arguments[arguments.index(flag) + 1]
    contexts = [int(context) for context in value("--contexts").split(",")]
    figures = []
    for context in contexts:
        for cache in value("--kv-cache-dtype").split(","):
            step = 4 + context * (1e-5 if cache == "fp8" else 2e-5)
            figures.append({{"kv_cache_dtype": cache, "context": context, "ttft_ms": 1.0,
                            "itl_ms": {{"p50": step, "p99": step}}, "weight_bytes": 1e9,
                            "cache_bytes": 1e5 * context}})
    print(json.dumps({{"device": "NVIDIA H200", "weights": "random " + value("--weight-dtype"),
                      "batch": 1, "figures": figures, "differences": []}}))
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.octet = self.folder / "octet"
        self.calls = self.folder / "calls"

    def run_tool(self, fake):
        self.octet.write_text(fake, encoding="utf-8")
        self.octet.chmod(0o755)
        return subprocess.run(
            [sys.executable, "-B", ROOT / "tools" / "bench_step.py", "run", "--slopes", "--octet",
             self.octet, "--output", self.folder / "slopes.jsonl"],
            capture_output=True, text=True, check=False)

    def test_slopes_are_of_three_geometries_and_two_caches_each(self):
        done = self.run_tool(textwrap.dedent(FAKE_OCTET).format(
            python=sys.executable, calls=str(self.calls)))
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = [json.loads(line) for line in self.calls.read_text().splitlines()]
        models = []
        for call in calls:
            value = lambda flag: call[call.index(flag) + 1]
            models.append(pathlib.Path(value("--model")).name)
            self.assertTrue((pathlib.Path(value("--model")) / "config.json").exists())
            self.assertEqual(value("--kv-cache-dtype"), "bfloat16,fp8")
            self.assertEqual(value("--batch"), "1")
            self.assertGreaterEqual(max(map(int, value("--contexts").split(","))), 65536)
            self.assertNotIn("--kv-cache-dtype-skip-layers", call)
        self.assertEqual(models, ["llama-3.1-8b", "llama-3.1-8b", "llama-head-dim-256", "gemma3-head-dim-64"])
        tool = load_tool()
        tool.SLOPES = self.folder / "slopes.jsonl"
        table = "\n".join(tool.slope_tables())
        for call, model in zip(calls, models):
            last = call[call.index("--contexts") + 1].split(",")[-1]
            self.assertIn(f"| {model} | {last} | bfloat16 | 2.00e-5 | 1.00 |", table)
            self.assertIn(f"| {model} | {last} | fp8 | 1.00e-5 | 0.50 |", table)

    def test_a_failing_program_is_named(self):
        done = self.run_tool("#!/bin/sh\nexit 3\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("bench_step: ", done.stderr)
        self.assertIn("ended with status 3", done.stderr)


if __name__ == "__main__":
    unittest.main()
