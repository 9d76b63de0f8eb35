"""The site builds without a warning, links lead somewhere, nothing is fetched, search works from a folder."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import firstguess as fg

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "docs" / "tools"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical", reason="the site needs zensical: `make docs` installs it")
    pytest.importorskip("ziamath", reason="the site needs ziamath: `make docs` installs it")
    pytest.importorskip("latex2mathml", reason="the site needs latex2mathml: `make docs` installs it")
    folder = tmp_path_factory.mktemp("site")
    tool("prepare").prepare(folder / "docs")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for said, here in {
        "docs_dir: build/docs": "docs_dir: docs",  # relative: zensical knows no others
        "paths: [src]": f"paths: [{ROOT}/src]",
        "docs/tools/docstrings.py": f"{TOOLS}/docstrings.py",
    }.items():
        assert said in settings
        settings = settings.replace(said, here)
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(folder / "mkdocs.yml")],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.slow  # runs the tutorials
def test_links_lead_somewhere_and_nothing_is_fetched(site: Path) -> None:
    assert tool("check_site").faults(site) == []
    assert (site / "tutorials" / "one_class.html").exists()


@pytest.mark.slow
def test_pages_in_a_browser(site: Path, browser: Any) -> None:
    """From a folder: no errors, no requests to anywhere, and no page wider than a phone."""
    for name in ("index", "start", "gallery", "claims", "theory", "api/predict", "tutorials/which_norm"):
        for scheme, width in (("light", 1280), ("dark", 420)):
            seen = browser.open(site / f"{name}.html", scheme=scheme, width=width)
            assert seen.errors == [], name
            assert all(url.startswith(("file:", "data:", "blob:")) for url in seen.requests), name
            assert browser.run("document.documentElement.scrollWidth - innerWidth") <= 0, (name, width)
            dark = browser.run("document.body.dataset.mdColorScheme")
            assert dark == ("slate" if scheme == "dark" else "default")


@pytest.mark.slow
def test_search_works_from_a_folder(site: Path, browser: Any) -> None:
    browser.open(site / "index.html")
    browser.page.click(".md-search__button")
    browser.page.locator("input[type=text]").last.wait_for(timeout=30_000)  # within the search's shadow root
    browser.page.keyboard.type("RMSNorm after the activation")
    found = browser.page.locator("a[href*='?h=']")
    found.first.wait_for(timeout=30_000)
    links = [link.get_attribute("href") for link in found.all()]
    assert any("claims/norm.html" in link or "norms.html" in link for link in links)


def page(folder: Path, body: str, name: str = "index.html") -> Path:
    (folder / name).write_text(f"<html><body>{body}</body></html>", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="other.html">x</a>', "other.html does not exist"),
        ('<a href="#there">x</a>', "#there: no such anchor"),
        ('<a href="http://localhost">x</a>', "is no address"),
        ('<a href="ftp:x">x</a>', "leads to no page"),
        ('<script src="https://example.org/a.js"></script>', "fetches https://example.org/a.js"),
        ('<img src="//example.org/a.png">', "fetches //example.org/a.png"),
        ('<img srcset="a.png 2x">', "a.png does not exist"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "fetches"),
        ('<p style="background: url(https://example.org/a.png)">x</p>', "fetches"),
    ],
)
def test_faults_are_found(body: str, fault: str, tmp_path: Path) -> None:
    assert [fault in line for line in tool("check_site").faults(page(tmp_path, body))] == [True]


def test_sound_pages_have_no_faults(tmp_path: Path) -> None:
    body = '<h1 id="a">x</h1><a href="#a">x</a><a href="index.html#a">x</a><a href="https://example.org/b">x</a>'
    assert tool("check_site").faults(page(tmp_path, body)) == []
    (tmp_path / "a.css").write_text("p { background: url(https://example.org/x.png) }", encoding="utf-8")
    assert tool("check_site").faults(tmp_path) == ["a.css: fetches https://example.org/x.png"]


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").glob("*.md")))
    named = set(re.findall(r"^::: firstguess\.(\w+)$", text, flags=re.MULTILINE))
    named |= set(re.findall(r"^<!-- fg\.(\w+) -->$", text, flags=re.MULTILINE)) | set(
        re.findall(r"`fg\.(__\w+__)`", text)
    )
    assert set(dir(fg)) - named == set()
    assert all(hasattr(fg, name) for name in named)


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    nav = re.sub(r"#.*", "", nav)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [name for name in pages if name not in nav] == []


def test_the_gallery_is_what_its_script_writes() -> None:
    gallery = tool("gallery")
    assert (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8") == gallery.page()
    for _, _, code in gallery.FIGURES:
        (name,) = re.findall(r'"(gallery_\w+\.png)"', code)
        assert (ROOT / "docs" / "images" / name).exists()


def test_commands_of_the_gallery_name_items() -> None:
    from firstguess_papers.registry import items as registered

    shown = re.findall(r"`(\w+/[^`]+)`$", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"), re.M)
    assert len(shown) > 60
    assert set(shown) <= set(registered())


def test_github_markdown_is_understood() -> None:
    pages = tool("prepare")
    assert pages.spaced("text:\n- a\n- b\n  - c\nmore") == "text:\n\n- a\n- b\n    - c\nmore"
    assert pages.spaced("text\n| a |\n|---|\n| b |") == "text\n\n| a |\n|---|\n| b |"
    assert pages.spaced("```\ntext\n- a\n```") == "```\ntext\n- a\n```"
    assert pages.one_title("# A\n## B\n# C\n## E\n```\n# D\n```") == "# A\n## B\n## C\n### E\n```\n# D\n```"
    assert pages.one_title("# A\n```\n# D\n```\n## B") == "# A\n```\n# D\n```\n## B"
    assert pages.named_files("[x](../tests/pages.py)", "models.md", set()) == "`tests/pages.py`"
    assert pages.named_files("[x](../CONTRIBUTING.md#tests)", "models.md", set()) == "[x](contributing.md#tests)"
    assert pages.named_files("[x](nowhere.md)", "models.md", set()) == "[x](nowhere.md)"  # building says so
    assert pages.from_root("[x](docs/theory.md)") == "[x](theory.md)"


def test_readme_of_a_package_index_has_no_dead_ends() -> None:
    """Where README is rendered alone there are no files next to it: no pictures, no relative links."""
    pytest.importorskip("hatch_fancy_pypi_readme", reason="`make setup` installs it")
    command = [sys.executable, "-m", "hatchling", "metadata", "readme"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "Does your untrained classifier" in text
    assert "![" not in text
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", text))
    assert "18.391" in text  # the result that the first picture shows, as text


def test_numbers_do_not_break_and_pages_go_by_their_titles() -> None:
    pages = tool("prepare")
    assert pages.unbroken("90 % of 1 797, `5 % of`\n# 5 % of it") == "90\xa0% of 1\xa0797, `5 % of`\n# 5 % of it"
    assert pages.titled_links("[theory.md](theory.md#5-phases)", "start.md") == "[The theory](theory.md#5-phases)"
    assert pages.titled_links("[a page](theory.md)", "start.md") == "[a page](theory.md)"


def test_docstrings_lead_to_the_pages_that_have_what_they_cite() -> None:
    pytest.importorskip("griffe", reason="the site needs mkdocstrings: `make docs` installs it")
    linked = tool("docstrings").linked
    shown = "[theory (6)](../theory.html#eq-6); [theory §5](../theory.html#5-phases)"
    assert linked("theory.md (6); theory.md §5") == shown
    assert linked("theory.md (23)") == "[theory (23)](../theory.html#eq-23)"
    assert linked("theory.md") == "[theory](../theory.html)"
    assert linked(">>> read('theory.md')") == ">>> read('theory.md')"


def test_text_that_a_cell_computes_is_not_shown_as_code() -> None:
    pages = tool("tutorial_pages")
    assert pages.without_text('a = 1\nmo.md(f"""\n{a}\n""")') == "a = 1"
    assert pages.without_text("a = 1\nprint(a)") == "a = 1\nprint(a)"


def test_words_of_the_glossary_are_explained_once_a_page() -> None:
    pages = tool("prepare")
    words = pages.glossary((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert len(words) == 12
    assert all(tip.endswith(".") and '"' not in tip for tip in words.values())
    text = "# Class share\n`class share`, a [class share](x.md), the class share\n| class share |\nclass share"
    shown = pages.explained(text, {"class share": "What it is."})
    assert shown == text.replace("the class share", 'the <abbr title="What it is.">class share</abbr>')


def test_remarks_for_developers_do_not_reach_readers() -> None:
    pages = tool("prepare")
    text = "# T\n<!-- Written by x; do not edit. -->\n*Not run by the tests: it downloads.*\n\n```python\nx\n```"
    assert pages.for_the_site(text, "a.md", set(), {}) == "# T\n\n```python\nx\n```"


def test_tables_that_are_files_stand_in_the_page() -> None:
    """The zoo's rows, which GitHub shows as a file only."""
    text = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    shown = tool("prepare").for_the_site(text, "zoo.md", set(), {})
    assert shown.count("\n| language/") > 100
    assert "<!--" not in shown


