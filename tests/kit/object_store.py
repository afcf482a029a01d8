"""An S3 server on loopback, and a proxy in front of it that misbehaves as some real ones do.

The server is moto's, in a process of its own. The proxy can strip `If-None-Match`, which makes every conditional write
an overwrite, or forward a write and answer 503, which makes the client repeat a request that succeeded.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote
from urllib.request import Request, urlopen

STRIP, LOSE_ANSWER, PASS = "strip", "lose", "pass"
_CONTROL = "/__proxy__/"


# moto looks for an object and writes it in two steps; without a lock, two threads may both create it.
_SERVER = """
import sys, threading
from moto.s3.responses import S3Response
from moto.server import main
lock, put = threading.Lock(), S3Response.put_object
def put_object(self):
    with lock:
        return put(self)
S3Response.put_object = put_object
main(sys.argv[1:])
"""


class ObjectStore:
    """moto's S3 with one bucket, `lake`."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        command = [sys.executable, "-c", _SERVER, "-H", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                urlopen(Request(f"{self.url}/lake", method="PUT"), timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.close()
                    raise
                time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, path: str, content: bytes = b"") -> None:
        """Create an object (BUCKET/KEY), or a bucket."""
        headers = {"Content-Type": "application/octet-stream"} if content else {}
        urlopen(Request(f"{self.url}/{quote(path)}", content or None, headers, method="PUT"), timeout=30).close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which pyarrow and delta-rs use it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def storage_options(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "retry_timeout": "20s",
        "timeout": "20s",
    }


class Proxy:
    """Forwards to an object store, in a process of its own: delta-rs may hold Python's lock while it waits."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, __file__, str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def misbehave(self, mode: str) -> None:
        urlopen(f"{self.url}{_CONTROL}{mode}", timeout=10).close()

    @property
    def misbehaved(self) -> int:
        """The number of requests that the proxy did not forward correctly."""
        with urlopen(f"{self.url}{_CONTROL}count", timeout=10) as answer:
            return int(answer.read())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class _Forwarder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port = 0
    mode = PASS
    misbehaved = 0

    def _forward(self) -> None:
        if self.path.startswith(_CONTROL):
            word = self.path.removeprefix(_CONTROL)
            if word != "count":
                _Forwarder.mode = word
            self._answer(200, str(_Forwarder.misbehaved).encode(), [])
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "connection")}
        conditional = next((k for k in headers if k.lower() == "if-none-match"), None)
        if conditional and self.mode == STRIP:
            del headers[conditional]
            _Forwarder.misbehaved += 1
        upstream = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content, status = answer.read(), answer.status
        if conditional and self.mode == LOSE_ANSWER and status == 200:
            _Forwarder.misbehaved += 1
            status, content = 503, b""
        self._answer(status, content, answer.getheaders())
        upstream.close()

    def _answer(self, status: int, content: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    _Forwarder.port = int(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forwarder)
    print(server.server_address[1], flush=True)
    server.serve_forever()
