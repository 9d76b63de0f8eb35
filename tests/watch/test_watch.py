"""A watch in a plain loop: its numbers against plain arithmetic, when it looks, what it says and what it refuses."""

from __future__ import annotations

import copy
import json
import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from small_models import points, some_labels
from torch import nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import firstguess as fg
from firstguess.watch import loop

pytestmark = pytest.mark.usefixtures("one_thread")


def biased(classes: int = 3, outputs: int | None = None) -> nn.Sequential:
    """Starts with nearly all guesses for its last class."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, outputs or classes))
    with torch.no_grad():
        model[2].bias.zero_()[-1] = 1.5  # pyright: ignore[reportCallIssue, reportIndexIssue]
    return model


def separable(n: int = 240, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    y = some_labels(n, classes)
    x = points(n, 12)
    x[torch.arange(n), y] += 3.0
    return x, y


def trained(watch: fg.Watch, model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, lr: float = 0.2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for k in range(steps):
        watch.step(k)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    watch.finish(steps)


def by_hand(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
    with torch.no_grad():
        f = model(x).double().numpy()
    n, classes = f.shape
    guess = f.argmax(1)
    g = (f - f.mean(1, keepdims=True)) * math.sqrt(classes / (classes - 1))
    spread = np.var(g, axis=0, ddof=1).mean()
    center = np.square(g.mean(0)).mean() - spread / n
    logs = f - np.log(np.exp(f).sum(1, keepdims=True))
    return {
        "shares": [float((guess == c).mean()) for c in range(classes)],
        "recall": [float((guess[y == c] == c).mean()) for c in range(classes)],
        "gamma": center / spread,
        "loss": float(-logs[np.arange(n), y].mean()),
        "accuracy": float((guess == y.numpy()).mean()),
    }


def test_numbers_are_those_of_a_plain_forward_at_each_look() -> None:
    model = biased()
    x, y = separable()
    models: list[nn.Module] = []
    logged: list[tuple[int, dict[str, float]]] = []

    def log(numbers: dict[str, float], step: int) -> None:
        models.append(copy.deepcopy(model))
        logged.append((step, numbers))

    watch = fg.Watch(model, (x, y), log=log, log_all=True, points=240)
    trained(watch, model, x, y, 30)
    seen = watch.result
    assert seen.steps.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 25, 30]
    plain = [by_hand(one, x, y) for one in models]
    assert seen.shares.tolist() == [one["shares"] for one in plain]
    np.testing.assert_allclose(seen.recall, [one["recall"] for one in plain], rtol=1e-12)
    np.testing.assert_allclose(seen.gamma, [one["gamma"] for one in plain], rtol=1e-9)
    np.testing.assert_allclose(seen.loss.draws[0], [one["loss"] for one in plain], rtol=1e-5)
    np.testing.assert_allclose(seen.accuracy.draws[0], [one["accuracy"] for one in plain], rtol=1e-12)
    largest = np.array([max(one["shares"]) for one in plain])
    assert seen.largest.draws.tolist() == [largest.tolist()]
    assert seen.favourite == 2
    share = seen.shares[:, 2]
    np.testing.assert_allclose(seen.left, (share - 1 / 3) / (share[0] - 1 / 3), rtol=1e-12)
    level = 1 / 3 + 0.2 * 2 / 3
    assert seen.level == pytest.approx(level)
    k = int(np.flatnonzero(largest <= level)[0])
    a, b = seen.steps[k - 1], seen.steps[k]
    at = a + (b - a) * (largest[k - 1] - level) / (largest[k - 1] - largest[k])
    assert seen.absorbed_at == pytest.approx(at)
    assert watch.absorbed_at == pytest.approx(at)
    for (step, numbers), i in zip(logged, range(len(plain)), strict=True):
        assert step == seen.steps[i]
        assert numbers["firstguess/largest"] == largest[i]
        assert numbers["firstguess/recall/class 1"] == pytest.approx(plain[i]["recall"][1])
        assert numbers["firstguess/share/class 0"] == plain[i]["shares"][0]
        assert numbers["firstguess/recall/others"] == pytest.approx(seen.accuracy["others"].draws[0, i])
        assert ("firstguess/absorbed_at" in numbers) == (i >= k)
    others = [(one["recall"][0] + one["recall"][1]) / 2 for one in plain]
    np.testing.assert_allclose(seen.accuracy["others"].draws[0], others, rtol=1e-12)


def test_gamma_of_one_network_is_that_of_measure_with_one_initialization() -> None:
    x, y = separable()
    watch = fg.Watch(biased(), (x, y), points=240)
    watch.step(0)
    m = fg.measure(biased, x, inits=1)
    assert watch.result.gamma[0] == pytest.approx(m.weights_layers[-1].gamma, rel=1e-6)


def test_batches_of_any_size_give_the_same_numbers() -> None:
    x, y = separable()
    found: list[Any] = []
    for size in (240, 64, 7):
        watch = fg.Watch(biased(), DataLoader(TensorDataset(x, y), batch_size=size), points=240)
        watch.step(0)
        found.append([*watch.result.shares[0], watch.result.gamma[0]])
    np.testing.assert_allclose(found[1:], [found[0], found[0]], rtol=1e-6)  # float32 products of other sizes


# -- The points that are looked at -------------------------------------------------------------------------------------


def labels_seen(loader: Any, **options: Any) -> list[int]:
    watch = fg.Watch(biased(), loader, **options)
    watch.step(0)
    assert watch.result.labels is not None
    return watch.result.labels.tolist()


def test_sorted_loaders_give_points_of_all_classes() -> None:
    x, y = separable(600)
    order = torch.argsort(y, stable=True)
    seen = labels_seen(DataLoader(TensorDataset(x[order], y[order]), batch_size=50))
    assert len(seen) == 100  # two batches
    # 100 of 600 points, 200 of each class: a class is missed with a probability below 0.7^100 = 1e-17
    assert set(seen) == {0, 1, 2}


def test_a_samplers_points_are_the_only_ones() -> None:
    x, y = separable(600)
    keep = (y != 1).nonzero().flatten().tolist()
    loader = DataLoader(TensorDataset(x, y), batch_size=50, sampler=SubsetRandomSampler(keep))
    assert set(labels_seen(loader)) == {0, 2}


@pytest.mark.parametrize(("size", "held"), [(8, 64), (40, 80), (200, 256)])
def test_two_batches_are_held_within_limits(size: int, held: int) -> None:
    x, y = separable(600)
    assert len(labels_seen(DataLoader(TensorDataset(x, y), batch_size=size))) == held
    assert len(labels_seen(DataLoader(TensorDataset(x, y), batch_size=size), points=10)) == 10


def test_dict_batches_with_labels_and_extras() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = biased()

        def forward(self, features: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.net(features) * weight[:, None]}

    x, y = separable()
    rows = [{"features": x[i], "weight": torch.tensor(1.0), "label": int(y[i]), "name": f"n{i}"} for i in range(240)]
    watch = fg.Watch(Named(), DataLoader(rows, batch_size=60), points=240)  # pyright: ignore[reportArgumentType]
    watch.step(0)
    assert watch.result.shares.tolist() == [by_hand(biased(), x, y)["shares"]]
    assert "the model does not get key 'name' of each batch" in str(watch.result)


def test_forward_says_how_a_model_is_called() -> None:
    x, y = separable()
    watch = fg.Watch(biased(), [(x, y)], points=240, forward=lambda model, batch: model(batch[0]) * 2)
    watch.step(0)
    assert watch.result.shares.tolist() == [by_hand(biased(), x, y)["shares"]]


# -- When it looks -----------------------------------------------------------------------------------------------------


def test_looks_are_logarithmic_first_and_then_regular() -> None:
    watch = fg.Watch(biased(), separable(), every=200, cost=None)
    for k in range(1001):
        watch.step(k)
    first = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 79, 100, 126, 158]
    assert watch.result.steps.tolist() == [*first, 200, 251, 316, 398, 400, 501, 600, 631, 794, 800, 1000]


def test_steps_are_counted_where_they_are_not_given_or_begin_anew() -> None:
    counted, given = (fg.Watch(biased(), separable(), every=5) for _ in range(2))
    for _ in range(3):
        for k in range(6):
            counted.step()
            given.step(k)
            given.step(k)  # gradient accumulation: nothing new
    assert counted.result.steps.tolist() == given.result.steps.tolist() == [*range(9), 10, 13, 15, 16]
    assert "steps started again at 0 after 5: they were counted on" in str(given.result)
    for wrong in (1.5, "3", -1):
        with pytest.raises(fg.InvalidInput, match="a number of updates"):
            given.step(wrong)  # pyright: ignore[reportArgumentType]


def test_looks_are_put_off_where_they_would_cost_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of our own: a step takes 1, a look 4; at most 1.2 % from step 100 on, 2 % in all after a while."""
    now = 10.0
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now)

    def log(numbers: dict[str, float], step: int) -> None:
        nonlocal now
        now += 4.0

    watch = fg.Watch(biased(), separable(), log=log)
    for k in range(10_001):
        watch.step(k)
        now += 1.0
    cost, steps = watch.cost, watch.result.steps
    assert cost.looks == len(steps)
    assert cost.seconds == 4.0 * len(steps)
    assert cost.training == 10_000
    assert steps[:20].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 79, 100]
    assert 0.0115 < cost.later <= 0.012
    assert cost.share == pytest.approx(4.0 * len(steps) / 10_000)
    assert 260 < np.diff(steps[25:]).mean() < 380  # 4 / 1.2 % = 333
    monkeypatch.undo()
    strict = fg.Watch(biased(), separable(), cost=None)
    for k in range(2001):
        strict.step(k)
    assert set(range(0, 2001, 50)) < set(strict.result.steps.tolist())


