"""tools/bench_step.py: the tables that it makes of figures."""

import importlib.util
import json
import pathlib
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        self.assertIn("| llama-3.1-8b | bfloat16 | 3.00e-5 | 1.00 | 4.37 |", table)
        self.assertIn("| llama-3.1-8b | fp8 | 1.50e-5 | 0.50 | 8.74 |", table)
        self.assertIn("| llama-3.1-8b | fp8 | 256 | 9.900 | 4.100 |", table)
        self.assertIn("| llama-3.1-8b | fp8 less bfloat16 | 65536 | -0.3195 | 0.0036 | 200 |", table)

    def test_the_document_keeps_what_stands_around_the_table(self):
        self.tool.DOCUMENT = self.folder / "benchmarks.md"
        before = f"above\n{self.tool.BEGIN}\nan older table\n{self.tool.END}\nbelow\n"
        self.tool.DOCUMENT.write_text(before, encoding="utf-8")
        self.tool.write_table()
        after = self.tool.DOCUMENT.read_text(encoding="utf-8")
        self.assertTrue(after.startswith(f"above\n{self.tool.BEGIN}\nNVIDIA H200"))
        self.assertTrue(after.endswith(f"|\n{self.tool.END}\nbelow\n"))
        self.assertNotIn("an older table", after)


if __name__ == "__main__":
    unittest.main()
