"""A headless Chromium that tests drive over a pipe, without a driver or a network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)

_BOX = "document.querySelector({}).getBoundingClientRect()"


class Page:
    """One page of a browser. Commands are those of the DevTools protocol."""

    def __init__(
        self, path: Path, width: int = 1280, height: int = 900, dark: bool = False, fragment: str = ""
    ) -> None:
        self._profile = tempfile.mkdtemp()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        assert CHROMIUM is not None
        self._process = subprocess.Popen(
            # the browser reads commands from descriptor 3 and writes answers to 4
            ["bash", "-c", 'exec "$@" 3<&$IN 4>&$OUT', "-", CHROMIUM, *FLAGS, f"--user-data-dir={self._profile}"],
            pass_fds=(theirs_in, theirs_out),
            env={**os.environ, "IN": str(theirs_in), "OUT": str(theirs_out)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in = os.fdopen(ours_in, "rb", buffering=0)
        self._out = os.fdopen(ours_out, "wb", buffering=0)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        # without motion an element stands still when it is clicked
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        self.command(
            "Emulation.setEmulatedMedia", features=[{"name": name, "value": value} for name, value in features.items()]
        )
        self._loaded = False
        self.command("Page.navigate", url=path.as_uri() + fragment)
        while not self._loaded:
            self._receive()

    def __enter__(self) -> Page:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.close()
        self._in.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = self._in.read(1 << 16)
            assert piece, "the browser ended"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"]))
        return message

    def value(self, expression: str) -> Any:
        """What a JavaScript expression evaluates to."""
        result = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"Enter": 13, "Tab": 9, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code={" ": "Space"}.get(key, key),
                windowsVirtualKeyCode=code,
                **({"text": text} if kind == "keyDown" and text else {}),
            )

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        self.value(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self._middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str) -> None:
        x, y = self._middle(selector)
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _middle(self, selector: str) -> tuple[float, float]:
        box = self.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({_BOX.format(repr(selector))})")
        return box[0], box[1]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        picture = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(picture["data"]))