# -- Evaluation before absorption --------------------------------------------------------------------------------------


def test_evaluation_before_absorption_warns_once() -> None:
    model = biased()
    x, y = separable()
    watch = fg.Watch(model, (x, y))
    watch.step(0)
    with pytest.warns(fg.EarlyEvaluation, match=r"step 3, before .* gets 100 % of the guesses .* favour class 2"):
        watch.evaluating(3)
    watch.evaluating(4)  # warnings are errors here: nothing is said twice
    assert watch.result.early == (3, 4)
    with torch.no_grad():
        model[2].bias[-1] = -0.5  # pyright: ignore[reportCallIssue, reportIndexIssue]
        model[2].weight.copy_(torch.eye(3, 40))  # pyright: ignore[reportCallIssue, reportIndexIssue]
        model[0].weight.copy_(torch.eye(40, 12))  # pyright: ignore[reportCallIssue, reportIndexIssue]
    assert by_hand(model, x, y)["accuracy"] > 0.8
    watch.evaluating(5)  # absorbed, and nothing is said
    assert watch.result.early == (3, 4)
    assert "at steps 3, 4: scores by class there favour class 2" in str(watch.result)


def test_evaluation_after_absorption_says_nothing() -> None:
    model = biased()
    x, y = separable()
    watch = fg.Watch(model, (x, y))
    trained(watch, model, x, y, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.evaluating(31)
    assert watch.result.early == ()


def test_a_rate_that_is_too_high_is_a_finding_with_its_step_and_class() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3))
    x, y = separable()
    watch = fg.Watch(model, (x, y))
    with pytest.warns(RuntimeWarning, match=r"learning rate too high: the loss rose from .* of all guesses") as said:
        trained(watch, model, x, y, 40, lr=30.0)
    assert len([one for one in said if issubclass(one.category, RuntimeWarning)]) == 1
    seen = watch.result
    found = seen.collapse
    assert found is not None
    assert found.name == "learning rate too high"
    run = seen.steps >= found.step
    assert (seen.shares[run].max(axis=1) >= 0.98).all()
    assert seen.shares[-1].argmax() == found.label
    assert f"from step {found.step} on " in seen.finding
    assert f"class {found.label} gets 100 % of all guesses" in seen.finding
    assert "hardly any bias" not in seen.finding
    assert "still gets" not in seen.finding
    assert seen.to_dict()["collapse"]["name"] == "learning rate too high"
    model = biased()
    watch = fg.Watch(model, (x, y))
    with pytest.warns(RuntimeWarning, match="learning rate too high"):
        trained(watch, model, x, y, 40, lr=30.0)  # which ends in NaN
    assert re.match(r"learning rate too high: the loss rose from .*; logits are NaN or Inf", watch.result.finding)


