"""The layers of src/: the tree obeys them, and the checker catches what does not."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKER = ROOT / "tools" / "check_layers.py"
ORDER = ["cli", "server", "bench", "engine", "models", "ops", "kv", "text", "files", "core"]


def check(source):
    result = subprocess.run(
        [sys.executable, "-B", str(CHECKER), str(source)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout


class LayersOfOctet(unittest.TestCase):
    def test_includes_point_down(self):
        status, output = check(ROOT / "src")
        self.assertEqual(status, 0, output)


class Checker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.source / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def assert_fault(self, *parts):
        status, output = check(self.source)
        self.assertEqual(status, 1, output)
        for part in parts:
            self.assertIn(part, output)
        self.assertIn("1 faults", output)

    def test_every_downward_include_passes(self):
        for index, folder in enumerate(ORDER):
            below = "".join(f'#include "{name}/a.h"\n' for name in ORDER[index + 1 :])
            self.write(f"{folder}/a.h", "#pragma once\n#include <vector>\n" + below)
            self.write(f"{folder}/b.cc", f'#include "{folder}/a.h"\n')
        status, output = check(self.source)
        self.assertEqual(status, 0, output)
        self.assertIn("20 files, 0 faults", output)

    def test_every_upward_include_is_caught(self):
        for low in range(1, len(ORDER)):
            for high in range(low):
                with self.subTest(low=ORDER[low], high=ORDER[high]):
                    self.write(f"{ORDER[high]}/a.h", "#pragma once\n")
                    self.write(f"{ORDER[low]}/b.cc", f'\n#include "{ORDER[high]}/a.h"\n')
                    self.assert_fault(f"{ORDER[low]}/b.cc:2", f"{ORDER[high]}/a.h")
                    (self.source / ORDER[low] / "b.cc").unlink()

    def test_neighbours_know_nothing_of_one_another(self):
        self.write("bench/a.h", "#pragma once\n")
        self.write("eval/b.cc", '#include "bench/a.h"\n')
        self.assert_fault("eval/b.cc:1", "bench is not below eval")

    def test_an_include_deep_in_folders_and_in_a_condition_is_seen(self):
        self.write("models/a.h", "#pragma once\n")
        self.write("ops/attention/b.cu", '#if 1\n  #  include  "models/a.h"  // why\n#endif\n')
        self.assert_fault("ops/attention/b.cu:2", "models is not below ops")

    def test_a_missing_file_is_caught(self):
        self.write("core/a.cc", '#include "core/gone.h"\n')
        self.assert_fault("core/a.cc:1", "core/gone.h")

    def test_a_path_that_does_not_start_at_src_is_caught(self):
        self.write("core/b.h", "#pragma once\n")
        self.write("core/a.cc", '#include "b.h"\n')
        self.assert_fault("core/a.cc:1", "includes b.h")

    def test_a_path_through_the_parent_is_caught(self):
        self.write("kv/b.h", "#pragma once\n")
        self.write("core/a.cc", '#include "core/../kv/b.h"\n')
        self.assert_fault("core/a.cc:1")

    def test_own_files_in_angle_brackets_are_caught(self):
        self.write("kv/b.h", "#pragma once\n")
        self.write("core/a.cc", "#include <kv/b.h>\n")
        self.assert_fault("core/a.cc:1", "<kv/b.h>")

    def test_a_folder_outside_the_list_is_caught(self):
        self.write("utils/a.cc", "\n")
        self.assert_fault("utils/a.cc", "'utils'")

    def test_a_tree_without_sources_is_no_success(self):
        status, output = check(self.source)
        self.assertEqual(status, 1)
        self.assertIn("no source file", output)


if __name__ == "__main__":
    unittest.main()
