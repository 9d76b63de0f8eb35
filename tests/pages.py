"""What pages of the documentation hold: blocks of code with their language, and what is said right before them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
PAGES += sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "jobs").glob("*.md")])
NOT_RUN = "*Not run by the tests: "  # how the line before a block that cannot run begins
_FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text, the line before it, and its number on the page."""

    language: str
    code: str
    before: str
    number: int

    @property
    def reason(self) -> str:
        """Why it is not run, as the page says it; empty if it is."""
        return self.before.removeprefix(NOT_RUN).rstrip("*.") if self.before.startswith(NOT_RUN) else ""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for k, match in enumerate(_FENCE.finditer(text)):
        said = [line for line in text[: match.start()].splitlines() if line.strip()]
        found.append(Block(match[1], match[2], said[-1] if said else "", k))
    return found


def commands(page: Path) -> list[str]:
    """Every `firstguess …` line of the page's shell blocks, without its comment."""
    lines = [line for block in blocks(page) if block.language in ("", "sh") for line in block.code.splitlines()]
    said = [re.sub(r"^\$ ", "", line).split("   #")[0].split("  #")[0].strip() for line in lines]
    return [line for line in said if line.startswith("firstguess ")]
