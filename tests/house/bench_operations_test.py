"""tools/bench_operations.py: the table that it makes of figures."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))


def load_tool():
    spec = importlib.util.spec_from_file_location("bench_operations",
                                                  ROOT / "tools" / "bench_operations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def operation(name, microseconds, count_bytes=0, multiply_adds=0):
    return {"name": name, "us": microseconds, "bytes": count_bytes, "multiply_adds": multiply_adds}


def report(cache, operations):
    return {"device": "NVIDIA H200", "date": "2026-11-30", "rows": 8, "context": 1024, "cache": cache,
            "operations": operations}


class Tables(unittest.TestCase):
    def setUp(self):
        self.tool = load_tool()

    def test_cells(self):
        table = self.tool.make_table([
            report("bfloat16", [operation("RMS norm", 1.62, 393216),
                                operation("prefill attention", 8000.0, 0, 1e12)]),
            report("fp8", [operation("RMS norm", 1.58, 393216),
                           operation("decode attention", 100.0, 4e8)]),
        ])
        self.assertIn("| operation | 8 x 1024, bfloat16 | 8 x 1024, fp8 |", table)
        # Bytes count where there are many; what a column lacks stays empty.
        self.assertIn("| RMS norm | 1.6 us | 1.6 us |", table)
        self.assertIn("| prefill attention | 8.00 ms, 250 TFLOPS |  |", table)
        self.assertIn("| decode attention |  | 100.0 us, 4.00 TB/s |", table)

    def test_the_document_holds_the_figures_table(self):
        figures = [json.loads(line)
                   for line in self.tool.FIGURES.read_text(encoding="utf-8").splitlines()]
        self.assertIn(self.tool.make_table(figures), self.tool.DOCUMENT.read_text(encoding="utf-8"))

    def test_writing_keeps_what_stands_around_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            self.tool.DOCUMENT = pathlib.Path(folder) / "benchmarks.md"
            self.tool.DOCUMENT.write_text(f"before\n{self.tool.BEGIN}\nold\n{self.tool.END}\nafter\n",
                                          encoding="utf-8")
            self.tool.write_table(types.SimpleNamespace(write=True))
            text = self.tool.DOCUMENT.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("before\n"))
        self.assertTrue(text.endswith("after\n"))
        self.assertNotIn("old", text)
        self.assertIn("| RMS norm |", text)


if __name__ == "__main__":
    unittest.main()
