"""Names of the room: each is where the table says."""

from __future__ import annotations

import pytest

from firstguess import watch


def test_every_name_of_the_room_resolves() -> None:
    for package in ("lightning", "transformers"):
        pytest.importorskip(package)
    assert [getattr(watch, name).__name__ for name in watch.__all__] == watch.__all__
