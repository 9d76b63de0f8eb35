"""A pytest plugin: the fixture `firstguess_gate` and the option `--firstguess-report DIR`.

pytest finds it by itself where firstguess is installed (entry point `pytest11`). Nothing heavy is imported until a test
uses the fixture.

    def test_untrained_network_guesses_evenly(firstguess_gate):
        firstguess_gate(make_net, x, max_share=0.6)

takes what `fg.assert_even` takes. With `pytest --firstguess-report DIR` every gate that fails also leaves a report, the
page of `fg.diagnose`, named after its test.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from firstguess.ensemble.measurement import Measurement

SECONDS = 120.0  # at most, for the diagnosis of a network that failed
_WRITTEN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--firstguess-report`."""
    parser.getgroup("firstguess").addoption(
        "--firstguess-report",
        metavar="DIR",
        default=None,
        help="Write a report (HTML) into DIR for every firstguess_gate that fails.",
    )


@pytest.fixture
def firstguess_gate(request: pytest.FixtureRequest) -> Callable[..., Measurement]:
    """`fg.assert_even`, which also writes a report about a network that fails."""

    def gate(what: Any, data: Any, **options: Any) -> Measurement:
        __tracebackhide__ = True  # pytest shows the user's line
        import firstguess as fg

        try:
            return fg.assert_even(what, data, **options)
        except fg.errors.NotEven:
            folder = request.config.getoption("--firstguess-report")
            if folder is not None:
                _report(request, what, data, Path(str(folder)), options)
            raise

    return gate


def _report(request: pytest.FixtureRequest, what: Any, data: Any, folder: Path, options: dict[str, Any]) -> None:
    """Diagnose a network that failed; where the diagnosis fails itself, that is mentioned in the summary."""
    import firstguess as fg

    limits = ("max_share", "max_gamma", "strict", "inits", "precision", "progress", "seconds")
    kept = {name: value for name, value in options.items() if name not in limits}
    written = request.config.stash.setdefault(_WRITTEN, [])
    name = re.sub(r"[^\w.-]+", "_", request.node.nodeid).strip("_")
    path = next(p for k in range(1, 1000) if str(p := folder / f"{name}{f'-{k}' if k > 1 else ''}.html") not in written)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fg.diagnose(what, data, seconds=SECONDS, progress=False, **kept).save(str(path))
        written.append(str(path))
    except Exception as error:  # the gate's own failure is what counts
        written.append(f"no report of {request.node.nodeid}: {error}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the reports."""
    if written := config.stash.get(_WRITTEN, []):
        terminalreporter.section("firstguess reports")
        for line in written:
            terminalreporter.line(line)
