"""A headless Chromium for tests, driven by its DevTools protocol over a pipe: no package is needed.

The protocol's messages are JSON ended by a zero byte; Chromium reads them from descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """The path of a Chromium, if there is one."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def must_be_there() -> bool:
    """Whether `make browser` could have installed one: in CI its absence is then a failure, not a skip."""
    return bool(os.environ.get("CI")) and os.geteuid() == 0 and shutil.which("apt-get") is not None


@dataclass
class Seen:
    """What happened while a page was open."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Browser:
    """One Chromium with one tab."""

    def __init__(self, process: subprocess.Popen[bytes], write_to: int, read_from: int) -> None:
        self._process, self._in, self._out = process, write_to, read_from
        self._rest, self._last, self._session = b"", 0, ""
        self.seen = Seen()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for area in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{area}.enable")

    def call(self, method: str, *, timeout: float = 30.0, **arguments: Any) -> Any:
        """Send one command and wait for its answer; events on the way are noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": arguments}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._next(deadline - time.monotonic(), method)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self, timeout: float, method: str) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"Chromium did not answer {method}")
            read = os.read(self._out, 1 << 20)
            if not read:
                raise RuntimeError(f"Chromium ended during {method} (exit code {self._process.poll()})")
            self._rest += read
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)

    def _note(self, event: dict[str, Any]) -> None:
        what, with_ = event.get("method"), event.get("params", {})
        if what == "Runtime.exceptionThrown":
            self.seen.errors.append(str(with_["exceptionDetails"]))
        elif what == "Runtime.consoleAPICalled" and with_["type"] in ("error", "warning", "assert"):
            self.seen.errors.append(str([part.get("value", part.get("description")) for part in with_["args"]]))
        elif what == "Log.entryAdded" and with_["entry"]["level"] in ("error", "warning"):
            self.seen.errors.append(str(with_["entry"]))
        elif what == "Network.requestWillBeSent":
            self.seen.requests.append(with_["request"]["url"])

    def open(
        self, page: Path, *, scheme: str = "light", media: str = "", width: int = 1200, scripts: bool = True
    ) -> Seen:
        """Load a file as it looks on such a screen (or paper), and wait until its charts are drawn, or one failed."""
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=wanted)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.seen = Seen()
        self.call("Page.navigate", url=page.as_uri())
        deadline = time.monotonic() + 60
        while self.run("document.readyState") != "complete" or (scripts and not self.run(_SETTLED)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{page.name} was not drawn: {self.seen.errors}")
            time.sleep(0.05)
        return self.seen

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def screenshot(self, target: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        target.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])


# A page without charts has nothing to wait for.
_SETTLED = "!document.querySelector('figure[data-chart]') || document.documentElement.dataset.charts"


@contextmanager
def started(program: str, profile: Path) -> Generator[Browser]:
    """A browser with a profile of its own, ended with the block."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def pipes() -> None:
        # Duplicates first: one of the ends could be 3 or 4 itself.
        ends = os.dup(to_read), os.dup(from_write)
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--remote-debugging-pipe", f"--user-data-dir={profile}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [program, *options],
        close_fds=False,
        preexec_fn=pipes,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        browser = Browser(process, to_write, from_read)
        yield browser
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(to_write)
        os.close(from_read)
