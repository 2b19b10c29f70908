"""schemathesis against /openapi.json: what the description allows is answered as it says, and what
it does not allow is refused."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

from octet_server import SMALL, OctetServer, use_test_packages

use_test_packages()

# Beyond what a schema can say, a request may be refused for what only the model knows (a prompt or
# an answer past the context, fields that need another), so that a refusal of what the schema allows
# is no fault: positive_data_acceptance is left out.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
]


class OpenApi(unittest.TestCase):
    def test_schemathesis_finds_nothing(self):
        # The folder is for what schemathesis leaves behind.
        flags = ["--max-num-seqs", "32", "--max-model-len", "96"]
        with tempfile.TemporaryDirectory() as folder, OctetServer(SMALL, *flags) as server:
            command = [
                str(pathlib.Path(sys.executable).parent / "schemathesis"),
                "run", server.url + "/openapi.json",
                "--checks", ",".join(CHECKS),
                "--max-examples", "20",
                "--request-timeout", "60",
                "--seed", "1",
                "--phases", "examples,coverage,fuzzing",
                "--generation-database", "none",
                "--no-color",
            ]
            result = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=240, check=False,
            )
            self.assertEqual(result.returncode, 0, result.stdout[-8000:] + result.stderr[-2000:])
            self.assertIsNone(server.process.poll())


if __name__ == "__main__":
    unittest.main()
