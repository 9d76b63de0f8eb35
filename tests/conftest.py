"""Puts this folder on the path, so that tests in sub-folders can import the helpers beside this file.

`pytestmark = pytest.mark.usefixtures("one_thread")` is for files of small models.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# At a desk every run tries new examples; CI tries the same ones each time: a red run then means that a change broke it.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "desk"))


@pytest.fixture
def one_thread() -> Generator[None]:
    """Small products: a second thread costs more than it gives, and far more on a busy machine."""
    import torch  # here: most tests need none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
