"""octet chat on a real model, through a pseudo-terminal and through a pipe."""

import json
import os
import pathlib
import pty
import select
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTET = pathlib.Path(os.environ.get("OCTET_BINARY", ROOT / "build" / "octet"))
MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
PATIENCE_S = 120


def make_letter_folder(folder, template):
    """A small random llama whose tokens are the letters and a space."""
    for file in (ROOT / "tests/data/models/folders/llama_bf16").iterdir():
        shutil.copy(file, folder)
    vocabulary = {"?": 0, "\u0120": 29} | {chr(ord("a") + i): i + 3 for i in range(26)}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


class Terminal:
    """A program that believes it talks with a person."""

    def __init__(self, *arguments, model=MODEL):
        length = "512" if model != MODEL else "1024"
        command = [str(OCTET), "chat", "--model", str(model), "--max-model-len", length, *arguments]
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        self.seen = ""
        self.read_to = 0

    def expect(self, text):
        """Waits until the text comes; gives what came since the last time, up to it."""
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.seen.find(text, self.read_to)
            if found >= 0:
                before = self.seen[self.read_to : found]
                self.read_to = found + len(text)
                return before
            if time.monotonic() > end or not self._read(end - time.monotonic()):
                raise AssertionError(f"{text!r} did not come; there is {self.seen[self.read_to:]!r}")

    def _read(self, seconds):
        if not select.select([self.file], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.file, 65536)
        except OSError:
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def type(self, text):
        os.write(self.file, text.encode())

    def end(self):
        """The exit status."""
        while self._read(PATIENCE_S):
            pass
        os.close(self.file)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run(arguments, text):
    command = [str(OCTET), "chat", "--model", str(MODEL), "--max-model-len", "1024", *arguments]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=PATIENCE_S)


class ChatInATerminal(unittest.TestCase):
    def test_turns_follow_each_other(self):
        chat = Terminal("--max-tokens", "12")
        chat.expect("> ")
        chat.type("What is the capital of France?\n")
        answer = chat.expect("\n[")
        self.assertIn("Paris", answer)
        report = chat.expect("> ")
        self.assertIn("answer ", report)
        self.assertIn("context 1024", report)
        chat.type("And of Italy?\n")
        chat.expect("\n[")
        # The second prompt holds the first turn and its answer.
        self.assertGreater(int(chat.expect("> ").split()[0]), int(report.split()[0]) + 10)
        chat.type("\x04")
        self.assertEqual(chat.end(), 0)

    def test_control_c_stops_the_answer_and_then_the_program(self):
        chat = Terminal("--max-tokens", "900")
        chat.expect("> ")
        chat.type("Write a very long story about a river and a mountain.\n")
        chat.expect("river")
        time.sleep(0.5)
        chat.type("\x03")
        chat.expect("stopped")
        chat.expect("> ")
        chat.type("\x03")
        chat.expect("ends")
        chat.expect("> ")
        chat.type("/clear\n")
        chat.expect("forgotten")
        chat.expect("> ")
        chat.type("\x03")
        chat.expect("> ")
        chat.type("\x03")
        self.assertEqual(chat.end(), 0)

    def test_commands_and_longer_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "saved.json"
            chat = Terminal("--max-tokens", "3", "--system", "Be brief.")
            chat.expect("> ")
            chat.type("/help\n")
            chat.expect("/save FILE")
            chat.type("long" * 1500 + "\n")
            chat.expect("the terminal cuts lines at 4095 bytes")
            chat.type("/nothing\n")
            chat.expect("is no command")
            chat.type("one\\\n")
            chat.expect("... ")
            chat.type("two\n")
            chat.expect("\n[")
            chat.type('"""\n/three\n\nfour\n"""\n')
            chat.expect("\n[")
            chat.type("//five\n")
            chat.expect("\n[")
            chat.type(f"/save {path}\n")
            chat.expect("saved to")
            chat.type(f"/save {path}\n")
            chat.expect("could not be written")
            chat.type("/exit\n")
            # A person has seen what was refused.
            self.assertEqual(chat.end(), 0)
            messages = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual(messages[0], {"role": "system", "content": "Be brief."})
            users = [m["content"] for m in messages if m["role"] == "user"]
            self.assertEqual(users, ["one\ntwo", "/three\n\nfour", "/five"])
            self.assertEqual(len([m for m in messages if m["role"] == "assistant"]), 3)

    def test_prompts_stay_out_of_a_file_of_answers(self):
        ours, theirs = pty.openpty()
        command = [str(OCTET), "chat", "--model", str(MODEL), "--max-model-len", "256", "--max-tokens", "3"]
        chat = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(theirs)
        os.write(ours, b"Hi\n\x04")
        answers, prompts = chat.communicate(timeout=PATIENCE_S)
        os.close(ours)
        self.assertEqual(chat.returncode, 0, prompts)
        self.assertNotIn(b"> ", answers)
        self.assertEqual(prompts.count(b"> "), 2)

    def test_what_a_template_refuses_ends_the_turn_alone(self):
        template = (
            "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no \x1b[31m system') }}"
            "{% endif %}{{ m.content }} {% endfor %}"
        )
        with tempfile.TemporaryDirectory() as folder:
            make_letter_folder(pathlib.Path(folder), template)
            chat = Terminal("--max-tokens", "2", model=folder)
            chat.expect("> ")
            chat.type("/system be brief\n")
            chat.expect("> ")
            chat.type("hello\n")
            chat.expect("chat_template.jinja: chat template, line 1, column ")
            chat.expect("no \\x1b[31m system")
            chat.expect("> ")
            chat.type("/system\n")
            chat.expect("> ")
            chat.type("hello\n")
            chat.expect("\n[")
            chat.type("\x04")
            self.assertEqual(chat.end(), 0)


