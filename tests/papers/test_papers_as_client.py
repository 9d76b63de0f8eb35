"""The papers are a client of firstguess: public names only, titles that follow verdicts."""

from __future__ import annotations

import ast
from pathlib import Path

import firstguess_papers
import pytest
from firstguess_papers import library
from firstguess_papers.items import Entry, Holds, Outcome, Verdict

PACKAGE = Path(firstguess_papers.__file__).parent
PUBLIC = ("firstguess", "firstguess.data", "firstguess.figures", "firstguess.schedules", "firstguess.watch")
# charts whose title names what is shown, or numbers, and states no finding: how many in a file
NEUTRAL = dict.fromkeys(("beyond.py", "igb.py", "igb_centers.py", "norm.py", "norm_depth.py"), 1)


def trees() -> list[tuple[str, ast.Module]]:
    return [(path.name, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(PACKAGE.glob("*.py"))]


def test_only_one_module_knows_what_is_not_public() -> None:
    """`library.py` gathers it; `command.py` is a part of the command line."""
    found = [
        f"{name}:{node.lineno}: {module}"
        for name, tree in trees()
        if name != "library.py"
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        if module.startswith("firstguess.") and module not in PUBLIC
        if name != "command.py" or not module.startswith("firstguess.cli.")
    ]
    assert found == []


def test_the_library_has_what_it_says_and_all_of_it_is_used() -> None:
    places: dict[str, tuple[str, str]] = vars(library)["_places"]()
    for name in places:
        getattr(library, name)
    used = {
        alias.name
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "firstguess_papers.library"
        for alias in node.names
    }
    used |= {
        node.attr
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "library"
    }
    assert used == set(places)
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(library, "no_such_name")  # noqa: B009  (a type checker would refuse the attribute)


def chart_titles(function: ast.AST) -> list[ast.expr]:
    return [
        word.value
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("_chart")
        for word in call.keywords
        if word.arg == "title"
    ]


def test_titles_that_state_a_finding_depend_on_a_check() -> None:
    """A title written out is no finding, or has a partner in `holds=` that stands where the verdicts say so."""
    for name, tree in trees():
        plain = [t for t in chart_titles(tree) if isinstance(t, (ast.Constant, ast.JoinedStr, ast.BinOp))]
        calls = [call for call in ast.walk(tree) if isinstance(call, ast.Call)]
        partners = [call for call in calls if ast.unparse(call.func) == "Holds"]
        found = [w.value for call in calls for w in call.keywords if w.arg == "holds" and isinstance(w.value, ast.Dict)]
        words = [value for one in found for value in one.values if isinstance(value, ast.Constant)]
        assert len(plain) <= len(partners) + len(words) + NEUTRAL.get(name, 0), name


@pytest.mark.parametrize(
    ("verdict", "limited", "title"),
    [("holds", False, "Bias grows"), ("holds with a limit", False, "Bias grows"), ("does not hold", False, "Bias"),
     ("not tested", False, "Bias"), ("holds with a limit", True, "Bias"), ("holds", True, "Bias grows")],
)  # fmt: skip
def test_titles_follow_verdicts(verdict: Verdict, limited: bool, title: str) -> None:
    import firstguess as fg

    chart = fg.figures.lines_chart([fg.figures.Series("a", [1, 2], [1, 2])], title="Bias", x_title="x", y_title="y")
    entries = [Entry("I4", "s", "m", verdict, "why"), Entry("I4", "s", "m", "does not hold", "why")]
    finding = Holds("Bias grows", entries=(0,), verdicts=("holds",) if limited else ("holds", "holds with a limit"))
    outcome = Outcome(entries, {}, {"a": chart}, holds={"a": finding})
    assert outcome.charts["a"].to_dict()["title"]["text"] in (title, [title])
    assert Holds("Bias grows").by(entries) is False  # one of them does not hold
    assert Holds("Bias grows").by([]) is False
