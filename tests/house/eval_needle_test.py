"""tools/eval_needle.py: its table and its picture; tools/make_needle_model.py: numbers in bfloat16."""

import importlib.util
import json
import pathlib
import re
import struct
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(cache, accumulation, batch, right):
    cells = [{"length": length, "depth": depth, "asked": 8, "right": right(length, depth)}
             for length in (4096, 131072) for depth in (0.0, 50.0, 100.0)]
    return {"cache": cache, "attention_accumulation": accumulation, "batch": batch, "cells": cells}


REPORTS = [
    report("bfloat16, 2 layers", "two-level", 24, lambda length, depth: 8),
    report("fp8:fp8 x 2, scales dynamic", "two-level", 24, lambda length, depth: 8),
    report("fp8:fp8 x 2, scales dynamic", "single", 24,
           lambda length, depth: 8 if length == 4096 else int(depth / 25)),
    report("fp8:fp8 x 2, scales dynamic", "single", 1, lambda length, depth: 7),
]


class Figures(unittest.TestCase):
    def setUp(self):
        self.tool = load_tool("eval_needle")

    def test_the_table_has_shares_over_all_depths(self):
        table = self.tool.table(REPORTS)
        self.assertIn("| cache, accumulation | 4k | 128k |", table)
        self.assertIn("| bfloat16, two-level | 100 % | 100 % |", table)
        self.assertIn("| fp8:fp8, single | 100 % | 25 % |", table)
        self.assertIn("| fp8:fp8, single, one question a step | 88 % | 88 % |", table)

    def test_the_picture_has_a_panel_a_case(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "figures").write_text("\n".join(map(json.dumps, REPORTS)), encoding="utf-8")
            done = self.tool.draw(types.SimpleNamespace(figures=str(folder / "figures"),
                                                        output=str(folder / "picture.svg")))
            self.assertEqual(done, 0)
            picture = (folder / "picture.svg").read_text(encoding="utf-8")
        texts = re.findall(r">\s*([^<>]+?)\s*</text>", re.sub(r"</?tspan[^>]*>", "", picture))
        for title in ("bfloat16, two-level", "fp8:fp8, two-level", "fp8:fp8, single"):
            self.assertIn(title, texts)
        self.assertEqual(texts.count("50"), 4)  # the depth in each panel, and a cell: 4 of 8


class Numbers(unittest.TestCase):
    def test_bfloat16_rounds_to_nearest_even(self):
        bfloat16 = load_tool("make_needle_model").bfloat16
        for value, code in ((1.0, 0x3F80), (-2.5, 0xC020), (0.0, 0), (1 + 2.0**-8, 0x3F80),
                            (1 + 3 * 2.0**-8, 0x3F82), (1 + 2.0**-8 + 2.0**-20, 0x3F81)):
            self.assertEqual(bfloat16(value), code, value)
        for value in (0.1, 3.14159, -1e-8, 65000.0):
            (near,) = struct.unpack("<f", struct.pack("<I", bfloat16(value) << 16))
            self.assertLessEqual(abs(near - value), abs(value) * 2.0**-8)


if __name__ == "__main__":
    unittest.main()
