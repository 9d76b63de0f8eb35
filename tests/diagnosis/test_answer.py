"""The answer: each rule by hand-made diagnoses, each number by a second way, and real models with planted faults."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import diagnoses
import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import collect, load
from firstguess.diagnosis.answer import AGREE, LEAST_STEPS, Answer, Duration, Trains
from firstguess.diagnosis.bias_duration import PredictedDuration
from firstguess.diagnosis.diagnose import _duration_known  # pyright: ignore[reportPrivateUsage]
from firstguess.diagnosis.rehearsal import Rehearsal, by_class_means, likely_steps
from firstguess.diagnosis.result import Diagnosis
from firstguess.diagnosis.sentences import best_change, rows_of
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.sources import source_of

LEARNS = Rehearsal(
    how="Adam at lr 0.001", at=(0, 32, 64), left=(1.0, 0.3, 0.1), largest=(0.8, 0.4, 0.2), accuracy=(0.1, 0.3, 0.6),
    loss=(2.3, 2.0, 1.0), steps=40.0, learns=True, inits=8, classes=10,
)  # fmt: skip


def made(word: str = "biased", seen: Rehearsal | None = LEARNS, **other: Any) -> Diagnosis:
    """A diagnosis with this verdict, whose copies did this."""
    d = diagnoses.sample()
    return replace(d, verdict=replace(d.verdict, name=word, chances=()), rehearsal=seen, **other)


def fault(name: str) -> Any:
    found = diagnoses.fault(name)
    return (found,)


# -- The rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["even", "leaning", "biased", "deeply biased", "repeats its input", "degenerate head"])
def test_a_fault_wins_over_everything(word: str) -> None:
    d = made(word, faults=fault("softmax twice"))
    assert d.answer is Answer.FIX
    assert d.headline.lower().startswith(d.faults[0].message[:20].lower())
    assert [name for name, _ in rows_of(d)] == ["Fix"]
    assert best_change(d) is None
    page = str(d)
    assert page.startswith("FIX THIS")
    assert "Is it expected?" not in page
    assert "What to change" not in page
    alone = made(word, None, faults=fault("softmax twice"))
    assert (alone.will_train.word, alone.will_train.reason) == (Trains.RISK, "fix this first (softmax twice)")


def test_will_it_train_is_yes_at_risk_or_no_or_not_on_the_page() -> None:
    unknown = made("biased", None, trainability=None)
    assert unknown.will_train.word is Trains.UNKNOWN
    assert "Will it train?" not in str(unknown)
    for d in (made(), made("biased", replace(LEARNS, learns=False)), made("even", None, faults=fault("zero head"))):
        assert str(d).partition("Will it train?")[2].split()[0].strip(":") in ("Yes", "At", "No")


def test_the_code_that_a_page_names_is_of_the_change_that_it_asks_for() -> None:
    """Where training is at risk the first of an even start is not what the answer asks for."""
    d = made("deeply biased", replace(LEARNS, learns=False))
    wanted = replace(d.advice[0], remedy="tune", title="tune it", aim="training", code="fg.tune(model)")
    even = replace(d.advice[0], remedy="centre the head", aim="even start", code="fg.repair(model, loader)")
    d = replace(d, advice=(even, wanted))
    assert best_change(d) is wanted
    assert dict(rows_of(d))["Change"].endswith("; d.ranked[1].code")
    assert "or d.ranked[1].code" in str(d)


def test_what_depth_does_is_no_fault_with_a_remedy_of_its_own() -> None:
    d = made("deeply biased", LEARNS, faults=fault("zero head"))
    assert d.answer is not Answer.FIX
    assert "Also seen, need not be fixed" in str(d)
    assert "What to do" not in str(d)


def test_what_is_often_meant_is_no_fault_where_copies_learn() -> None:
    zero = fault("zero head")
    assert made("degenerate head", faults=zero).answer is Answer.HARMLESS
    assert made("degenerate head", replace(LEARNS, learns=False), faults=zero).answer is Answer.FIX


def test_gradients_that_vanish_in_every_initialization_ask_for_a_change() -> None:
    """Depth does it, and copies tell whether it learns: a fault is what one instance has, and its architecture not."""
    train, fails = diagnoses.sample().trainability, replace(LEARNS, learns=False)
    assert train is not None
    deep = replace(train, gradients=diagnoses.gradients(9, factor=1e-2))
    vanish = fault("gradients vanish")
    assert made("biased", fails, faults=vanish, trainability=deep).answer is Answer.CHANGE
    assert made("biased", fails, faults=vanish).answer is Answer.FIX  # the ensemble's gradients do not vanish
    assert made("biased", faults=vanish, trainability=deep).answer is Answer.HARMLESS  # it learns all the same
    explode = replace(train, gradients=diagnoses.gradients(9, factor=1e2))
    assert made("biased", fails, faults=fault("gradients explode"), trainability=explode).answer is Answer.CHANGE


def test_what_learns_slowly_is_worth_a_change() -> None:
    """Half of what the nearest class mean knows, after 256 steps: chance is 10 %, so that 50 % are half of 90 %."""
    slow = replace(LEARNS, at=(0, 128, 256), accuracy=(0.1, 0.3, 0.49), easy=0.9)
    d = made("even", slow)
    assert (d.answer, d.will_train.word) == (Answer.CHANGE, Trains.RISK)
    assert "from 10 % to 49 % in 256 steps with Adam at lr 0.001, where the nearest class mean has 90 %" in d.headline
    assert made("even", replace(slow, accuracy=(0.1, 0.3, 0.51))).answer is Answer.NOTHING
    assert made("even", replace(slow, at=(0, 32, 64))).answer is Answer.NOTHING  # too early to tell
    assert made("even", replace(slow, easy=math.nan)).answer is Answer.NOTHING
    by_heart = made("even", replace(slow, easy=0.1, doubt="labels may not go with the inputs"))
    assert by_heart.answer is Answer.CHANGE
    assert by_heart.headline.endswith("where labels may not go with the inputs.")


def test_the_nearest_class_mean_by_a_loop() -> None:
    x, y = digits()
    x, y = x[:200], y[:200]
    right: dict[int, list[bool]] = {}
    for i in range(len(x)):
        rest = torch.arange(len(x)) != i
        means = [x[rest & (y == c)].mean(0) for c in range(10)]
        right.setdefault(int(y[i]), []).append(int(np.argmin([(x[i] - m).norm().item() for m in means])) == int(y[i]))
    assert by_class_means(x, y) == pytest.approx(np.mean([np.mean(found) for found in right.values()]), abs=1e-9)
    assert by_class_means(torch.randn(400, 5000), torch.arange(400) % 4) < 0.4  # noise is not learned by heart


@pytest.mark.parametrize("word", ["even", "leaning"])
def test_nothing_is_to_be_done_about_an_even_start_that_trains(word: str) -> None:
    d = made(word)
    assert d.answer is Answer.NOTHING
    assert best_change(d) is None
    page = str(d)
    assert "What to change" not in page
    assert "What you could change: 1 change (" in page


@pytest.mark.parametrize("word", ["even", "biased"])
def test_what_does_not_learn_is_worth_a_change(word: str) -> None:
    d = made(word, replace(LEARNS, learns=False))
    assert d.answer is Answer.CHANGE
    assert d.will_train.word is Trains.RISK  # the sample's gradients shrink by 4, which no one calls vanishing
    assert "learned nothing in 64 steps" in d.headline


def test_copies_that_diverge_decide() -> None:
    d = made("even", replace(LEARNS, diverged=4))
    assert (d.answer, d.will_train.word) == (Answer.CHANGE, Trains.NO)
    assert "4 of 8 copies diverged" in d.headline
    assert made("even", replace(LEARNS, diverged=3)).will_train.word is Trains.YES


@pytest.mark.parametrize(("run", "answer"), [(41, Answer.HARMLESS), (40, Answer.HARMLESS), (39, Answer.CHANGE)])
def test_a_bias_is_harmless_if_the_run_outlasts_it(run: int, answer: Answer) -> None:
    d = made(run=run)
    assert d.answer is answer
    assert "40 steps (seen 40 on copies)" in d.headline
    names = [name for name, _ in rows_of(d)]
    assert ("Watch out" in names) == (answer is Answer.HARMLESS)


def test_a_doubt_about_labels_that_was_not_settled_is_said() -> None:
    """Copies that learn labels by heart would be called trainable; held-out points settle it, where time allows."""
    doubt = "labels may not go with the inputs: 0.0% of their variance is foreseen"
    open_one, settled = (made(run=41, seen=replace(LEARNS, doubt=doubt, held=held)) for held in (math.nan, 0.8))
    assert any(name == "Watch out" and words.startswith(doubt) for name, words in rows_of(open_one))
    assert not any(words.startswith(doubt) for _, words in rows_of(settled))


def test_without_labels_the_page_says_what_to_pass() -> None:
    d = made(seen=Rehearsal(why="the data have no labels"))
    assert d.answer is Answer.UNKNOWN
    assert "no labels" in d.headline
    assert dict(rows_of(d))["Missing"].startswith("labels: fg.diagnose(model, (x, y))")
    assert made("even", Rehearsal(why="the data have no labels")).answer is Answer.NOTHING  # gradients are fine


def test_a_bias_that_is_left_at_the_last_look() -> None:
    left = replace(LEARNS, steps=math.inf)
    assert made(seen=left, run=64).answer is Answer.CHANGE
    assert made(seen=left, run=65).answer is Answer.UNKNOWN


# -- Durations --------------------------------------------------------------------------------------------------------


def test_the_copy_is_believed() -> None:
    agreed, apart = Duration(9.0, 11.0, 64), Duration(10.0, 40.0, 64)
    assert agreed.steps == 11.0
    assert agreed.words == "three quarters of that are gone after about 11 steps (predicted 9, seen 11 on copies)"
    assert apart.steps == 40.0
    assert "predicted 10, seen 40 on copies; copies are believed" in apart.words
    assert not apart.agree
    assert Duration(20.0, 20.0 * AGREE, 64).agree
    assert Duration(9.0).steps == 9.0
    assert Duration(9.0).words.endswith("(predicted 9)")


def test_a_prediction_beyond_what_was_seen_counts() -> None:
    assert Duration(90.0, math.inf, 64, 100).outlasts is False
    assert Duration(900.0, math.inf, 64, 100).outlasts is True
    assert Duration(3.0, math.inf, 64, 100).outlasts is None  # the copy says otherwise
    assert Duration(math.nan, math.inf, 64, 100).outlasts is None
    assert Duration(math.nan, math.inf, 100, 100).outlasts is True


def test_the_answer_is_in_the_json() -> None:
    found = made().to_dict()
    assert list(found)[:4] == ["answer", "headline", "will_train", "duration"]
    assert found["answer"] == "harmless"
    assert found["duration"]["seen"] == 40.0
    assert found["rehearsal"]["accuracy"][-1] == 0.6


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_page_is_as_wide_as_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = str(made()).splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert lines[0].startswith("HARMLESS   ")


# -- Real models ------------------------------------------------------------------------------------------------------


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("digits")
    assert data.y is not None
    return torch.tensor(data.x[:600]).float().flatten(1), torch.tensor(data.y[:600])


def mlp(depth: int, *end: nn.Module, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for k in range(depth):
        layers += [nn.Linear(64 if k == 0 else 48, 48), activation()]
    return nn.Sequential(*layers, nn.Linear(48, 10), *end)


def quickly(model: nn.Module, data: Any, **options: Any) -> Diagnosis:
    known: dict[str, Any] = {"inits": 16, "seconds": 600, "advice": False, **options}
    return fg.diagnose(model, data, **known)


def test_duration_and_learning_are_those_of_a_loop_by_hand() -> None:
    """The same copies trained by a loop that knows nothing of the library: shares, losses, what is left of the bias."""
    x, y = digits()
    model, steps = mlp(4), 64
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    kept = [p.detach().clone() for p in model.parameters()]
    d = quickly(model, (x, y), optimizer=optimizer, batch_size=600)
    seen = d.rehearsal
    assert seen is not None
    assert seen.how == "SGD at lr 0.05"
    assert all(torch.equal(p, was) for p, was in zip(model.parameters(), kept, strict=True))
    assert not optimizer.state
    by_class, losses = np.empty((10, seen.inits, steps + 1)), np.empty((seen.inits, steps + 1))
    source = source_of(model, collect((x, y), batch_size=600))
    for k in range(seen.inits):
        with source.member(int(member_seeds(0, k, k + 1)[0])) as drawn:
            weights = [p.detach().clone().requires_grad_() for p in drawn.parameters()]
        moved = [torch.zeros_like(w) for w in weights]
        for step in range(steps + 1):
            h = x
            for i in range(0, len(weights), 2):
                h = h @ weights[i].T + weights[i + 1]
                h = h.relu() if i < len(weights) - 2 else h
            loss = (h.logsumexp(1) - h[torch.arange(len(y)), y]).mean()
            losses[k, step] = loss.item()
            right = (h.argmax(1) == y).double()
            by_class[:, k, step] = [right[y == c].mean().item() for c in range(10)]
            for w, v, g in zip(weights, moved, torch.autograd.grad(loss, weights), strict=True):
                v.mul_(0.9).add_(g)
                w.data.sub_(0.05 * v)
    at = list(seen.at)
    assert at[-1] == steps
    assert np.allclose(seen.loss, losses.mean(0)[at], rtol=1e-3)
    assert np.allclose(seen.accuracy, by_class.mean((0, 1))[at], atol=5e-3)
    apart = by_class - by_class.mean(1, keepdims=True)
    left = np.array([np.vdot(apart[:, :, t], apart[:, :, 0]) / np.vdot(apart[:, :, 0], apart[:, :, 0]) for t in at])
    assert np.allclose(seen.left, left, atol=0.02)
    gone = next(k for k in range(len(at)) if np.all(np.abs(left[k:]) <= 0.25))
    assert at[gone - 1] <= seen.steps <= at[gone]
    assert seen.learns
    assert d.answer is Answer.HARMLESS
    assert d.run == LEAST_STEPS


def test_a_softmax_twice_is_to_be_fixed() -> None:
    d = fg.diagnose(mlp(2, nn.Softmax(-1), nn.Softmax(-1)), digits(), inits=8, seconds=60)
    assert d.answer is Answer.FIX
    assert d.faults[0].name == "softmax twice"
    assert d.headline.startswith("Softmax is applied twice: in `5` and in `6`")
    assert not d.advice
    assert "Expected for" not in str(d)


def test_a_head_bias_is_to_be_fixed() -> None:
    model = mlp(2)
    with torch.no_grad():
        cast(nn.Linear, model[-1]).bias[3] = 20.0
    assert quickly(model, digits(), inits=8).answer is Answer.FIX


def test_copies_that_all_start_in_one_class_are_compared_class_by_class() -> None:
    """A bias of the head that every copy keeps: starts do not differ, and the bias lasts all the same until the
    accuracies of classes no longer follow the first ones. And where it is known how long, nothing says why not."""
    x, y = digits()
    model = mlp(2)
    with torch.no_grad():
        cast(nn.Linear, model[-1]).bias[3] = 2.0
    d = quickly(model, (x, y), inits=8, batch_size=600)
    seen = d.rehearsal
    assert seen is not None
    assert seen.accuracy[0] == pytest.approx(0.1)
    assert 1.0 < d.duration.seen < seen.last
    assert d.duration.why == ""
    tied = replace(LEARNS, steps=math.nan, left=(math.nan,) * 3)
    assert made(seen=tied, lasting=None).duration.why == "all classes tie at the start of each copy"


def test_pixels_from_0_to_255_are_to_be_fixed() -> None:
    x, y = digits()
    pixels = ((x - x.min()) / (x.max() - x.min()) * 255).round()
    assert quickly(mlp(2), (pixels, y), inits=8).answer is Answer.FIX


def test_a_network_too_deep_for_its_weights_is_worth_a_change() -> None:
    d = quickly(mlp(24), digits(), inits=8)
    assert d.answer is Answer.CHANGE
    assert d.will_train.word is Trains.NO


def test_a_loss_of_the_users_on_one_probability() -> None:
    """A sigmoid and BCELoss, as in every tutorial: copies are trained on what the model returns, not on its logit."""
    x, y = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    d = quickly(model, (x, (y % 2).float()[:, None]), loss=nn.BCELoss(), optimizer=torch.optim.Adam, lr=0.01, steps=64)
    assert d.rehearsal is not None
    assert d.rehearsal.learns, d.rehearsal.why


def test_other_draws_of_copies_include_what_was_seen() -> None:
    d = made(seen=replace(LEARNS, low=60.0, high=200.0))
    assert d.duration.seen == 40.0
    assert "seen 40 on copies, 40 to 200" in d.headline


def test_a_loss_of_the_users_on_one_logit() -> None:
    x, y = digits()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    d = quickly(model, (x, y % 2), loss=nn.BCEWithLogitsLoss(), optimizer=torch.optim.AdamW, steps=64)
    assert d.rehearsal is not None
    assert d.rehearsal.known
    assert d.rehearsal.learns
    assert "AdamW" in d.rehearsal.how
    assert "BCEWithLogitsLoss" in d.rehearsal.how


def test_without_labels_there_is_no_copy() -> None:
    d = quickly(mlp(5), digits()[0], inits=8)
    assert d.answer is Answer.UNKNOWN
    assert "labels" in dict(rows_of(d))["Missing"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "hinge"}, "loss"),
        ({"optimizer": "adamw"}, "optimizer"),
        ({"lr": 0.0}, "learning rate"),
        ({"steps": 0}, "steps"),
        ({"steps": 3, "epochs": 1}, "one of them"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1), "lr": 0.1}, "within the optimizer"),
    ],
)
def test_bad_options_are_told_before_any_work(options: dict[str, Any], said: str) -> None:
    with pytest.raises(fg.InvalidInput, match=said):
        quickly(mlp(1), digits(), progress=lambda *_: pytest.fail("work began"), **options)


def test_a_repaired_model_is_judged_with_its_repair() -> None:
    model = mlp(5)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
    x, y = (part[:200] for part in digits())
    before = quickly(model, (x, y), inits=8)
    after = quickly(fg.repair(model, (x, y), gamma=0.0).model, (x, y), inits=8)
    assert before.verdict.name in ("biased", "deeply biased")
    assert after.verdict.name in ("even", "leaning")
    assert after.answer is Answer.NOTHING
    assert after.rehearsal is not None
    assert after.rehearsal.largest[0] < 0.5 < before.rehearsal.largest[0]  # type: ignore[union-attr]
    assert "repaired" in after.expected.words


def test_shuffled_labels_that_copies_learn_by_heart_are_never_harmless() -> None:
    x, y = digits()
    model = mlp(2)
    d = quickly(model, (x, y[torch.randperm(600, generator=torch.Generator().manual_seed(1))]), optimizer="adam")
    assert d.rehearsal is not None
    assert d.rehearsal.learns
    assert (d.answer, d.faults[0].name) == (Answer.FIX, "labels do not go with inputs")
    r = d.rehearsal
    assert r.own > r.held + 3 * r.held_error  # and it says so of no labels that go with the inputs:
    assert not any(f.name == "labels do not go with inputs" for f in quickly(model, (x, y), optimizer="adam").faults)


def test_what_carries_over_is_not_by_heart() -> None:
    seen = Rehearsal(learns=True, classes=4, own=0.9, held=0.26, held_error=0.02)
    assert seen.by_heart
    assert not replace(seen, held=0.35).by_heart  # better than guessing
    assert not replace(seen, held_error=0.2).by_heart  # too few points to tell
    assert not replace(seen, own=0.33).by_heart  # and what little was learned may carry over
    assert not Rehearsal(learns=True, classes=4).by_heart  # nobody looked


def test_held_out_accuracy_is_that_of_a_loop() -> None:
    """Four folds, two copies each: a plain loop over other initializations, within 5.5 standard errors."""
    x, y = digits()
    x, y = x[:400], y[torch.randperm(600, generator=torch.Generator().manual_seed(1))[:400]]
    d = quickly(mlp(2), (x, y), optimizer="adam")
    assert d.rehearsal is not None
    accuracies: list[float] = []
    for fold in range(4):
        out = torch.arange(400) % 4 == fold
        torch.manual_seed(100 + fold)
        model = mlp(2)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for _ in range(d.rehearsal.last):
            rows = ~out  # all of them: whatever the batches, nothing carries over
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        right = model(x[out]).argmax(1) == y[out]
        accuracies.append(float(torch.stack([right[y[out] == c].double().mean() for c in torch.unique(y[out])]).mean()))
    assert abs(np.mean(accuracies) - d.rehearsal.held) < 5.5 * math.hypot(1, 1) * d.rehearsal.held_error


def test_more_copies_are_trained_where_eight_do_not_tell_the_number_of_steps() -> None:
    """Networks whose accuracy by class forgets its start at another pace each: `low` and `high` bracket `steps`, and
    more copies bring them together."""
    rng = np.random.default_rng(0)
    at = np.arange(65)
    pace = rng.uniform(2, 40, 32)
    start = np.eye(6)[rng.integers(6, size=32)].T  # (class, copy)
    curves = 1 / 6 + (start - 1 / 6)[:, :, None] * np.exp(-at / pace[:, None]) + 0.15 * rng.standard_normal((6, 32, 65))
    few, many = likely_steps(at, curves[:, :8]), likely_steps(at, curves)
    assert few[0] <= few[1]
    assert many[1] - many[0] < few[1] - few[0]
    assert all(math.isnan(one) for one in likely_steps(at, curves[:, :2]))
    unsure = Duration(seen=14.0, last=64, low=8.0, high=37.0)
    assert "seen 14 on copies, 8 to 37" in unsure.words
    assert "seen 14 on copies)" in replace(unsure, low=12.0, high=17.0).words


def test_what_is_assumed_of_training_is_said_of_a_prediction_too() -> None:
    """Time may be up before copies are trained: a number of steps still is one of an optimizer."""
    assert _duration_known(PredictedDuration(steps=8.0), None)
    assert not _duration_known(PredictedDuration(why="no kernel"), None)
    assert not _duration_known(None, None)
