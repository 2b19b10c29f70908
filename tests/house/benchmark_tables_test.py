"""tools/benchmark_tables.py: tables between marks, and programs that print JSON."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from benchmark_tables import BenchmarkError, run_json, write_between_marks

BEGIN = "<!-- figures: begin -->"
END = "<!-- figures: end -->"


class Marks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "page.md"

    def written(self, before, section=None):
        self.page.write_text(before, encoding="utf-8")
        write_between_marks(self.page, "| new |", BEGIN, END, section)
        return self.page.read_text(encoding="utf-8")

    def test_what_stands_around_the_table_stays(self):
        self.assertEqual(self.written(f"above\n{BEGIN}\nold\n{END}\nbelow\n"),
                         f"above\n{BEGIN}\n| new |\n{END}\nbelow\n")
        self.assertEqual([path.name for path in self.page.parent.iterdir()], ["page.md"])

    def test_other_marks_are_left_alone(self):
        other = "<!-- others: begin -->\nkept\n<!-- others: end -->\n"
        text = self.written(f"{other}{BEGIN}\nold\n{END}\n{other}")
        self.assertEqual(text, f"{other}{BEGIN}\n| new |\n{END}\n{other}")

    def test_a_file_without_marks_gets_the_section(self):
        self.assertEqual(self.written("above\n", "\n## Section\n\n"),
                         f"above\n\n## Section\n\n{BEGIN}\n| new |\n{END}\n")

    def test_a_file_that_lacks_a_mark_is_refused_and_left_as_it_is(self):
        for before in ["above\n", f"{BEGIN}\n", f"{END}\n", f"{END}\n{BEGIN}\n",
                       f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"]:
            with self.assertRaisesRegex(BenchmarkError, "page.md: expected one line"):
                self.written(before)
            self.assertEqual(self.page.read_text(encoding="utf-8"), before)
        with self.assertRaises(BenchmarkError):
            self.written(f"{END}\n", "\n## Section\n\n")


class Programs(unittest.TestCase):
    def test_what_it_prints_is_read(self):
        self.assertEqual(run_json(["echo", '{"a": [1, 2]}']), {"a": [1, 2]})

    def test_a_failing_one_is_told_with_its_last_words(self):
        with self.assertRaisesRegex(BenchmarkError, "ended with status 3: it broke$"):
            run_json(["sh", "-c", "echo first >&2; echo it broke >&2; exit 3"], show_errors=False)
        with self.assertRaisesRegex(BenchmarkError, "ended with status 4: no message$"):
            run_json(["sh", "-c", "exit 4"], show_errors=False)
        with self.assertRaisesRegex(BenchmarkError, "ended with status 5$"):
            run_json(["sh", "-c", "exit 5"])


if __name__ == "__main__":
    unittest.main()
