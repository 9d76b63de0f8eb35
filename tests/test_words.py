"""Names and docstrings are in the field's own words: those that only the authors knew do not come back.

A room is listed with the words that are gone from it; as rooms are cleaned, the lists grow.
"""

import ast
import re
from pathlib import Path

import pytest

import firstguess

ROOT = Path(firstguess.__file__).parent
ROOMS = sorted(path.name for path in ROOT.iterdir() if (path / "__init__.py").exists())
GROUND = ("base", "network", "data", "theory")

# In names of modules, classes and functions, as a whole part of the name.
NAMES_EVERYWHERE = set(
    [
        "handful",
        "foretell",
        "foretold",
        "carry",
        "twin",
        "twins",
        "rays",
        "bends",
        "parity",
        "absorbing",
        "owned",
        "driving",
        "kept",
        "told",
        "asked",
        "pieces",
        "arm",
    ]
)
NAMES_GROUND = NAMES_EVERYWHERE | set(
    [
        "pupil",
        "lesson",
        "teach",
        "foretold",
        "stretch",
        "lasting",
        "piece",
        "pieces",
        "kept",
        "arm",
        "lent",
        "borrowed",
        "told",
        "stated",
        "judged",
        "asked",
        "knob",
        "law",
        "laws",
        "site",
        "claims",
        "passive",
        "kit",
        "behind",
        "dealt",
        "anew",
        "unseen",
    ]
)
RUNNERS = ("ensemble", "modules")
NAMES_RUNNERS = NAMES_EVERYWHERE | set(
    ["pupil", "lesson", "teach", "stretch", "lent", "borrowed", "grain", "claims", "passive", "kit", "behind", "anew"]
)
# In docstrings: `a name` and what is quoted do not count.
DOCS_EVERYWHERE = ["handful", "foretold by", "drawn anew each"]
DOCS_GROUND = [
    "handful",
    "foretold",
    "knob",
    "stretch",
    "twins",
    "law",
    "laws",
    "behind",
    "in front of",
    "drawn anew",
    "so many",
    "as asked",
]
DOCS_RUNNERS = ["handful", "foretold", "pupil", "lesson", "borrowed", "law", "laws", "in front of", "drawn anew"]


def parts(name: str) -> set[str]:
    """The words of a name: `_PointSample`, `point_sample` → point, sample."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [path.stem, *(node.name for node in ast.walk(tree) if isinstance(node, kinds))]


def docstrings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
    return [re.sub(r"`[^`]*`|\"[^\"\n]*\"|^\s*(>>>|\.\.\.).*$", "", text, flags=re.M) for text in found]


def test_parts_of_names() -> None:
    assert parts("_PointSample") == parts("point_sample") == {"point", "sample"}
    assert parts("SEVERAL_LAWS") == {"several", "laws"}
    assert not {"law", "arm"} & (parts("lawful") | parts("warm"))


@pytest.mark.parametrize("room", ROOMS)
def test_names(room: str) -> None:
    went = NAMES_GROUND if room in GROUND else NAMES_RUNNERS if room in RUNNERS else NAMES_EVERYWHERE
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / room).rglob("*.py")
        for name in names(path)
        if parts(name) & went
    }
    assert not found


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings(room: str) -> None:
    went = DOCS_GROUND if room in GROUND else DOCS_RUNNERS if room in RUNNERS else DOCS_EVERYWHERE
    pattern = re.compile(rf"\b({'|'.join(went)})\b", re.I)
    found = {
        f"{path.relative_to(ROOT)}: …{text[max(0, hit.start() - 40) : hit.end() + 40]}…"
        for path in (ROOT / room).rglob("*.py")
        for text in docstrings(path)
        for hit in pattern.finditer(text)
    }
    assert not found


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "modules"])  # where some are left
def test_docstrings_begin_with_a_verb_or_what_is_returned(room: str) -> None:
    """No preposition in front of a thing that is not named: "Of batches: the least …" says neither."""
    begins = "Of|By|From|For|Over|With|As(?! many)|At(?! most)|After|Before|In|Into|On|Up|To|Until|Like|When|And|So|Not"
    pattern = re.compile(rf"({begins})\b")
    found = {
        f"{path.relative_to(ROOT)}: {text[:60]}"
        for path in (ROOT / room).rglob("*.py")
        for text in docstrings(path)
        if pattern.match(text)
    }
    assert not found


def test_one_class_name_one_meaning() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}
