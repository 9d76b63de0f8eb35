"""MF's items on training: their numbers against plain loops, and checks that can fail.

Nothing here is random but for seeds that are arbitrary: numbers are compared with the same numbers got another way.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers import mf_training
from firstguess_papers import training_pieces as speed
from firstguess_papers.claims import CLAIMS
from firstguess_papers.mf_training import BIASED, EDGE, NEUTRAL, ORDERED, Sweep, judged, phases_title
from firstguess_papers.registry import items
from firstguess_papers.running import Run
from firstguess_papers.training_pieces import Arm, draws_of
from torch import nn

import firstguess as fg
from firstguess.data import Data
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.studies.store import Store
from firstguess.theory.training.curves import Accuracy, Curve, Curves

TEXT = "2 x [dense(weight_var=2, bias_var=0.1) > relu] > dense(weight_var=2, bias_var=0.1)"
STEPS = np.array([0, 1, 2, 4, 8, 16, 32, 64])


def _data(n: int = 40, d: int = 12, classes: int = 2, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return Data(rng.standard_normal((n, d)).astype(np.float32) + 0.5 * y[:, None].astype(np.float32), y)


def _run(tmp_path: Path, item: Any = mf_training.training) -> Run:
    return Run(item, quick=True, store=Store(tmp_path))


def _arm(largest: Any, accuracy: Any, held: Any, networks: int = 12, diverged: int = 0) -> Arm:
    """Curves over STEPS from three functions of the step, with a little spread over networks."""
    each = np.linspace(-0.01, 0.01, networks)[:, None]

    def curves(score: Any) -> Curves:
        draws = np.array([score(s) for s in STEPS]) + each
        share = np.array([largest(s) for s in STEPS]) + each
        share[:diverged, 2:] = draws[:diverged, 2:] = math.nan
        groups: dict[str | int, Any] = {"favoured": draws, "others": draws, 0: draws, 1: draws}
        return Curves(Curve(STEPS, share), Accuracy(STEPS, draws, groups), Curve(STEPS, 1 - draws))

    return Arm("made up", STEPS, draws_of(curves(accuracy)) | draws_of(curves(held), "test "), 0.6)


def _falls(at: float) -> Any:
    """A largest share that falls through 0.6 at about step `at`."""
    return lambda s: 0.5 + 0.5 / (1 + (s / at) ** 2) * 0.8


def _sweep(times: dict[str, float], ends: dict[str, float], last: dict[str, float] | None = None) -> Sweep:
    """Phases whose bias is absorbed at these steps and whose held-out accuracy ends so."""
    arms = {}
    for phase, at in times.items():
        share = _falls(at) if last is None else (lambda s, v=last[phase]: v)
        arms[phase] = _arm(share, lambda s, e=ends[phase]: e - 0.3 / (1 + s), lambda s, e=ends[phase]: e)
    return Sweep(arms, {}, dict.fromkeys(arms, 0.1), "made up")


FAST_EDGE = {ORDERED: 30.0, EDGE: 3.0, BIASED: 12.0, NEUTRAL: 1.0}
SLOW_EDGE = {ORDERED: 30.0, EDGE: 12.0, BIASED: 3.0, NEUTRAL: 1.0}
BEST_EDGE = {ORDERED: 0.6, EDGE: 0.9, BIASED: 0.8, NEUTRAL: 0.7}
WORSE_EDGE = {ORDERED: 0.9, EDGE: 0.8, BIASED: 0.85, NEUTRAL: 0.95}


# -- The items


def test_items_on_training_answer_their_claims() -> None:
    mine = ("training", "training-cifar10", "vit-training", "first-steps", "class-gradients", "lr-search", "pretrained")
    found = {claim for name in mine for claim in items()[f"mf/{name}"].claims}
    assert found == {"M10", "M11", "M12", "M15"}
    assert found <= set(CLAIMS)


# -- Speeds


def test_absorption_for_good_is_not_the_first_time_below_the_level() -> None:
    # A hand-over at step 2: below the level once, then above, then below for good from step 16 on.
    rows = np.array([[0.9, 0.9, 0.55, 0.8, 0.7, 0.5, 0.5, 0.5], [0.55] * 8, [0.9] * 8])
    rows = np.vstack([rows, [0.9, 0.9, *[math.nan] * 6]])
    scores = np.zeros_like(rows)
    groups: dict[str | int, Any] = {"favoured": scores, "others": scores, 0: scores, 1: scores}
    curves = Curves(Curve(STEPS, rows), Accuracy(STEPS, scores, groups), Curve(STEPS, scores))
    arm = Arm("four", STEPS, draws_of(curves), 0.6)
    found = speed.settled(arm)
    assert found[0] == pytest.approx(8 + 8 * (0.7 - 0.6) / (0.7 - 0.5))
    assert arm.reached("largest", arm.level)[0] < 2
    assert found[1] == 0.0
    assert math.isinf(found[2])
    assert math.isinf(found[3])
    assert speed.log_steps(found, 64)[2:].tolist() == pytest.approx([math.log10(65)] * 2)


def test_a_network_that_diverged_counts_as_guessing_one_class() -> None:
    arm = _arm(lambda s: 0.6, lambda s: 0.9, lambda s: 0.9, diverged=3)
    assert speed.scores(arm, "test accuracy")[:4].tolist() == pytest.approx([0.5, 0.5, 0.5, 0.9 - 0.01 + 3 * 0.02 / 11])
    assert speed.scores(arm, "largest")[0] == 1.0
    looks = speed.over_looks(arm, "accuracy")
    assert looks[0] == pytest.approx((0.9 - 0.01 + 6 * 0.5) / 7)


def test_fewer_than_ten_networks_decide_nothing() -> None:
    one, other = np.linspace(0.8, 0.81, 9), np.linspace(0.5, 0.51, 9)
    assert speed.more(one, other, room=0.02) is None
    assert speed.more(np.append(one, 0.8), np.append(other, 0.5), room=0.02) is True


def test_more_and_less_say_no_to_equals() -> None:
    one = 0.5 + 0.001 * np.sin(np.arange(20))
    assert speed.more(one, np.full(20, 0.5), room=0.02) is False
    assert speed.more(np.full(20, 0.7), one, room=0.02) is True
    assert speed.more(np.full(20, 0.3), one, room=0.02) is False
    wide = 0.5 + 0.2 * np.sin(np.arange(20))
    assert speed.more(wide, np.full(20, 0.5), room=0.02) is None


def test_balanced_points_and_held_out_ones(tmp_path: Path) -> None:
    uneven = Data(np.arange(60.0).reshape(30, 2), np.array([0] * 20 + [1] * 10))
    even = speed.chosen(uneven, (6, 6))
    assert np.bincount(even.y).tolist() == [6, 6]
    for row, label in zip(even.x, even.y, strict=True):
        at = int(row[0] / 2)
        assert uneven.y[at] == label
    whole = _run(tmp_path).data("digits", points=50)
    x, held = speed.with_held_out(_run(tmp_path), "digits", 30, 20)
    assert (x.n, held.n) == (30, 20)
    both = {tuple(row.ravel()) for row in x.x} | {tuple(row.ravel()) for row in held.x}
    assert both == {tuple(row.ravel()) for row in whole.x}
    assert len(both) == 50


# -- M10: phases


def _entries(main: Sweep, own: Sweep, other: Sweep) -> dict[str, Any]:
    found = judged({"tanh": main}, {"tanh": own}, {"tanh": other}, other_words="5 layers", subjects="tanh")
    return {entry.statement.split("”")[0].strip("“"): entry for entry in found}


def test_absorbing_and_learning_are_judged_apart() -> None:
    slow_but_best = _sweep(SLOW_EDGE, BEST_EDGE)
    found = _entries(slow_but_best, slow_but_best, slow_but_best)
    assert found["the edge absorbs fastest"].verdict == "does not hold"
    assert found["the edge learns best"].verdict == "holds"
    assert found["the edge learns fastest"].verdict == "holds"
    assert found["deep chaos learns poorly"].verdict == "holds"
    assert found["ordered networks keep the bias"].verdict == "does not hold"
    fast_but_worse = _sweep(FAST_EDGE, WORSE_EDGE)
    found = _entries(fast_but_worse, fast_but_worse, fast_but_worse)
    assert found["the edge absorbs fastest"].verdict == "holds"
    assert found["the edge learns best"].verdict == "does not hold"
    assert found["the edge learns fastest"].verdict == "does not hold"
    assert found["deep chaos learns poorly"].verdict == "does not hold"


def test_ordered_networks_that_keep_their_bias() -> None:
    kept = _sweep(FAST_EDGE, BEST_EDGE, {ORDERED: 0.95, EDGE: 0.55, BIASED: 0.55, NEUTRAL: 0.52})
    assert _entries(kept, kept, kept)["ordered networks keep the bias"].verdict == "holds"


def test_rates_and_depth_limit_a_verdict() -> None:
    good, bad = _sweep(FAST_EDGE, BEST_EDGE), _sweep(SLOW_EDGE, WORSE_EDGE)
    found = _entries(good, bad, good)["the edge learns best"]
    assert (found.verdict, found.why.startswith("not with own rates: ")) == ("holds with a limit", True)
    assert _entries(good, good, bad)["the edge absorbs fastest"].why.startswith("not with 5 layers: ")


def test_phases_that_learned_nothing_or_had_no_bias_decide_nothing() -> None:
    chance = dict.fromkeys(BEST_EDGE, 0.51)
    idle = _sweep(FAST_EDGE, chance)
    found = _entries(idle, idle, idle)["the edge learns best"]
    assert (found.verdict, found.why) == ("not tested", "no phase of tanh ends past chance by 0.05")
    even = _sweep(FAST_EDGE, BEST_EDGE, dict.fromkeys(BEST_EDGE, 0.52))
    found = _entries(even, even, even)["the edge absorbs fastest"]
    assert found.verdict == "not tested"
    assert found.why.startswith("not clearly biased at the start: tanh ordered, tanh edge")


def test_titles_say_what_was_found() -> None:
    title = phases_title({"tanh": _sweep(SLOW_EDGE, BEST_EDGE)})
    assert title == ("The edge of chaos is not the first to absorb its bias, but learns best, at one rate")
    both = phases_title({"tanh": _sweep(FAST_EDGE, BEST_EDGE)})
    assert both.startswith("The edge of chaos absorbs its bias first and learns best")
    few = {phase: _arm(_falls(3), lambda s: 0.7, lambda s: 0.7, networks=5) for phase in (ORDERED, EDGE, BIASED)}
    assert phases_title({"tanh": Sweep(few, {}, {}, "few")}) == "Phases in training, at one rate"


def test_a_curve_of_the_phases_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    from firstguess.ensemble.seeds import orders

    x = _data()
    arm = mf_training.trained(
        _run(tmp_path), TEXT, x, label="t", inits=2, width=16, optimizer="sgd", batch=15, lr=0.02, steps=12
    )
    model = build(Network.parse(TEXT), x.shape, width=16, seed=0, member=1)
    optimizer, order = torch.optim.SGD(model.parameters(), lr=0.02), orders(0, 1, x.n, 15)
    points, labels = torch.from_numpy(np.array(x.x)), torch.from_numpy(np.array(x.y, dtype=np.int64))
    for _ in range(12):
        rows = torch.from_numpy(next(order))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points[rows]), labels[rows]).backward()
        optimizer.step()
    guesses = model(points).argmax(dim=1)
    assert arm.values("accuracy", 12)[1] == pytest.approx(float((guesses == labels).double().mean()))
    share = float(torch.bincount(guesses, minlength=2).max()) / x.n
    assert arm.values("largest", 12)[1] == pytest.approx(share)


def test_a_tiny_sweep_gives_entries_tables_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(run: Run, spec: str, points: int, held: int) -> tuple[Data, Data]:
        return _data(30), _data(20, seed=1)

    monkeypatch.setattr(mf_training, "with_held_out", parts)
    sizes = dict(depth=2, other=1, width=12, steps=4, inits=2, points=30, held=20)
    run, again = (Run(mf_training.training, True, Store(tmp_path), changed=sizes) for _ in range(2))
    outcome = mf_training.training.outcome(run)
    assert len(outcome.entries) == 5
    assert {e.verdict for e in outcome.entries} == {"not tested"}  # two networks decide nothing
    assert set(outcome.charts) == {"one_rate", "own_rates"}
    sources = set(outcome.tables["summary"]["source"])
    assert sources == {"trained", "predicted"}
    mf_training.training.outcome(again)
    assert not again.computed
    # One rate is the edge's own: 0.2 of 2κ/λ of its wide limit.
    edge = mf_training.mf_settings()[4]
    assert edge.name == "tanh, edge"
    t = fg.predict_training(edge.text(2), data=_data(30), lr=1e-12, steps=1, width=12, draws=4, trust=False)
    rates = {r for a, r in zip(outcome.tables["curves"]["activation"], outcome.tables["curves"]["rate"], strict=True)
             if a == "tanh"}  # fmt: skip
    assert any(r == pytest.approx(0.2 * t.overshoot) for r in rates)


# -- The plain transformer


def test_the_plain_transformers_rate_is_that_of_its_common_mode() -> None:
    rng = np.random.default_rng(0)
    x = Data(rng.standard_normal((6, 3, 32, 32)).astype(np.float32), np.arange(6) % 2)
    found = mf_training._eigenvalues(x.x[:6], weight_var=1.2, blocks=1, width=6, seed=0)["values"].mean()
    from firstguess_papers.models import VanillaViT

    squares = []
    for member in range(1000, 1004):
        model = VanillaViT(width=6, blocks=1, classes=2, weight_var=1.2, seed=0, member=member)
        logits = model(torch.from_numpy(np.array(x.x)))
        (logits[:, 1].mean() - logits[:, 0].mean()).backward()
        squares.append(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))
    assert found == pytest.approx(np.mean(squares) / 2, rel=1e-4)


def test_plain_transformers_of_all_phases_share_their_directions() -> None:
    ordered, chaotic = (mf_training.factory(width=6, blocks=1, weight_var=v) for v in (0.5, 2.0))
    torch.manual_seed(3)
    one = ordered()
    torch.manual_seed(3)
    two = chaotic()
    torch.manual_seed(4)
    three = chaotic()
    assert torch.allclose(2 * one.head.weight, two.head.weight)
    assert not torch.allclose(two.head.weight, three.head.weight)
