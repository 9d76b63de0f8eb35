"""A headless Chromium for tests: the system's own, driven by Playwright, which is not asked to bring one along."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright import sync_api as playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# A page without charts has nothing to wait for.
_SETTLED = "!document.querySelector('figure[data-chart]') || document.documentElement.dataset.charts"


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
    """One Chromium with one tab, which is a new one for every page that is opened."""

    def __init__(self, chromium: playwright.Browser) -> None:
        self._chromium, self._context = chromium, chromium.new_context()
        self.page = self._context.new_page()

    def open(
        self,
        page: Path,
        *,
        scheme: Literal["light", "dark"] = "light",
        media: Literal["screen", "print"] = "screen",
        width: int = 1200,
        scripts: bool = True,
    ) -> Seen:
        """Load a file as it looks on such a screen (or paper), and wait until its charts are drawn, or one failed."""
        self._context.close()
        self._context = self._chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts
        )
        self.page, seen = self._context.new_page(), Seen()
        self.page.emulate_media(media=media, color_scheme=scheme)
        self.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        self.page.on("console", lambda said: seen.errors.append(said.text) if said.type in _BAD else None)
        self.page.on("request", lambda request: seen.requests.append(request.url))
        self.page.goto(page.as_uri(), wait_until="load")
        if scripts:
            self.page.wait_for_function(_SETTLED, timeout=60_000)
        return seen

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        return self.page.evaluate(expression)

    def pdf(self) -> bytes:
        """The page as it prints."""
        return self.page.pdf(prefer_css_page_size=True, print_background=True)


_BAD = ("error", "warning", "assert")


@contextmanager
def started(program: str) -> Generator[Browser]:
    """A browser with a profile of its own, ended with the block."""
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=program, args=["--disable-gpu", "--hide-scrollbars"])
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
