"""Starts `octet serve` for a test, and runs the test with the packages it needs."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTET = pathlib.Path(os.environ.get("OCTET_BINARY", ROOT / "build" / "octet"))
SMOLLM2 = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = ROOT / "models" / "gemma-3-270m.Q4_K_M.gguf"
SMALL = ROOT / "tests" / "data" / "models" / "llama_mixed.gguf"
# With heads of 32 elements, the narrowest that GPUs cache in 8 bits.
SMALL_WIDE = ROOT / "tests" / "data" / "models" / "llama_wide_heads.gguf"
START_SECONDS = 120


def use_test_packages():
    """Goes on in the interpreter that has tests/requirements.txt (tools/setup_test_venv.sh)."""
    python = ROOT / ".venv-tests" / "bin" / "python"
    if pathlib.Path(sys.prefix) == python.parents[1]:
        return
    if not python.exists():
        sys.exit(f"{python} is missing: run tools/setup_test_venv.sh (make test does)")
    os.execv(python, [str(python), "-B", *sys.argv])


class OctetServer:
    """A server on a free port; ends with the `with` block."""

    def __init__(self, model, *flags, environment=None):
        self.log_file = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [str(OCTET), "serve", "--model", str(model), "--port", "0", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log_file,
            env={**os.environ, **(environment or {})},
        )
        self.port = self._wait_for_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read()

    def _wait_for_port(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            match = re.search(r"listening on http://[^ ]*:(\d+)/", self.log())
            if match:
                return int(match[1])
            if self.process.poll() is not None:
                raise RuntimeError(f"octet serve ended at once: {self.log()}")
            time.sleep(0.05)
        raise RuntimeError(f"octet serve did not listen in time: {self.log()}")

    def stop(self, seconds=60):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(seconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.log_file.close()