class ChatOverAPipe(unittest.TestCase):
    def test_each_line_is_a_turn(self):
        done = run(["--max-tokens", "8"], "What is the capital of France?\n/system Be brief.\nHi")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"Paris", done.stdout)
        self.assertNotIn(b"> ", done.stdout)
        self.assertIn(b"the system turn is set", done.stderr)
        self.assertTrue(done.stderr.startswith(b"cache  bfloat16:bfloat16 x 30 (auto"), done.stderr)

    def test_a_turn_that_does_not_fit_is_told_and_forgotten(self):
        done = run(["--max-tokens", "4"], "word " * 2000 + "\nHi\n")
        self.assertIn(b"the context of 1024 must hold it and an answer", done.stderr)
        # The turn after it is answered, and the status tells of the one that was not.
        self.assertEqual(done.stdout, run(["--max-tokens", "4"], "Hi\n").stdout)
        self.assertTrue(done.stdout.strip())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertTrue(done.stderr.endswith(b"one turn or command, told above, was not done\n"), done.stderr)

    def test_every_line_that_was_refused_counts(self):
        done = run(["--max-tokens", "4"], "/nothing\n/save\n/help\n/clear\n")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"'/nothing' is no command", done.stderr)
        self.assertTrue(done.stderr.endswith(b"2 turns or commands, told above, were not done\n"), done.stderr)

    def test_a_file_that_cannot_be_written_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run([], f"/nothing\n/save {folder}\n/nothing\n")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"could not be written", done.stderr)
        self.assertIn(b"3 turns or commands", done.stderr)

    def test_invalid_text_is_told(self):
        command = [str(OCTET), "chat", "--model", str(MODEL), "--max-model-len", "256"]
        done = subprocess.run(command, input=b"\xff\n", capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(b"not valid UTF-8", done.stderr)

    def test_a_model_without_a_template_is_refused_by_name(self):
        model = ROOT / "models" / "gemma-3-270m.Q4_K_M.gguf"
        done = subprocess.run(
            [str(OCTET), "chat", "--model", str(model)], input=b"", capture_output=True, timeout=PATIENCE_S
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"gemma-3-270m", done.stderr)


if __name__ == "__main__":
    unittest.main()
