"""MF's items on first steps (M12, M15) and on a trained transformer (M11): numbers by hand, checks that can fail."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers import mf_first_steps, mf_vit, models
from firstguess_papers import mf_first_steps as first
from firstguess_papers import mf_first_steps as pulls
from firstguess_papers.judging import Number
from firstguess_papers.mf_training import EDGE, ORDERED
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, draws_of, starts
from torch import nn

import firstguess as fg
from firstguess.data import Data
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.studies.store import Store

TEXT = "2 x [dense(weight_var=2, bias_var=0.1) > relu] > dense(weight_var=2, bias_var=0.1)"
STEPS = np.array([0, 1, 2, 4, 8, 16, 32, 64])


def _data(n: int = 40, classes: int = 2) -> Data:
    rng = np.random.default_rng(0)
    y = np.arange(n) % classes
    return Data(rng.standard_normal((n, 12)).astype(np.float32) + 0.5 * y[:, None].astype(np.float32), y)


def _run(tmp_path: Path, item: Any = first.first_steps) -> Run:
    return Run(item, quick=True, store=Store(tmp_path))


# -- M12: ranks


def test_rank_correlation_is_spearmans() -> None:
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 4, (5, 10)).astype(float), rng.standard_normal((5, 10))
    expected = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert first.rank_correlation(a, b) == pytest.approx(expected)
    assert math.isnan(first.rank_correlation(np.ones(4), np.arange(4.0)))


def _ranks(curve: Any, absorbed: float, networks: int = 12) -> first.Ranks:
    each = np.linspace(-0.02, 0.02, networks)[:, None]
    draws = np.array([curve(s) for s in STEPS]) + each
    return first.Ranks("made up", STEPS.astype(float), draws, np.full(networks, absorbed))


def test_early_scores_can_speak_for_and_against() -> None:
    fades = _ranks(lambda s: 0.9 / (1 + s / 10), 10.0)
    assert first.judged_ranks([fades]).verdict == "holds"
    assert fades.absorption == pytest.approx(10.0)
    assert 10 ** fades.halved().value == pytest.approx(1.0, abs=0.1)
    lasting = _ranks(lambda s: 0.9 / (1 + s / 40), 1.0)
    assert first.judged_ranks([lasting]).verdict == "holds with a limit"
    none = _ranks(lambda s: 0.05, 10.0)
    assert first.judged_ranks([fades, none]).verdict == "does not hold"
    assert first.judged_ranks([_ranks(lambda s: 0.9, 10.0, networks=5)]).verdict == "not tested"


def test_starting_logits_are_those_of_the_trained_members(tmp_path: Path) -> None:
    x = _data(classes=3, n=30)
    run = _run(tmp_path)
    logits = starts(run, Network.parse(TEXT, classes=3), x.x, 16, range(2), label="t", seed=0)
    r = fg.train(TEXT, data=x, inits=2, width=16, optimizer="gd", lr=1e-3, steps=1)
    shares = np.stack([np.bincount(row.argmax(axis=1), minlength=3) / x.n for row in logits])
    assert np.allclose(shares, r.shares[:, 0])
    scores = first.by_step(_with_classes(r), r.shares[:, 0])
    assert scores.shape == (2, 2)


def _with_classes(r: Any) -> Arm:
    return Arm("t", r.steps, draws_of(r.curves) | draws_of(r.curves, "test "), r.level, shares=r.shares)


# -- M15: gradients of classes


def test_gradients_of_classes_are_autograds() -> None:
    x = _data()
    y = np.array(x.y, dtype=np.int64)
    found = models.follow(TEXT, x.x, y, members=[0, 1], width=16, lr=0.05, looks=[0, 3], seed=2, threads=1)
    norms, shares, right = (np.asarray(found[name]) for name in ("norms", "shares", "right"))
    model = build(Network.parse(TEXT), x.shape, width=16, seed=2, member=1)
    points, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(y)
    for step in range(4):
        model.zero_grad()
        if step in (0, 3):
            for c in range(2):
                loss = nn.functional.cross_entropy(model(points[labels == c]), labels[labels == c])
                slopes = torch.autograd.grad(loss, list(model.parameters()))
                size = math.sqrt(sum(float((g**2).sum()) for g in slopes))
                assert norms[1, int(step == 3), c] == pytest.approx(size, rel=1e-4)
            guesses = model(points).argmax(dim=1)
            assert right[1, int(step == 3)] == pytest.approx(float((guesses == labels).double().mean()))
            assert shares[1, int(step == 3), 0] == pytest.approx(float((guesses == 0).double().mean()))
        nn.functional.cross_entropy(model(points), labels).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad


def test_equal_gradients_take_steps_of_the_same_length() -> None:
    x = _data()
    points, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(np.array(x.y, dtype=np.int64))
    lengths = []
    for equal in (False, True):
        model = build(Network.parse(TEXT), x.shape, width=16, seed=2, member=0)
        before = nn.utils.parameters_to_vector(model.parameters()).detach().double().clone()
        models._descend(model, points, labels, lr=0.5, looks=[0], equal=equal)
        after = nn.utils.parameters_to_vector(model.parameters()).detach().double()
        lengths.append(float((after - before).norm()))
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)
    assert lengths[0] > 0


def _pulled(sign: float, gain: float, networks: int = 300) -> pulls.Pulls:
    rng = np.random.default_rng(0)
    ratio = np.abs(rng.standard_normal(networks))
    norms = np.stack([np.exp(ratio), np.ones(networks)], axis=1)[:, None].repeat(len(STEPS), axis=1)
    right = (0.7 + sign * 0.05 * ratio + 0.01 * rng.standard_normal(networks))[:, None].repeat(len(STEPS), axis=1)
    return pulls.Pulls(STEPS, norms, np.full((networks, len(STEPS), 2), 0.5), right, right[:24] + gain, right)


def test_unequal_gradients_can_speak_for_and_against() -> None:
    assert pulls.judged_pulls({"a": _pulled(-1, 0.1)}).verdict == "holds"
    assert pulls.judged_pulls({"a": _pulled(-1, -0.1)}).verdict == "holds with a limit"
    assert pulls.judged_pulls({"a": _pulled(+1, 0.1)}).verdict == "does not hold"
    assert pulls.judged_pulls({"a": _pulled(0, 0.1)}).verdict == "does not hold"  # no relation, and enough networks
    found = _pulled(-1, 0.1)
    assert found.imbalance[found.third(True)].min() > found.imbalance[found.third(False)].max()
    assert pulls._pull_chart({"a": found}).to_dict()["title"]["text"][0].startswith("Gradients of classes")


# -- M15: the search for a rate


def _search(good: int, regret: float) -> mf_first_steps.Search:
    """This many of six rates end at 0.9, the rest at 0.5; the early favourite loses `regret`."""
    end = np.full((12, 6), 0.5)
    end[:, :good] = 0.9
    end += np.linspace(-0.01, 0.01, 12)[:, None]
    early = np.zeros((12, 6))
    early[:, 0] = 1.0
    end[:, 0] = end[:, 1] - regret if good > 1 else end[:, 0]
    return mf_first_steps.Search(early, end, (0.1,) * 6)


def test_the_search_counts_rates_and_what_an_early_choice_costs() -> None:
    s = _search(3, 0.2)
    assert s.good(0.9).tolist() == [2.0] * 12
    assert s.regret() == pytest.approx([0.2] * 12)
    wide, narrow = _search(5, 0.0), _search(2, 0.3)
    for phi in ("ReLU", "tanh"):
        assert mf_first_steps.judged_search({phi: {EDGE: wide, ORDERED: narrow}}).verdict == "holds"
        assert mf_first_steps.judged_search({phi: {EDGE: narrow, ORDERED: wide}}).verdict == "does not hold"
        assert mf_first_steps.judged_search({phi: {EDGE: wide, ORDERED: wide}}).verdict == "does not hold"
    costly = _search(5, 0.3)
    assert (
        mf_first_steps.judged_search({"tanh": {EDGE: costly, ORDERED: _search(2, 0.0)}}).verdict == "holds with a limit"
    )


# -- M11: a trained transformer


def _tuned(start: float, end: float, rises: float) -> Arm:
    each = np.linspace(-0.01, 0.01, 10)[:, None]
    largest, held = np.full((10, 3), start) + each, np.full((10, 3), end) + each
    loss = np.array([[1.5, 1.0, 1.0 + rises]]) + each
    return Arm("made up", np.array([0, 1, 2]), {"largest": largest, "test accuracy": held, "loss": loss})


def test_scaled_weights_can_speak_for_and_against() -> None:
    past = Number(0.45, 0.01)
    good = {0.5: _tuned(0.9, 0.3, 0.0), 1.0: _tuned(0.5, 0.5, 0.0), 1.5: _tuned(0.4, 0.4, 0.3)}
    assert [e.verdict for e in mf_vit.judged(good, past)] == ["holds", "holds"]
    bad = {0.5: _tuned(0.4, 0.6, 0.0), 1.0: _tuned(0.5, 0.5, 0.0), 1.5: _tuned(0.6, 0.4, 0.0)}
    assert [e.verdict for e in mf_vit.judged(bad, past)] == ["does not hold", "does not hold"]
    half = good | {1.5: _tuned(0.6, 0.4, 0.0)}
    assert [e.verdict for e in mf_vit.judged(half, past)] == ["holds with a limit"] * 2
    assert mf_vit.rises(good[1.5]) == pytest.approx([0.3] * 10)


def test_a_network_that_learned_nothing_tests_nothing() -> None:
    good = {0.5: _tuned(0.9, 0.3, 0.0), 1.0: _tuned(0.5, 0.5, 0.0), 1.5: _tuned(0.4, 0.4, 0.3)}
    assert {e.verdict for e in mf_vit.judged(good, Number(0.21, 0.01))} == {"not tested"}


def test_pre_training_is_kept_and_scaled(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(20) % 5
    x = Data((rng.standard_normal((20, 3, 32, 32)) + y[:, None, None, None]).astype(np.float32), y)
    run = _run(tmp_path, mf_vit.pretrained)
    body = mf_vit.pretraining(3, x, x, steps=3, width=8, blocks=1)
    model = models.made(3, width=8, blocks=1, classes=5)
    fresh = models.weights_of(model).copy()
    images, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(y)
    models.pretrain(model, images, labels, seed=3, steps=3, batch=50, lr=2e-3)
    assert np.allclose(body["weights"], models.weights_of(model), atol=1e-6)
    assert not np.allclose(body["weights"], fresh, atol=1e-4)
    assert body["accuracy"] == pytest.approx(models.accuracy(model, images, labels))
    tuned = mf_vit._tuned(run, [body["weights"]], 0.5, x, x, steps=1, sizes={"width": 8, "blocks": 1})
    # The same by hand: a new head of the member, everything with two axes halved; the guesses at the start.
    r = fg.train(_halved(model), data=x, inits=1, redraw="head", optimizer="adam", lr=1e-3, batch=50, steps=1,
                 strategy="loop", seed=0)  # fmt: skip
    assert tuned.draws["largest"][0, 0] == pytest.approx(r.largest.draws[0, 0])


def _halved(model: models.SmallViT) -> models.SmallViT:
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim >= 2:
                p *= 0.5
    return model
