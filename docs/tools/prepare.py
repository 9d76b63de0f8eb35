"""Write the pages that the site is built from into build/docs: python docs/tools/prepare.py.

Pages are written to be read on GitHub as well. GitHub starts a list or a table without an empty line before it, nests
lists by two spaces, typesets `$…$`, and follows links to any file; Python-Markdown and a site do not. Pages that are
made of other files (tutorials, CONTRIBUTING, CHANGELOG), small pictures, tooltips and llms.txt are added here.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mathematics
import tutorial_pages

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "build" / "docs"
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}  # file -> its page
THUMBS = "assets/thumbs"
WIDE = 960  # pixels of a small picture: a column on a sharp screen
# Words of the glossary that get a tooltip where a page first uses them.
EXPLAINED = [
    "initial guessing bias",
    "drift ratio",
    "class share",
    "largest share",
    "closed form",
    "kernel reading",
    "ensemble",
    "absorption",
    "nonlinearity P",
    "frontier",
    "remedy",
    "edge of chaos",
]

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_ITEM = re.compile(r"^( *)(?:[-*+]|\d+\.) ")
_BLOCK = re.compile(r"^(?:[-*+] |\d+\. |\|)")
_KEPT_TOGETHER = re.compile(r"(?<=\d) (?=%|\d{3}\b(?![.,]?\d))|(?<= [<>=≤≥≈±×]) (?=[\d½.−])")
_NOT_RUN = re.compile(r"^\*Not run by the tests: .*\*\n\n?", re.M)  # a remark for the tests, tests/pages.py
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_WHOLE_WIDTH = "---\nhide:\n  - navigation\n  - toc\n---\n\n"  # pictures that one can read take it
_ROWS = re.compile(r"<!-- rows of ([\w/.-]+): ([\w ]+) -->")  # a table that stands in a file of tables
_CAPTION = re.compile(r"Written by `[^`]*`; do not edit\. ")


def prepare(target: Path = TARGET) -> None:
    """Write the whole tree again."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(ROOT / "docs", target, ignore=shutil.ignore_patterns("*.md", "tools", "records"))
    texts = {
        path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    for name, page in OUTSIDE.items():
        texts[page] = from_root((ROOT / name).read_text(encoding="utf-8"))
    others: dict[str, bytes] = {}
    for name, content in tutorial_pages.made(ROOT).items():
        if isinstance(content, str) and name.endswith(".md"):
            texts[name] = content
        else:
            others[name] = content.encode() if isinstance(content, str) else content
    known = {*texts, *others, *(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())}
    words = glossary(texts["glossary.md"])
    shown = {name: for_the_site(text, name, known, words) for name, text in texts.items()}
    others |= {name: text.encode() for name, text in shown.items()}
    others["llms.txt"] = overview(texts, (ROOT / "mkdocs.yml").read_text(encoding="utf-8")).encode()
    for name, content in others.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    mathematics.write_font(target / "assets" / "math.woff", mathematics.letters_of(list(shown.values())))
    draw_small_pictures(target)


def for_the_site(text: str, page: str, known: set[str], words: dict[str, str]) -> str:
    """A page's Markdown as the site's generator understands it."""
    text = _ROWS.sub(lambda found: rows(*found.groups()), _CAPTION.sub("", _NOT_RUN.sub("", text)))
    if not page.startswith("api/"):  # where comments name what the reference holds
        text = _COMMENT.sub("", text)
    text = named_files(titled_links(text, page), page, known)
    if page == "gallery.md":
        text = re.sub(
            r"(!\[[^\]]*\]\()(?:images|claims)/([^()/]+)\.png\)", rf"\1{THUMBS}/\2.webp){{ loading=lazy }}", text
        )
    elif page != "glossary.md":
        text = explained(text, words)
    text = unbroken(one_title(spaced(mathematics.as_mathml(text))))
    return _WHOLE_WIDTH + text if page == "gallery.md" else text


def rows(file: str, table: str) -> str:
    """A table by its name, out of a file of several."""
    parts = (ROOT / "docs" / file).read_text(encoding="utf-8").strip().split("\n\n")
    return parts[parts.index(table) + 1]


def glossary(text: str) -> dict[str, str]:
    """Words that get a tooltip, each with the first sentence that the glossary says of it."""
    entries = {name.lower(): said for name, said in re.findall(r"^\*\*(.+?)\.\*\* (.+?[.!?])(?:\s|$)", text, re.M)}
    return {word: re.sub(r"[`*$]", "", entries[word.lower()]) for word in EXPLAINED}


def explained(text: str, words: dict[str, str]) -> str:
    """The first mention of each word in running text, with its meaning as a tooltip."""
    left = dict(words)

    def marked(line: str) -> str:
        if line.startswith(("#", "|", "    ", "<", "![", ":::")):
            return line
        parts = re.split(r"(`[^`]*`|\$[^$]*\$|!?\[[^\]]*\]\([^)]*\)|<[^>]*>)", line)
        for word in list(left):
            for k in range(0, len(parts), 2):
                if (found := re.search(rf"\b{re.escape(word)}\b", parts[k], re.I)) is not None:
                    tip = f'<abbr title="{left.pop(word)}">{found[0]}</abbr>'
                    parts[k : k + 1] = [parts[k][: found.start()], tip, parts[k][found.end() :]]
                    break
        return "".join(parts)

    return outside_fences(text, marked)


def overview(texts: dict[str, str], settings: str) -> str:
    """llms.txt: every page of the navigation with its title and first sentence, for programs that read the site."""
    lines = ["# firstguess", "", f"> {re.search(r'site_description: (.*)', settings)[1]}", ""]  # pyright: ignore
    for heading, name in re.findall(r"^  - ([^:\n]+):$|([\w/-]+\.md)$", settings.partition("\nnav:")[2], re.M):
        if heading:
            lines += ["", f"## {heading}", ""]
        elif name in texts:
            title, first = summary(texts[name])
            lines.append(f"- [{title}]({name.removesuffix('.md')}.html){': ' + first if first else ''}")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def summary(text: str) -> tuple[str, str]:
    """A page's title, and its first sentence without links and marks."""
    text = _COMMENT.sub("", text)
    title = re.search(r"^# (.+)$", text, re.M)
    prose = re.sub(r"```.*?```", "", text[title.end() :] if title else text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", prose):
        block = " ".join(block.split())
        if block and not block.startswith(("#", "|", "!", "<", "-", ":::", "---")):
            plain = re.sub(r"[*`$]", "", _LINK.sub(r"\2", _CAPTION.sub("", block)))
            return title[1] if title else "", re.split(r"(?<=[.?!]) (?=[A-Z`])", plain)[0]
    return title[1] if title else "", ""


def draw_small_pictures(target: Path) -> None:
    """What the gallery shows, which leads to the large pictures."""
    from PIL import Image

    (target / THUMBS).mkdir(parents=True, exist_ok=True)
    shown = (target / "gallery.md").read_text(encoding="utf-8")
    for name in set(re.findall(rf"\({THUMBS}/([^)]+)\.webp\)", shown)):
        source = next(p for p in (target / "images" / f"{name}.png", target / "claims" / f"{name}.png") if p.exists())
        with Image.open(source) as image:
            small = image.convert("RGB")
            small.thumbnail((WIDE, WIDE))
            small.save(target / THUMBS / f"{name}.webp", quality=82)


def from_root(text: str) -> str:
    """Links of a file at the top of the repository, as they are from within docs/."""
    text = text.replace("](docs/", "](")
    for name, page in OUTSIDE.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text


def named_files(text: str, page: str, known: set[str]) -> str:
    """Links to files that are no part of the site, e.g. tests, become their names."""

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
    """No line ends between a number and its %, after < or ±, or within 1 000; headings stay, they name anchors."""

    def changed(line: str) -> str:
        if line.startswith("#"):
            return line
        parts = re.split(r"(`[^`]*`)", line)
        return "".join(
            part if part.startswith("`") else _KEPT_TOGETHER.sub("\N{NO-BREAK SPACE}", part) for part in parts
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
        if _BLOCK.match(line) and before.strip() and not _continues(before, line):
            out.append("")
        if (item := _ITEM.match(line)) and item[1]:
            line = " " * (4 * max(1, len(item[1]) // 2)) + line.lstrip()
        out.append(line)
        before = line
    return "\n".join(out)


def _continues(before: str, line: str) -> bool:
    """Whether a line belongs to the list or table that the line before is part of."""
    if line.startswith("|"):
        return before.startswith("|")
    return bool(_ITEM.match(before)) or before.startswith("  ")


if __name__ == "__main__":
    prepare()
