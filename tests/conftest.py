"""Puts this folder on the path, so that tests in sub-folders can import the helpers next to this file.

`pytestmark = pytest.mark.usefixtures("one_thread")` is for files of small models.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# `make test` tries the same examples each time, in CI and at a desk alike: a red run then means that a change broke it.
# `make test-all` tries new ones; `search` is for a test of its own, or before a release: fifty times as many.
# Not on top of Hypothesis's own profile for CI, and no time limits: a machine may be busy.
_desk = settings(settings.get_profile("default"), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fixed", _desk, derandomize=True)
settings.register_profile("random", _desk)
settings.register_profile("search", _desk, max_examples=50 * _desk.max_examples)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

os.environ.pop("COLUMNS", None)  # xdist gives its workers one, which piped output respects: here as without workers

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what a background job starts ignores Ctrl-C, and tests press it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def one_thread() -> Generator[None]:
    """Small products: a second thread costs more than it gives, and far more on a busy machine."""
    import torch  # here: most tests need none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def browser() -> Generator[Any]:
    """One headless Chromium for all tests of a worker."""
    import browser as chromium  # here: most tests need none

    program = chromium.find_browser()
    if program is None:
        reason = f"no browser on PATH ({', '.join(chromium.NAMES)}): `make browser` installs one where it can"
        if chromium.must_be_there():
            pytest.fail(reason)
        pytest.skip(reason)
    with chromium.started(program) as running:
        yield running


# Tests that `make test` leaves to `make test-rest` because of their time, by the last whole run that was timed: see
# `tests/tools/choose_quick.py`. CI runs both.
_LONG = frozenset(Path(__file__).with_name("long_tests.txt").read_text("utf-8").split())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.partition("[")[0] in _LONG:
            item.add_marker("long")
