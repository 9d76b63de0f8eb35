"""How many examples a property test tries."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> settings:
    """`usual` of them, where a test with no word of its own tries 100: a profile (conftest.py) scales both alike."""
    assert settings.default is not None
    return settings(max_examples=usual * settings.default.max_examples // 100)
