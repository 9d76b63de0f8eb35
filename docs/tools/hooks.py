"""What `mkdocs` does for us beyond Markdown: pages from files outside docs/, GitHub's Markdown, small pictures.

The pages are written to be read on GitHub as well. GitHub starts a list or a table without an empty line before it,
nests lists by two spaces, and follows links to any file; Python-Markdown and a site do not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tutorial_pages

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}  # file -> its page
THUMBS = "assets/thumbs"
WIDE = 480  # pixels of a small picture: two columns on a sharp screen

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_ITEM = re.compile(r"^( *)(?:[-*+]|\d+\.) ")
_BLOCK = re.compile(r"^(?:[-*+] |\d+\. |\|)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files."""
    for name, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text(encoding="utf-8"))))
    for path, content in tutorial_pages.made(ROOT).items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite what only GitHub understands."""
    known = {file.src_uri for file in files}
    return unbroken(one_title(spaced(named_files(titled_links(markdown, page.file.src_uri), page.file.src_uri, known))))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The gallery shows small pictures, which lead to the large ones."""
    if page.file.src_uri != "gallery.md":
        return html
    return re.sub(r'(<img [^>]*src=")(?:images|claims)/([^"/]+)\.png"', rf'\1{THUMBS}/\2.webp" loading="lazy"', html)


def on_post_build(config: MkDocsConfig) -> None:
    """Draw the small pictures."""
    from PIL import Image

    target = Path(config.site_dir) / THUMBS
    target.mkdir(parents=True, exist_ok=True)
    shown = (Path(config.site_dir) / "gallery.html").read_text(encoding="utf-8")
    for name in set(re.findall(rf'src="{THUMBS}/([^"]+)\.webp"', shown)):
        source = next(
            p for p in (ROOT / "docs/images" / f"{name}.png", ROOT / "docs/claims" / f"{name}.png") if p.exists()
        )
        with Image.open(source) as image:
            small = image.convert("RGB")
            small.thumbnail((WIDE, WIDE))
            small.save(target / f"{name}.webp", quality=82)


def from_root(text: str) -> str:
    """Links of a file at the top of the repository, as they are from within docs/."""
    text = text.replace("](docs/", "](")
    for name, page in OUTSIDE.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def named_files(text: str, page: str, known: set[str]) -> str:
    """Links to files that are no part of the site, tests say, become their names."""

    def rewritten(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path, _, anchor = target.partition("#")
        if mark or not path or re.match(r"[a-z]+:", path):
            return found[0]
        full = (ROOT / "docs" / page).parent / path
        resolved = full.resolve()
        if not resolved.is_relative_to(ROOT):
            return found[0]  # strict building says so
        name = resolved.relative_to(ROOT).as_posix()
        inside = name.removeprefix("docs/")
        if inside in known:
            return found[0]
        if name in OUTSIDE:
            up = "../" * page.count("/")
            return f"[{words}]({up}{OUTSIDE[name]}{'#' + anchor if anchor else ''})"
        return f"`{name}`" if resolved.exists() else found[0]

    return outside_fences(text, lambda line: _LINK.sub(rewritten, line))


def titled_links(text: str, page: str) -> str:
    """On GitHub a page is known by its file; here `[theory.md](theory.md)` is called what its title is."""

    def rewritten(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        path = (ROOT / "docs" / page).parent / target.partition("#")[0]
        if mark or not re.fullmatch(r"(?:docs/)?[\w-]+\.md", words) or not path.is_file():
            return found[0]
        return f"[{path.read_text(encoding='utf-8').partition(chr(10))[0].removeprefix('# ')}]({target})"

    return outside_fences(text, lambda line: _LINK.sub(rewritten, line))


def unbroken(text: str) -> str:
    """No line ends between a number and its %, or within 1 000; headings keep theirs, which name their anchors."""

    def changed(line: str) -> str:
        if line.startswith("#"):
            return line
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(
            part if part.startswith("`") else re.sub(r"(?<=\d) (?=%|\d{3}\b(?![.,]?\d))", "\N{NO-BREAK SPACE}", part)
            for part in parts
        )

    return outside_fences(text, changed)


def one_title(text: str) -> str:
    """A page has one title, or its contents end with the first part: further ones go a level down, with theirs."""
    titles = 0

    def lowered(line: str) -> str:
        nonlocal titles
        titles += line.startswith("# ")
        return f"#{line}" if titles > 1 and re.match(r"#{1,5} ", line) else line

    return outside_fences(text, lowered)


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Change every line that is not code."""
    out: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = re.match(r"^\s*(```+|~~~+)", line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
            out.append(line)
        else:
            out.append(line if fence else change(line))
    return "\n".join(out)


def spaced(text: str) -> str:
    """Lists, tables and code begin after an empty line; nested items are indented by four."""
    out: list[str] = []
    fence, before = "", ""
    for line in text.split("\n"):
        mark = re.match(r"^\s*(```+|~~~+)", line)
        if fence:
            if line.strip().startswith(fence):
                fence = ""
            out.append(line)
            before = "" if not fence else line
            continue
        if mark:
            fence = mark[1]
            if before.strip() and not line.startswith(" "):
                out.append("")
            out.append(line)
            continue
        if _BLOCK.match(line) and before.strip() and not _goes_on(before, line):
            out.append("")
        if (item := _ITEM.match(line)) and item[1]:
            line = " " * (4 * max(1, len(item[1]) // 2)) + line.lstrip()
        out.append(line)
        before = line
    return "\n".join(out)


def _goes_on(before: str, line: str) -> bool:
    """Whether a line belongs to the list or table that the line before is part of."""
    if line.startswith("|"):
        return before.startswith("|")
    return bool(_ITEM.match(before)) or before.startswith("  ")
