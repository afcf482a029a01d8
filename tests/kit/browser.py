"""Headless Chromium for tests, controlled through its debugging port."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip


def find() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


class Browser:
    """`complaints`: console errors and exceptions. `requests`: everything that was fetched except the page itself."""

    def __init__(self, program: str, width: int = 1280, height: int = 900) -> None:
        import websocket

        self._directory = tempfile.mkdtemp(prefix="browser-")
        size = f"--window-size={width},{height}"
        command = [program, *_FLAGS, size, f"--user-data-dir={self._directory}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        self._socket = websocket.create_connection(self._address(), timeout=60)
        target = next(t for t in self._ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    _session: str | None = None

    def _address(self) -> str:
        port_file = Path(self._directory) / "DevToolsActivePort"
        for _ in range(600):
            if port_file.exists() and len(port_file.read_text().split()) == 2:
                port, path = port_file.read_text().split()
                return f"ws://127.0.0.1:{port}{path}"
            if self._process.poll() is not None:
                raise RuntimeError(f"the browser ended with {self._process.returncode}")
            time.sleep(0.1)
        raise RuntimeError("the browser did not open its debugging port")

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return dict(answer["result"])
            self._hear(answer)

    def _hear(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([arg.get("value") for arg in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True

    def open(self, url: str) -> None:
        self._loaded = False
        self.requests.clear()
        self._ask("Page.navigate", url=url)
        while not self._loaded:
            self._hear(json.loads(self._socket.recv()))
        self.requests = [fetched for fetched in self.requests if fetched not in (url, "data:,")]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return found["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, buttons: int = 0) -> None:
        button = "left" if kind in ("mousePressed", "mouseReleased") else "none"
        self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def resize(self, width: int, height: int) -> None:
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, wanted: bool = True) -> None:
        value = "dark" if wanted else "light"
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path: Path) -> None:
        shot = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
