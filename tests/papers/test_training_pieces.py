"""Training as pieces: numbers are what they say, parts and predictions come back as they were, figures hold them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers.charts import Line, arms_chart, by_class, lines_of
from firstguess_papers.judging import Number
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import MEMBERS, Arm, draws_of, paired, predicted, sooner, trained

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_module import build
from firstguess.studies.store import Store
from firstguess.theory.training.curves import Accuracy, Curve, Curves

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"
OPTIONS: dict[str, Any] = {"optimizer": "gd", "lr": 0.05, "steps": 6, "width": 12}


class _Toy:
    id, version, needs = "norm/toy", 1, ()

    def settings(self, quick: bool) -> str:
        return "toy"


def _run(folder: Path) -> Run:
    return Run(_Toy(), True, Store(folder))


def arm(accuracy: Any, *, real: bool = True, steps: Any = None, favoured: Any = None, largest: Any = None) -> Arm:
    """Curves made by hand: (networks, steps); others are as far below the mean as favoured is above."""
    scores = np.asarray(accuracy, dtype=float)
    at = np.arange(scores.shape[1]) if steps is None else np.asarray(steps)
    first = scores if favoured is None else np.asarray(favoured, dtype=float)
    rest = 2 * scores - first
    shares = np.full_like(scores, 0.5) if largest is None else np.asarray(largest, dtype=float)
    groups: dict[str | int, Any] = {"favoured": first, "others": rest, 0: first, 1: rest}
    curves = Curves(Curve(at, shares), Accuracy(at, scores, groups), Curve(at, 1 - scores))
    return Arm("made", at, draws_of(curves), 0.6, real)


def test_a_trained_curve_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    data = fg.data.two_blobs(20, 8)
    found = trained(_run(tmp_path), NET, data, label="gd", inits=2, **OPTIONS)
    x, y = torch.from_numpy(data.x.copy()), torch.from_numpy(data.y.copy())
    model = build(fg.Network.parse(NET, classes=2), data.x, width=12, seed=0, member=1)
    losses, largest, right = [], [], []
    for _ in range(7):
        logits = model(x)
        guesses = logits.argmax(dim=1)
        loss = torch.nn.functional.cross_entropy(logits, y)
        losses.append(loss.item())
        largest.append(float(torch.bincount(guesses, minlength=2).max()) / 40)
        right.append([float((guesses[y == c] == c).float().mean()) for c in (0, 1)])
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
    np.testing.assert_allclose(found.draws["loss"][1], losses, rtol=1e-4)
    np.testing.assert_allclose(found.draws["largest"][1], largest, atol=1e-6)
    np.testing.assert_allclose(found.curve("class 1").draws[1], [r[1] for r in right], atol=1e-6)
    np.testing.assert_allclose(found.curve("worst").draws[1], [min(r) for r in right], atol=1e-6)
    liked = int(torch.bincount(build(fg.Network.parse(NET, classes=2), data.x, width=12, seed=0, member=1)(x)
                               .argmax(dim=1), minlength=2).argmax())  # fmt: skip
    gap = [r[liked] - r[1 - liked] for r in right]
    np.testing.assert_allclose(found.curve("gap").draws[1], gap, atol=1e-6)


def test_pieces_come_back_with_tests_and_parts(tmp_path: Path) -> None:
    data, test = fg.data.two_blobs(20, 8), fg.data.two_blobs(10, 8, seed=3)
    options = OPTIONS | {"inits": 5, "test": test, "parts": 2}
    first, run = trained(_run(tmp_path), NET, data, label="a", **options), _run(tmp_path)
    again = trained(run, NET, data, label="a", **options)
    assert len(run.reused) == 2
    assert not run.computed
    assert first.networks == 10
    assert first.shares.shape == (10, 7, 2)
    for what in ("largest", "loss", "test worst", "test loss", "gradients"):
        np.testing.assert_array_equal(first.curve(what).draws, again.curve(what).draws)
    whole = fg.train(NET, data=data, test=test, inits=5, seed=0, **OPTIONS)
    assert whole.test is not None
    np.testing.assert_array_equal(first.curve("test accuracy").draws[:5], whole.test.accuracy.draws)
    assert not np.array_equal(first.draws["loss"][:5], first.draws["loss"][5:])  # another seed
    few = first.kept(np.arange(10) < 3)
    np.testing.assert_array_equal(few.curve("test others").draws, first.curve("test others").draws[:3])


def test_predictions_come_back_with_what_explains_them(tmp_path: Path) -> None:
    data = fg.data.two_blobs(20, 8)
    found = predicted(_run(tmp_path), NET, data, label="p", draws=7, **OPTIONS)
    t = fg.predict_training(NET, data=data, draws=7, seed=0, **OPTIONS)
    np.testing.assert_array_equal(found.curve("favoured").draws, t.accuracy["favoured"].draws)
    assert found.about["overshoot"] == pytest.approx(t.overshoot)
    assert t.trust is not None
    assert found.about["trust"] == t.trust.word
    assert math.isnan(found.about["floor"])
    with pytest.raises(InvalidInput):
        found.curve("gradients")


def test_divergence_is_counted_by_rows(tmp_path: Path) -> None:
    data = fg.data.two_blobs(10, 5)
    found = trained(
        _run(tmp_path), NET, data, label="wild", inits=2, parts=2, start="even", optimizer="gd", lr=1e30, steps=4,
        width=6, loss="squared",
    )  # fmt: skip
    assert sorted(row for row, _ in found.diverged) == [0, 1, 2, 3]


def test_functions_and_modules_need_a_name(tmp_path: Path) -> None:
    data = fg.data.two_blobs(10, 5)
    with pytest.raises(InvalidInput, match="name="):
        trained(_run(tmp_path), NET, data, label="x", inits=2, lr=lambda step: 0.1, steps=2, optimizer="gd")


def test_few_trained_networks_decide_nothing() -> None:
    few, many = arm(np.full((MEMBERS - 1, 3), 0.7)), arm(np.full((MEMBERS, 3), 0.7))
    assert math.isnan(few.at("accuracy", 1).error)
    assert many.at("accuracy", 1) == Number(0.7, 0.0)
    assert arm(np.full((3, 3), 0.7), real=False).at("accuracy", 1).error < 1e-12
    with pytest.raises(InvalidInput):
        many.at("accuracy", 17)


def test_thresholds_are_reached_between_looks() -> None:
    rising = arm(np.tile([0.5, 0.6, 0.8], (10, 1)), steps=[0, 10, 20], largest=np.tile([0.9, 0.7, 0.5], (10, 1)))
    assert rising.steps_to("accuracy", 0.7).value == pytest.approx(15.0)
    assert rising.steps_to("largest", 0.6).value == pytest.approx(15.0)
    assert rising.steps_to("accuracy", 0.4).value == 0.0
    assert math.isnan(rising.steps_to("accuracy", 0.9).value)
    assert rising.steps_to("accuracy", 0.9, least=True).value == 20.0
    assert rising.first_look("accuracy", 0.55) == 10
    assert rising.first_look("accuracy", 0.9) is None


def test_networks_that_are_absorbed_nowhere_say_nothing() -> None:
    fast = arm(np.full((2, 3), 0.5), steps=[0, 10, 20], largest=[[0.9, 0.6, 0.5], [0.9, 0.9, 0.9]])
    slow = arm(np.full((2, 3), 0.5), steps=[0, 10, 20], largest=[[0.9, 0.9, 0.9], [0.9, 0.9, 0.9]])
    np.testing.assert_allclose(sooner(slow, fast, 0.6), [10.0, np.nan])


def test_paired_differences_are_network_by_network() -> None:
    rng = np.random.default_rng(1)
    start = rng.random((12, 2))
    found = paired(arm(start + 0.1), arm(start), "accuracy", 1)
    assert found.value == pytest.approx(0.1)
    assert found.error < 1e-12


def test_figures_draw_bands_and_dots() -> None:
    rng = np.random.default_rng(2)
    arms = {name: arm(rng.random((10, 4))) for name in ("before", "after")}
    known = {"after": arm(rng.random((5, 4)), real=False)}
    chart: Any = arms_chart(
        {"share": lines_of("largest", arms, known), "classes": by_class(arms, known), "loss": lines_of("loss", arms)},
        title="t", plain=["loss"], rules={"share": 0.6}, y_domains={"share": (0.4, 1.0)},
    )  # fmt: skip
    text = chart.to_json()
    assert "predicted" in text
    assert "other classes" in text
    assert '"symlog"' in text
    means = [row["mean"] for values in chart.to_dict()["datasets"].values() for row in values if "high" in row]
    assert float(arms["before"].curve("favoured").mean[2]) in means
    with pytest.raises(InvalidInput):
        arms_chart({"nothing": list[Line]()}, title="t")
