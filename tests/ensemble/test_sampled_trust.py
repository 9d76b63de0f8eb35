"""Adam's prediction says where too few weights were sampled for the points."""

from __future__ import annotations

import pytest

import firstguess as fg


@pytest.mark.parametrize(("points", "word"), [(100, "good"), (350, "rough")])
def test_many_points_want_many_weights(points: int, word: str) -> None:
    """Seen in training: at 2000 points of 1000 dimensions the accuracy is 0.14 lower than predicted to be right."""
    data = fg.data.two_blobs(points, 30)
    t = fg.predict_training("dense(weight_var=2) > relu > dense(weight_var=2)", data=data, lr=1e-5, steps=2, draws=4,
                            optimizer="adam", width=600)  # fmt: skip
    assert t.trust is not None
    assert t.trust.word == word
    assert ("too few" in t.trust.why) == (word == "rough")