@pytest.mark.parametrize(("common", "found"), [(0.9, False), (0.5, True)])
def test_a_network_that_ends_with_one_class_has_collapsed_unless_most_labels_are_of_it(
    common: float, found: bool
) -> None:
    from firstguess.watch.evaluation import Look

    labels = (np.arange(200) >= 200 * common).astype(np.int64)
    tops = [0.5, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0]
    looks = tuple(
        Look(step, np.array([top, 1 - top]), None, 0.6, 1.0, 0, 0)
        for step, top in zip([0, 1, 2, 5, 10, 20, 40], tops, strict=True)
    )
    seen = fg.WatchedTraining(looks, 200, 2, labels, 0.6)
    assert (seen.collapse is not None) == found
    if found:
        assert seen.finding.startswith("outputs collapsed: from step 5 on class 0 gets 100 % of all guesses")


@pytest.mark.parametrize(("end", "found"), [(40.0, True), (1.0, False)])
def test_guesses_that_jump_from_class_to_class_at_a_loss_far_above_the_start_have_collapsed(
    end: float, found: bool
) -> None:
    """Seen with tanh and a rate of 300: 83 % in a third class at the last look is not "hardly any bias to absorb"."""
    from firstguess.watch.evaluation import Look

    tops = {0: (0, 0.4), 5: (1, 1.0), 10: (2, 1.0), 20: (1, 0.9), 40: (2, 0.83)}
    looks = tuple(
        Look(step, np.full(3, (1 - top) / 2) + np.eye(3)[c] * (1.5 * top - 0.5), None, end if step else 1.1, 1.0, 0, 0)
        for step, (c, top) in tops.items()
    )
    seen = fg.WatchedTraining(looks, 200, 3, np.arange(200) % 3, 0.6)
    assert (seen.collapse is not None) == found
    assert seen.finding.startswith("learning rate too high: the loss rose from 1.1 to 40" if found else "hardly any")
    if found:
        assert "from step 5 on one class after another gets most guesses: at step 40 class 2 gets 83 %" in seen.finding


