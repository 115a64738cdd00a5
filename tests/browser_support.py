"""A real browser (Debian's Chromium), controlled over a pipe: it opens, measures and photographs pages.

With CI=true it is installed if missing, and a failed installation fails the test; otherwise the test is skipped.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import debian

PACKAGE = "chromium"
BROWSER = [
    pytest.mark.real,
    pytest.mark.timeout(600),  # the first one installs
]
"""The marks of a module that needs a browser: `pytestmark = BROWSER`."""

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]
_PATIENCE = 30.0


@dataclass
class Browser:
    """One page of a running browser. `asked`: every URL it requested; `errors`: the errors it logged."""

    out: int
    into: int
    session: str = ""
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _number: int = 0
    _rest: bytes = b""
    _seen: list[dict[str, Any]] = field(default_factory=list)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the browser and wait for the answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.out], [], [], left)[0], "the browser does not answer"
            data = os.read(self.out, 1 << 20)
            assert data, "the browser has gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["text"])
        elif method:
            self._seen.append(message)

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Open a file at this width, emulating a phone if it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._seen.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(each["method"] == "Page.loadEventFired" for each in self._seen):
            self._next()

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def photograph(self, path: Path, most: int = 20_000) -> None:
        """Save a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a new profile, closed on exit."""
    program = debian.program(PACKAGE)
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(prefix="ralph-browser-", ignore_cleanup_errors=True) as profile:
        pid = _start([program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"], theirs_in, theirs_out)
        try:
            page = Browser(ours_in, ours_out)
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for room in ("Page", "Network", "Log", "Runtime"):
                page.call(f"{room}.enable")
            yield page
            page.session = ""
            page.call("Browser.close")
        finally:
            os.close(ours_in)
            os.close(ours_out)
            _end(pid)


def _start(argv: list[str], reads: int, writes: int) -> int:
    """Start the browser with its pipe at file descriptors 3 and 4, where it expects it."""
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 20) for each in (reads, writes)]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, high[0], 3),
        (os.POSIX_SPAWN_DUP2, high[1], 4),
        *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)),
    ]
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
    for each in (*high, reads, writes):
        os.close(each)
    return pid


def _end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.05)
