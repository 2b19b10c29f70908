"""tools/install_packages.sh and the Makefile, with package tools of the test's own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class InstallPackages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.commands = self.folder / "bin"
        self.commands.mkdir()
        self.log = self.folder / "log"
        self.installed = self.folder / "installed"
        self.installed.write_text("", encoding="utf-8")
        for name in ["bash", "env", "grep"]:
            (self.commands / name).symlink_to(shutil.which(name))
        # dpkg-query --show --showformat=... PACKAGE
        self.command(
            "dpkg-query", f'grep -qx "$3" {self.installed} && echo -n installed || exit 1'
        )
        self.command("apt-get", f'echo "apt-get $DEBIAN_FRONTEND $*" >> {self.log}')
        self.command("id", "echo 0")

    def command(self, name, script):
        file = self.commands / name
        file.write_text(f"#!{shutil.which('bash')}\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run_script(self, *groups):
        return subprocess.run(
            [shutil.which("bash"), str(ROOT / "tools" / "install_packages.sh"), *groups],
            env={"PATH": str(self.commands)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def logged(self):
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def test_only_what_is_missing_is_installed(self):
        self.installed.write_text("clang-14\n", encoding="utf-8")
        result = self.run_script("fuzz")
        self.assertEqual(result.returncode, 0, result.stderr)
        update, install = self.logged()
        self.assertIn(" update", update)
        self.assertTrue(install.startswith("apt-get noninteractive "), install)
        self.assertTrue(install.endswith("--no-install-recommends libclang-rt-14-dev"), install)

    def test_nothing_missing_needs_neither_apt_nor_root(self):
        self.installed.write_text("clang-14\nlibclang-rt-14-dev\n", encoding="utf-8")
        self.command("id", "echo 1000")
        result = self.run_script("fuzz")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.logged(), [])

    def test_groups_add_up(self):
        self.run_script("build", "test")
        install = self.logged()[1].split()
        for package in ["g++", "cmake", "libfmt-dev", "libgtest-dev"]:
            self.assertIn(package, install)

    def test_users_go_through_sudo(self):
        self.command("id", "echo 1000")
        self.command("sudo", f'echo "sudo $1" >> {self.log}; "$@"')
        self.assertEqual(self.run_script("test").returncode, 0)
        self.assertEqual([line.split()[0] for line in self.logged()], ["sudo", "apt-get"] * 2)

    def test_without_root_and_sudo_the_command_to_run_is_told(self):
        self.command("id", "echo 1000")
        result = self.run_script("test")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get install libgtest-dev", result.stderr)
        self.assertEqual(self.logged(), [])

    def test_a_failing_apt_fails(self):
        self.command("apt-get", "exit 100")
        result = self.run_script("test")
        self.assertEqual(result.returncode, 1)
        self.assertIn("apt-get update failed", result.stderr)

    def test_an_unknown_group_is_named(self):
        for groups in [(), ("tests",), ("build", "gpus")]:
            result = self.run_script(*groups)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(len(result.stderr.splitlines()), 1)
        self.assertIn("'gpus'", result.stderr)

    def test_another_system_is_told_what_is_needed(self):
        (self.commands / "dpkg-query").unlink()
        result = self.run_script("test")
        self.assertEqual(result.returncode, 0)
        self.assertIn("libgtest-dev", result.stderr)


class Makefile(unittest.TestCase):
    def test_the_targets_that_others_rely_on_are_there_and_told_by_help(self):
        targets = "build model models demo test fuzz format lint clean help".split()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MAKE")
        }

        def make(*arguments):
            return subprocess.run(
                ["make", "-C", str(ROOT), *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )

        told = [line.split()[0] for line in make("help").stdout.splitlines()]
        for target in targets:
            self.assertIn(target, told)
            self.assertEqual(make("--dry-run", target).returncode, 0, target)


if __name__ == "__main__":
    unittest.main()