def test_relapses_and_the_class_that_leads_now_are_said() -> None:
    from firstguess.watch.evaluation import Look
    from firstguess.watch.seen import warning

    tops = {0: (0, 0.72), 5: (0, 0.65), 13: (0, 0.5), 16: (1, 0.5), 20: (1, 0.8), 40: (1, 0.85), 63: (1, 0.45)}
    looks = [
        Look(step, np.where(np.arange(3) == c, top, (1 - top) / 2), None, 1.0, 1.0, 0, 0)
        for step, (c, top) in tops.items()
    ]
    seen = fg.WatchedTraining(tuple(looks), 300, 3, np.arange(300) % 3, 0.52, early=(40,))
    assert seen.relapses == ((20, 40),)
    assert "was absorbed at step 12, but a class had more again at steps 20–40 (up to 85 %, class 1)" in seen.finding
    assert "above it again at steps 20 to 40" in dict(seen.summary())["absorbed"]
    assert dict(seen.summary())["evaluated before absorption"].endswith("scores by class there favour class 1")
    early = fg.WatchedTraining(tuple(looks[:6]), 300, 3, np.arange(300) % 3, 0.52)
    text = warning(early, 40)
    assert "one class leads again after absorption: class 1 gets 85 %" in text
    assert "favour class 1" in text
    assert "favour class 0" not in text


def test_three_numbers_are_logged_by_default_and_costs_are_written_as_times() -> None:
    from firstguess.watch.seen import Cost

    logged: list[dict[str, float]] = []
    watch = fg.Watch(biased(), separable(), log=lambda numbers, step: logged.append(numbers))
    watch.step(0)
    assert set(logged[0]) == {f"firstguess/{name}" for name in ("largest", "left", "gamma")}
    text = str(Cost(10, 1.9, 0.02, 100, math.nan))
    assert "95 times the training's time (10 looks of 190 ms; a step takes 0.2 ms)" in text


# -- Odd trainings -----------------------------------------------------------------------------------------------------


