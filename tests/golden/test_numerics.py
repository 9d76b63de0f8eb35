"""Cached results carry `NUMERICS`: whoever changes golden numbers must raise it."""

from __future__ import annotations

import copy
import json

import make_numerics

from firstguess._version import NUMERICS


def test_numerics_was_raised_if_golden_numbers_changed() -> None:
    recorded, now = json.loads(make_numerics.RECORD.read_text(encoding="utf-8")), make_numerics.digests()
    assert recorded["numerics"] == NUMERICS, "python tests/golden/make_numerics.py records the new number"
    others = make_numerics.changed(recorded, now)
    assert not others, f"raise NUMERICS in _version.py, then python tests/golden/make_numerics.py: {others[:3]}"
    unknown = [
        name
        for store in make_numerics.STORES
        for name in now[store]["entries"].keys() - recorded[store]["entries"].keys()
    ]
    assert not unknown, f"python tests/golden/make_numerics.py records them: {unknown[:3]}"


def test_a_changed_number_is_noticed() -> None:
    now = make_numerics.digests()
    other = copy.deepcopy(now)
    name = next(iter(other["readings.json"]["entries"]))
    other["readings.json"]["entries"][name] = "00000000"
    assert make_numerics.changed(now, other) == [f"readings.json: {name}"]
    assert make_numerics.changed(now, now) == []
