"""`octet serve` as a process under hostile clients: after each, it answers and has kept its memory."""

import contextlib
import http.client
import json
import os
import pathlib
import socket
import time
import unittest

from octet_server import SMALL, OctetServer

MB = 1 << 20
HEAD = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def resident_bytes(process):
    fields = pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE")


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = OctetServer(SMALL, "--max-num-seqs", "4")
        cls.settled = resident_bytes(cls.server.process)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        log = cls.server.log()
        cls.server.log_file.close()
        assert status == 0, (status, log)

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log())
        start = time.monotonic()
        self.assertEqual(self.ask({"prompt": "he", "max_tokens": 2})[0], 200)
        self.assertLess(time.monotonic() - start, 10)
        # Sanitizers keep freed memory; the program itself gives back what a body took.
        slack = 1024 if os.environ.get("OCTET_SANITIZE") else 100
        self.assertLess(resident_bytes(self.server.process) - self.settled, slack * MB)

    def ask(self, body, path="/v1/completions"):
        """Status and answer; `body` as it is where it is bytes."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        ) as connection:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def send(self, *parts):
        """What the server says to these bytes before it closes; a reset counts as nothing."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as client:
            with contextlib.suppress(OSError):
                for part in parts:
                    client.sendall(part)
            answer = b""
            with contextlib.suppress(OSError):
                while piece := client.recv(65536):
                    answer += piece
            return answer

    def refused(self, body, path="/v1/completions"):
        status, answer = self.ask(body, path)
        self.assertEqual(status, 400, answer)
        self.assertEqual(answer["error"]["type"], "invalid_request_error")
        return answer["error"]

    def test_deep_json(self):
        for opened, closed in (("[", "]"), ('{"a":', "}")):
            deep = opened * 3000 + "1" + closed * 3000
            self.refused(deep.encode())
            self.refused(f'{{"prompt": {deep}}}'.encode())
            self.refused(f'{{"messages": {deep}}}'.encode(), "/v1/chat/completions")
            self.refused(f'{{"prompt": {deep}}}'.encode(), "/tokenize")

    def test_a_body_of_100_mb(self):
        piece = b" " * MB
        told = self.send((HEAD + f"Content-Length: {100 * MB}\r\n\r\n").encode(), *[piece] * 100)
        # The refusal comes before the body; a client that goes on sending may meet a reset instead.
        self.assertTrue(not told or b" 413 " in told.split(b"\r\n", 1)[0], told[:200])
        chunk = b"%x\r\n%s\r\n" % (MB, piece)
        chunked = self.send((HEAD + "Transfer-Encoding: chunked\r\n\r\n").encode(), *[chunk] * 100)
        self.assertTrue(not chunked or b" 413 " in chunked.split(b"\r\n", 1)[0], chunked[:200])
        # One that waits to be told to go on reads the refusal.
        asked = self.send((HEAD + f"Expect: 100-continue\r\nContent-Length: {100 * MB}\r\n\r\n").encode())
        self.assertIn(b" 413 ", asked.split(b"\r\n", 1)[0])

    def test_what_is_no_json(self):
        for body in (b"", b"\xff\xfe", b'{"prompt": "\xc3"}', b'{"prompt": "\\ud800"}', b"\0" * 1000,
                     b'{"prompt": "a", "n": NaN}', b'{"prompt": "a", "temperature": 1e999}',
                     b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "a"} {}', b'{"prompt": "a",}'):
            self.refused(body)

    def test_numbers_out_of_range(self):
        beyond = [-1e300, 1e300, -(2**63) - 1, 2**64, 2**200]
        for field in ("max_tokens", "n", "temperature", "top_p", "seed", "logprobs"):
            # A seed may be any number of 64 bits.
            for value in beyond + ([0.5] if field == "seed" else [-3, -(2**63)]):
                self.assertEqual(self.refused({"prompt": "a", field: value})["param"], field)

    def test_ids_and_lists_without_end(self):
        self.refused({"prompt": [2**31]})
        self.refused({"prompt": [-1]})
        self.refused({"prompt": [[1]] * 200_000})
        self.refused({"prompt": ["a"] * 200_000})
        self.refused({"prompt": "a", "stop": ["b"] * 200_000})
        self.refused({"prompt": "a", "logit_bias": {str(i): 1 for i in range(200_000)}})
        self.refused({"prompt": "a" * 8_000_000})
        self.refused({"messages": [{"role": "user", "content": "a"}] * 300_000},
                     "/v1/chat/completions")
        self.refused({"tokens": [7] * 4_000_000}, "/detokenize")
        self.refused({"prompt": "a b " * 3_900_000, "return_token_strs": True}, "/tokenize")

    def test_a_flood_of_heads(self):
        for more in ("A: " + "b" * 1_000_000 + "\r\n", "A: b\r\n" * 200_000):
            answer = self.send(("GET /health HTTP/1.1\r\nHost: x\r\n" + more + "\r\n").encode())
            self.assertTrue(not answer or b" 431 " in answer.split(b"\r\n", 1)[0], answer[:200])

    def test_clients_that_send_a_byte_now_and_then(self):
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port)))
                    for _ in range(300)]
            for byte in HEAD[:5].encode():
                for client in slow:
                    client.send(bytes([byte]))
                start = time.monotonic()
                self.assertEqual(self.ask({"prompt": "he", "max_tokens": 1})[0], 200)
                self.assertLess(time.monotonic() - start, 5)


if __name__ == "__main__":
    unittest.main()