def test_a_resumed_training_has_no_known_start() -> None:
    model = biased()
    x, y = separable()
    watch = fg.Watch(model, (x, y), 10, cost=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for k in range(300, 341):
        watch.step(k)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    seen = watch.result
    assert not seen.start_known
    assert seen.steps[0] == 300
    assert np.isnan(seen.left).all()
    assert 300 < seen.absorbed_at < 340
    assert "watched from step 300 on, so the starting bias is not known" in seen.finding
    late = fg.Watch(model, (x, y))
    late.step(400)
    assert math.isnan(late.result.absorbed_at)
    late.evaluating(401)  # not known to be early
    assert "not known" in dict(late.result.summary())["absorbed"]


def test_nan_in_the_middle_is_a_result() -> None:
    model = biased()
    x, y = separable()
    logged: list[dict[str, float]] = []
    watch = fg.Watch(model, (x, y), log=lambda numbers, step: logged.append(numbers))
    for k in range(5):
        watch.step(k)
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan  # pyright: ignore[reportCallIssue, reportIndexIssue]
    for k in range(5, 9):
        watch.step(k)
        watch.evaluating(k)  # nothing to warn of: there are no guesses
    seen = watch.result
    assert seen.diverged == 5
    assert np.isfinite(seen.largest.draws[0, :5]).all()
    assert np.isnan(seen.largest.draws[0, 5:]).all()
    assert np.isnan(seen.recall[5:]).all()
    assert "NaN or Inf from step 5 on" in seen.finding
    assert logged[-1] == {"firstguess/lost": 240.0}
    assert json.loads(json.dumps(seen.to_dict(), allow_nan=False))["diverged"] == 5
    broken = fg.Watch(model, (x, y))
    broken.step(0)
    assert "NaN or Inf already" in str(broken.result)


@pytest.mark.parametrize("labels", ["float", "column", "whole"])
def test_one_logit_is_two_classes_by_its_sign(labels: str) -> None:
    model = biased(outputs=1)
    x, y = separable(classes=2)
    given = {"float": y.float(), "column": y.float()[:, None], "whole": y}[labels]
    watch = fg.Watch(model, (x, given), points=240)
    watch.step(0)
    with torch.no_grad():
        z = model(x).double().numpy()[:, 0]
    seen = watch.result
    assert seen.classes == 2
    assert seen.shares.tolist() == [[(z < 0).mean(), (z > 0).mean()]]
    np.testing.assert_allclose(seen.recall[0], [(z[y == 0] < 0).mean(), (z[y == 1] > 0).mean()])
    spread = z.var(ddof=1)
    assert seen.gamma[0] == pytest.approx((z.mean() ** 2 - spread / len(z)) / spread, rel=1e-6)


def test_probabilities_are_decided_where_they_should_be() -> None:
    x, y = separable(classes=2)
    one = biased(outputs=1)
    z = fg.Watch(one, (x, y), points=240)
    p = fg.Watch(nn.Sequential(one, nn.Sigmoid()), (x, y.float()), points=240)
    both = biased(2)
    f = fg.Watch(both, (x, y), points=240)
    q = fg.Watch(nn.Sequential(both, nn.Softmax(1)), (x, y), points=240)
    for watch in (z, p, f, q):
        watch.step(0)
    for logits, shares in ((z, p), (f, q)):
        assert shares.result.shares.tolist() == logits.result.shares.tolist()
        assert shares.result.gamma[0] == pytest.approx(logits.result.gamma[0], rel=1e-3)
        assert shares.result.loss.draws[0, 0] == pytest.approx(logits.result.loss.draws[0, 0], rel=1e-4)


def test_without_labels_there_are_shares() -> None:
    watch = fg.Watch(biased(), separable()[0], points=240)
    watch.step(0)
    seen = watch.result
    assert seen.labels is None
    assert seen.level == pytest.approx(1 / 3 + 0.2 * 2 / 3)
    assert seen.largest.draws[0, 0] > 0.9
    assert np.isnan(seen.recall).all()
    assert np.isnan(seen.loss.draws).all()
    with pytest.warns(fg.EarlyEvaluation, match="classes are taken for even"):
        watch.evaluating(1)
    assert "recall" not in str(seen)


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (torch.rand(240), "no classes but numbers"),
        (torch.full((240,), 7), "labels up to 7 for 3 classes"),
        (torch.ones(240, 3), "not one class a point"),
        (torch.zeros(240, 2).long(), "480 labels for 240 guesses"),
    ],
)
def test_labels_that_are_no_classes_are_left_out_with_a_note(labels: torch.Tensor, why: str) -> None:
    watch = fg.Watch(biased(), (separable()[0], labels))
    watch.step(0)
    assert watch.result.labels is None
    assert why in str(watch.result)


