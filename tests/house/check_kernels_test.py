"""What tools/check_kernels.py finds in a compiler's report."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import check_kernels  # noqa: E402

GOOD = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z6kernelv' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 7 barriers
"""


class CheckKernels(unittest.TestCase):
    def test_a_clean_report_has_no_problems(self):
        self.assertEqual(check_kernels.problems(GOOD), [])

    def test_spills_are_named_with_their_kernel(self):
        report = GOOD.replace("0 bytes stack frame, 0 bytes spill stores",
                              "8 bytes stack frame, 4 bytes spill stores")
        found = check_kernels.problems(report)
        self.assertEqual(len(found), 1)
        self.assertIn("_Z6kernelv: 8 bytes stack frame, 4 bytes spill stores", found[0])

    def test_serialised_products_are_found(self):
        report = GOOD + ("ptxas info    : (C7513) Potential Performance Loss: wgmma.mma_async "
                         "instructions are serialized due to ... in the function '_Z6kernelv'\n")
        self.assertEqual(len(check_kernels.problems(report)), 1)

    def test_a_report_of_nothing_is_a_problem(self):
        self.assertEqual(check_kernels.problems("nvcc fatal"), ["the report names no kernel"])


if __name__ == "__main__":
    unittest.main()
