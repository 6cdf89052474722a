"""A headless Chromium, driven over a pipe. Nothing but the browser is needed."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_LIMIT_S = 60.0


class Page:
    """One tab."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read, self._write = read_fd, write_fd
        self._ids = itertools.count(1)
        self._buffer = b""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.errors: list[str] = []
        self.call("Runtime.enable")
        self.call("Log.enable")

    def call(self, method: str, **params: Any) -> Any:
        """A command of the browser's protocol, and its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(told["params"]))

    def _next(self) -> Any:
        deadline = time.monotonic() + _LIMIT_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """Size and colour scheme of the screen."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 60.0) -> Any:
        """The first true value of an expression."""
        deadline = time.monotonic() + seconds
        while not (found := self.value(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.05)
        return found

    def shot(self, path: Path) -> None:
        """A picture of the screen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser with a profile in `folder`."""
    assert CHROMIUM is not None
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
        f" --user-data-dir={shlex.quote(str(folder))} --remote-debugging-pipe"
    )
    command = f"exec {CHROMIUM} {flags} 3<&{commands_out} 4>&{answers_in}"
    process = subprocess.Popen(
        ["bash", "-c", command],
        pass_fds=(commands_out, answers_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(answers_in)
    try:
        yield Page(answers_out, commands_in)
    finally:
        process.kill()
        process.wait()
        os.close(commands_in)
        os.close(answers_out)
