"""Puts this folder on the path, so that tests in sub-folders can import the helpers beside this file."""

from __future__ import annotations

import os

from hypothesis import settings

# At a desk every run tries new examples; CI tries the same ones each time: a red run then means that a change broke it.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("desk", deadline=None)
settings.register_profile("search", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "desk"))
