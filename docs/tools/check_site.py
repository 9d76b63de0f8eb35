"""Check a built site: links and anchors within it lead somewhere, links out of it are well-formed, nothing is fetched.

`python docs/tools/check_site.py site`; exit code 1, and a line for every fault.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_FETCHED = {"script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"),
            "video": ("src", "poster"), "audio": ("src",), "embed": ("src",), "object": ("data",)}  # fmt: skip
_LOADED = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
_CSS = re.compile(r"(?:url\(|@import\s+)\s*['\"]?([^'\")\s]+)")


@dataclass
class Seen(HTMLParser):
    """What one page names, links to and fetches."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if "id" in known:
            self.ids.add(known["id"])
        if tag == "a":
            if "name" in known:
                self.ids.add(known["name"])
            if "href" in known:
                self.links.append(known["href"])
        if tag == "link" and _LOADED & set(known.get("rel", "").split()):
            self.fetched.append(known.get("href", ""))
        for attribute in _FETCHED.get(tag, ()):
            if known.get(attribute):
                self.fetched += (
                    [part.split()[0] for part in known[attribute].split(",")]
                    if attribute == "srcset"
                    else [known[attribute]]
                )
        if "style" in known:
            self.fetched += _CSS.findall(known["style"])


def faults(site: Path) -> list[str]:
    """One line a fault; none for a sound site."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    found = [] if pages else [f"{site}: no pages"]
    for path, seen in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: {fault}" for link in seen.links for fault in _link(link, path, site.resolve(), pages)]
        found += [f"{name}: {fault}" for link in seen.fetched for fault in _fetch(link, path)]
    for path in sorted(site.rglob("*.css")):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [f"{path.relative_to(site)}: {fault}" for link in _CSS.findall(text) for fault in _fetch(link, path)]
    return found


def _read(path: Path) -> Seen:
    seen = Seen()
    seen.feed(path.read_text(encoding="utf-8"))
    return seen


def _link(link: str, page: Path, site: Path, pages: dict[Path, Seen]) -> list[str]:
    parts = urlsplit(link)
    if parts.scheme in ("http", "https"):
        good = re.fullmatch(r"(?:[a-z0-9-]+\.)+[a-z]{2,}", parts.hostname or "")
        return [] if good else [f"{link} is no address"]
    if parts.scheme == "mailto":
        return []
    if parts.scheme or parts.netloc:
        return [f"{link} leads to no page"]
    if page.name == "404.html" and parts.path.startswith("/"):
        target = site / parts.path.lstrip("/")
    else:
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return [f"{link} does not exist"]
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].ids and anchor != "__skip":
        return [f"{link}: no such anchor"]
    return []


def _fetch(link: str, page: Path) -> list[str]:
    if link.startswith(("data:", "#")):
        return []
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return [f"fetches {link}"]
    if page.name == "404.html":
        return []
    return [] if (page.parent / unquote(parts.path)).resolve().exists() else [f"{link} does not exist"]


def main() -> None:
    found = faults(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
    print("\n".join(found) if found else "Links lead somewhere, and nothing is fetched from outside.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