def test_ignored_and_soft_labels() -> None:
    x, y = separable()
    ignored = torch.where(torch.arange(240) < 100, -100, y)
    watch = fg.Watch(biased(), (x, ignored), points=240)
    watch.step(0)
    expected = by_hand(biased(), x[100:], y[100:])
    np.testing.assert_allclose(watch.result.recall[0], expected["recall"])
    assert watch.result.accuracy.draws[0, 0] == pytest.approx(expected["accuracy"])
    assert watch.result.shares[0].tolist() == by_hand(biased(), x, y)["shares"]  # of all points
    soft = fg.Watch(biased(), (x, nn.functional.one_hot(y, 3).float() * 0.9 + 0.1 / 3), points=240)
    soft.step(0)
    np.testing.assert_allclose(soft.result.recall[0], by_hand(biased(), x, y)["recall"])


def test_tokens_are_points_and_language_models_have_no_recall() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(30, 8), nn.Linear(8, 5)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(input_ids))

    torch.manual_seed(0)
    model = Tagger()
    ids = torch.randint(0, 30, (20, 6))
    mask = torch.ones_like(ids)
    mask[:, 4:] = 0
    tags = torch.randint(0, 5, (20, 6))
    watch = fg.Watch(model, {"input_ids": ids, "attention_mask": mask, "labels": tags})
    watch.step(0)
    with torch.no_grad():
        guess = model(ids, mask).argmax(2)[:, :4].reshape(-1)
    own = tags[:, :4].reshape(-1)
    assert watch.result.points == 80
    assert watch.result.shares[0].tolist() == (np.bincount(guess, minlength=5) / 80).tolist()
    for c in range(5):
        assert watch.result.recall[0, c] == pytest.approx(float((guess[own == c] == c).float().mean()))
    shifted = fg.Watch(model, {"input_ids": ids % 5, "attention_mask": mask, "labels": ids % 5})
    shifted.step(0)
    assert shifted.result.labels is None
    assert "as for a language model" in str(shifted.result)


def test_equal_logits_are_guesses_at_random() -> None:
    model = nn.Linear(12, 3)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    watch = fg.Watch(model, points(3000, 12), points=3000)
    watch.step(0)
    seen = watch.result
    assert seen.looks[0].tied == 3000
    # 1/3 ± 0.0086: six standard errors, 2e-9 each
    assert np.abs(seen.shares[0] - 1 / 3).max() < 6 * math.sqrt(2 / 9 / 3000)


def test_wrappers_are_looked_into() -> None:
    x, y = separable()
    watch = fg.Watch(nn.DataParallel(biased()), (x, y), points=240)
    watch.step(0)
    assert watch.result.shares.tolist() == [by_hand(biased(), x, y)["shares"]]


def test_what_it_refuses() -> None:
    x, y = separable()

    class FullyShardedDataParallel(nn.Linear):
        pass

    for match, call in {
        "an instance of nn.Module": lambda: fg.Watch(biased, (x, y)),  # pyright: ignore[reportArgumentType]
        "one process has whole": lambda: fg.Watch(FullyShardedDataParallel(12, 3), (x, y)),
        "mode 'train' or 'eval'": lambda: fg.Watch(biased(), (x, y), mode="both"),  # pyright: ignore[reportArgumentType]
        "a share of the training's time": lambda: fg.Watch(biased(), (x, y), cost=0.0),
        "a whole number of steps": lambda: fg.Watch(biased(), (x, y), every=0),
        "a function of numbers and step": lambda: fg.Watch(biased(), (x, y), log=3),  # pyright: ignore[reportArgumentType]
        "'gd', 'sgd', 'adam'": lambda: fg.Watch(biased(), (x, y), optimizer="adagrad"),  # pyright: ignore[reportArgumentType]
        "the learning rate": lambda: fg.Watch(biased(), (x, y), optimizer="gd"),
        "a learning rate above 0": lambda: fg.Watch(biased(), (x, y), lr=-1.0),
        "a share between 1/3 and 1": lambda: fg.Watch(biased(), (x, y), level=0.1).step(0),
        "a model that runs on this data": lambda: fg.Watch(biased(), (x[:, :5], y)).step(0),
    }.items():
        with pytest.raises(fg.InvalidInput, match=match):
            call()


def test_a_with_block_that_fails_keeps_what_was_seen() -> None:
    watch = fg.Watch(biased(), separable())

    def run() -> None:
        with watch:
            watch.step(0)
            watch.step(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert watch.result.steps.tolist() == [0, 1]


def test_nothing_seen_yet_is_said() -> None:
    watch = fg.Watch(biased(), separable())
    assert "nothing was looked at" in str(watch)
    assert watch.cost.looks == 0
    with watch:
        pass
    assert not watch.result.looks
