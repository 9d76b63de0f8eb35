"""One headless Chromium for all tests of a worker."""

from __future__ import annotations

from collections.abc import Generator

import browser as chromium
import pytest


@pytest.fixture(scope="session")
def browser() -> Generator[chromium.Browser]:
    program = chromium.find_browser()
    if program is None:
        reason = f"no browser on PATH ({', '.join(chromium.NAMES)}): `make browser` installs one where it can"
        if chromium.must_be_there():
            pytest.fail(reason)
        pytest.skip(reason)
    with chromium.started(program) as running:
        yield running
