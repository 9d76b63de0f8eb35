"""What the page may do: run its own scripts, by their hashes, and nothing else; no request leaves it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from markupsafe import Markup

from firstguess.show.report.elements import tag


def script(text: str) -> Markup:
    """A script of the page."""
    return tag("script", Markup(text))


def policy(scripts: Sequence[str]) -> Markup:
    """The page's Content-Security-Policy, which lets these scripts run.

    Styles may be inline: Vega's pictures have them as attributes. Charts are saved by way of data: and blob: links.
    """
    allowed = " ".join(f"'sha256-{_hash(text)}'" for text in scripts) or "'none'"
    rules = (
        "default-src 'none'",
        f"script-src {allowed}",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return Markup('<meta http-equiv="Content-Security-Policy" content="{}">').format(Markup("; ".join(rules)))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
