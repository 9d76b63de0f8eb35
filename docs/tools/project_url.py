"""Make README's links absolute and add [project.urls], before a release: python docs/tools/project_url.py URL [FOLDER].

The address is that of the repository which makes the release; a checkout does not know it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def absolute(text: str, url: str) -> str:
    """README with links to files as links to the repository's pages, and pictures as its raw files."""
    raw = re.sub(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)", rf"![\1]({url}/raw/main/\2)", text)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]*)\)", rf"[\1]({url}/blob/main/\2)", raw)


def with_urls(settings: str, url: str) -> str:
    """pyproject.toml with the addresses that a package index shows."""
    if re.search(r"^\[project\.urls\]", settings, re.M):
        raise SystemExit("Expected a pyproject.toml without [project.urls], but it has some. Try: a fresh checkout.")
    table = "\n".join(
        ["[project.urls]", f'Homepage = "{url}"', f'Documentation = "{url}/blob/main/docs/index.md"',
         f'Issues = "{url}/issues"', f'Changelog = "{url}/blob/main/CHANGELOG.md"']
    )  # fmt: skip
    return settings.replace("\n[tool.hatch.version]", f"\n{table}\n\n[tool.hatch.version]", 1)


def main(url: str, folder: Path) -> None:
    if not re.fullmatch(r"https://[\w.-]+(/[\w.-]+)+", url):
        raise SystemExit(f"Expected the https address of a repository, but got {url!r}.")
    readme, settings = folder / "README.md", folder / "pyproject.toml"
    settings.write_text(with_urls(settings.read_text(encoding="utf-8"), url), encoding="utf-8")
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), url), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "."))