def test_programs_find_every_page_in_llms_txt() -> None:
    pages = tool("prepare")
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    shown = pages.overview(texts, (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert shown.startswith("# firstguess\n\n> Does your untrained classifier")
    assert {f"({name.removesuffix('.md')}.html)" for name in texts} == set(re.findall(r"\([\w-]+\.html\)", shown))
    assert "## Use it\n\n- [Start in five minutes](start.html)" in shown


def test_formulae_become_mathml_and_code_does_not() -> None:
    pytest.importorskip("latex2mathml", reason="the site needs latex2mathml: `make docs` installs it")
    shown = tool("mathematics").as_mathml("costs $5, `$x$`, $x_1*y$\n\n$$\na = b \\tag{7}\n$$\n")
    assert shown.startswith('costs $5, `$x$`, <span class="formula"><math')
    assert "*" not in shown
    assert '<div class="equation" id="eq-7">' in shown
    assert '<span class="number">(7)</span>' in shown
    assert "tag" not in shown
    law = tool("mathematics").as_mathml(r"given ($y \sim \mathrm{E}\,x$), then")
    assert '<span class="formula">(<math' in law  # no line break between a formula and its marks
    assert "</math>),</span>" in law
    assert "<mo>&#x223C;</mo>" in law
    assert '<mi mathvariant="normal">&#x00045;</mi>' in law
