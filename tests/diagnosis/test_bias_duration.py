"""How long the bias lasts, as the page says it, against training the very model at the very rate; and the refusals."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from commands import refused, run_here
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

import firstguess as fg
from firstguess.data import Batch
from firstguess.diagnosis.bias_duration import PredictedDuration, left_of, proportional, same_noise, settled
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.sources import source_of
from firstguess.theory.training.curves import Accuracy, looked_at

pytestmark = pytest.mark.usefixtures("one_thread")

DESCENT, ADAM = 0.25, 0.4  # how far the page may be off, as docs/training.md has it
INITS = 48


def digits(n: int = 300, *, ten: bool = False) -> tuple[NDArray[Any], NDArray[Any]]:
    data = fg.data.load("digits").subset(n)
    assert data.y is not None
    x = data.x.reshape(n, -1).astype(np.float32)
    return (x - x.mean()) / x.std(), data.y % (10 if ten else 2)


def mlp(
    depth: int, width: int, act: type[nn.Module], variance: float | None = 2.0, norm: Any = None, classes: int = 2
) -> nn.Sequential:
    sizes = [64, *[width] * depth]
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), *([] if norm is None else [norm(after)]), act()]
    model = nn.Sequential(*layers, nn.Linear(width, classes))
    for layer in model:
        if isinstance(layer, nn.Linear) and variance is not None:
            nn.init.normal_(layer.weight, 0.0, math.sqrt(variance / layer.in_features))
            nn.init.zeros_(layer.bias)
    return model


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(64, 128), nn.Linear(128, 2)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128)) for _ in "12")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def cnn() -> nn.Sequential:
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 2))


def asked(model: Any, x: Any, y: Any, **options: Any) -> Any:
    return fg.diagnose(model, (x, y), **{"inits": 20, "advice": False, "optimizer": "gd", **options})


def trained(
    model: nn.Module, x: Any, y: Any, lr: float, upto: int, optimizer: str = "gd", batch: int | None = None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Steps, what is left of the starting bias and the mean accuracy: a plain loop over the model's own starts."""
    points, labels, classes = torch.from_numpy(x), torch.from_numpy(y), int(y.max()) + 1
    source = source_of(model, [Batch(points, labels, len(x))])
    looks = looked_at(upto)
    right = np.zeros((INITS, len(looks), classes))
    for i in range(INITS):
        with source.isolated(), source.member(int(member_seeds(0, i, i + 1)[0])) as drawn:
            own = copy.deepcopy(drawn).train()
        kind: Any = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        stepper, order, rows = kind(own.parameters(), lr=lr), torch.Generator().manual_seed(i), list[torch.Tensor]()
        for step in range(upto + 1):
            if step in looks:
                with torch.no_grad():
                    hits = (own(points).argmax(1) == labels).numpy()
                right[i, list(looks).index(step)] = [hits[y == c].mean() for c in range(classes)]
            if batch is not None and not rows:
                rows = list(torch.randperm(len(x), generator=order).split(batch))
            some = rows.pop() if batch is not None else slice(None)
            stepper.zero_grad()
            nn.functional.cross_entropy(own(points[some]), labels[some]).backward()
            stepper.step()
    # By hand: the slope of a class's accuracy over starts, on that of step 0.
    left = np.zeros(len(looks))
    for k in range(len(looks)):
        above = below = 0.0
        for c in range(classes):
            now, first = right[:, k, c], right[:, 0, c]
            above += float(np.cov(now, first, bias=True)[0, 1])
            below += float(np.var(first))
        left[k] = above / below
    shares = np.bincount(y) / len(y)
    return looks, left, (right.mean(axis=0) * shares).sum(axis=1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "relu, narrow": lambda: mlp(2, 64, nn.ReLU),
    "relu, wide": lambda: mlp(1, 400, nn.ReLU),
    "relu, PyTorch's default": lambda: mlp(2, 128, nn.ReLU, None),
    "batchnorm": lambda: mlp(2, 128, nn.ReLU, 2.0, nn.BatchNorm1d),
    "layernorm": lambda: mlp(2, 128, nn.ReLU, 2.0, nn.LayerNorm),
    "tanh": lambda: mlp(2, 200, nn.Tanh, 1.0),
    "residual": Residual,
}


QUICK = ("relu, narrow", "relu, PyTorch's default", "batchnorm")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in MODELS])
def test_steps_are_those_of_training(name: str) -> None:
    model = MODELS[name]()
    x, y = digits()
    found = asked(model, x, y).lasting
    assert found.known, found.why
    assert found.chosen
    assert found.lr == pytest.approx(found.overshoot / 4)
    steps, left, accuracy = trained(model, x, y, found.lr, math.ceil(2 * found.steps) + 4)
    assert found.steps == pytest.approx(settled(steps, left, 0.25), rel=DESCENT)
    assert found.half == pytest.approx(settled(steps, left, 0.5), rel=DESCENT)
    assert found.accuracy[0] == pytest.approx(accuracy[0], abs=1e-6)  # the same starts
    assert found.accuracy[1] == pytest.approx(float(np.interp(found.steps, steps, accuracy)), abs=0.04)


@pytest.mark.parametrize(
    ("options", "batch"),
    [({"optimizer": "sgd", "batch_size": 32}, 32), ({"lr": 1e-3}, None)],
    ids=["mini-batches", "a slow rate"],
)
def test_steps_at_other_rates(options: dict[str, Any], batch: int | None) -> None:
    model = mlp(1, 128, nn.ReLU)
    x, y = digits(200)
    found = asked(model, x, y, **options).lasting
    steps, left, _ = trained(model, x, y, found.lr, math.ceil(1.6 * found.steps), batch=batch)
    assert found.steps == pytest.approx(settled(steps, left, 0.25), rel=DESCENT)
    assert found.batch == batch


def test_steps_of_ten_classes() -> None:
    model = mlp(1, 200, nn.ReLU, classes=10)
    x, y = digits(200, ten=True)
    found = asked(model, x, y).lasting
    steps, left, _ = trained(model, x, y, found.lr, math.ceil(2 * found.steps))
    assert found.steps == pytest.approx(settled(steps, left, 0.25), rel=DESCENT)


@pytest.mark.parametrize(("lr", "batch"), [(None, None), (1e-4, 32)])
def test_steps_of_adam(lr: float | None, batch: int | None) -> None:
    model = mlp(2, 128, nn.ReLU)
    x, y = digits(200)
    found = asked(model, x, y, lr=lr, optimizer="adam", batch_size=batch).lasting
    steps, left, _ = trained(model, x, y, found.lr, math.ceil(2 * found.steps) + 4, "adam", batch)
    assert found.steps == pytest.approx(settled(steps, left, 0.25), rel=ADAM)
    assert ("thrown over" in found.words) == (found.left and min(found.left) < -0.25)


@pytest.mark.slow
def test_steps_of_a_convolutional_network() -> None:
    model = cnn()
    x, y = digits(120)
    x = x.reshape(-1, 1, 8, 8)
    found = asked(model, x, y).lasting
    assert found.points == 120, "not enough time for all points: the labels are then others"
    steps, left, _ = trained(model, x, y, found.lr, math.ceil(2 * found.steps) + 4)
    assert found.steps == pytest.approx(settled(steps, left, 0.25), rel=DESCENT)


def test_a_rate_that_overshoots_does() -> None:
    model = mlp(1, 200, nn.ReLU)
    x, y = digits(200)
    safe = asked(model, x, y).lasting
    lr = 1.5 * safe.overshoot
    found = asked(model, x, y, lr=lr).lasting
    assert math.isnan(found.steps)
    assert found.words.startswith(f"at lr {lr:.3g} the bias overshoots: from {safe.overshoot:.2g} on")
    _, left, _ = trained(model, x, y, lr, 6)
    assert left.min() < -0.1
    _, left, _ = trained(model, x, y, safe.lr, 6)
    assert left.min() > -0.1


def test_a_description_has_it_too() -> None:
    x, y = digits(150)
    found = asked("dense(weight_var=2) > relu > dense(weight_var=2)", x, y, width=200).lasting
    assert found.known
    assert found.points == 150
    assert found.inits == INITS


# -- What is followed -------------------------------------------------------------------------------------------------


def test_what_is_left_is_a_slope_over_networks() -> None:
    rng = np.random.default_rng(0)
    first, other = rng.random((2, 30)), rng.random((2, 30))
    by_class = np.stack([first, 0.3 * first + 0.5, 0.4 - 0.2 * first, other.mean() + 0 * other], axis=2)
    groups = {0: by_class[0], 1: by_class[1], "favoured": other, "others": other}
    left = left_of(Accuracy(np.arange(4), by_class[0], groups))
    np.testing.assert_allclose(left, [1.0, 0.3, -0.2, 0.0], atol=1e-12)


def test_starts_that_do_not_differ_leave_nothing_to_forget() -> None:
    same = np.full((5, 3), 0.5)
    assert np.isnan(left_of(Accuracy(np.arange(3), same, {0: same, 1: same}))).all()


def test_settled_is_for_good() -> None:
    steps = np.array([0, 1, 2, 3])
    assert settled(steps, np.array([1.0, 0.0, 1.0, 0.0]), 0.25) == pytest.approx(2.75)
    assert settled(steps, np.array([1.0, 0.0, -1.0, 0.0]), 0.25) == pytest.approx(2.75)
    assert settled(steps, np.array([1.0, 0.9, 0.8, 0.7]), 0.25) == math.inf
    assert settled(steps, np.array([0.1, 0.0, 0.0, 0.0]), 0.25) == 0.0


def test_points_keep_the_proportions_of_their_labels() -> None:
    labels = np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [600, 300, 100]))
    rows = proportional(labels, 100, 0)
    assert len(np.unique(rows)) == 100
    assert np.bincount(labels[rows]).tolist() == [60, 30, 10]
    assert (proportional(labels, 2000, 0) == np.arange(1000)).all()


def test_batches_of_fewer_points_scatter_alike() -> None:
    assert same_noise(300, 300, 300) is None
    assert same_noise(32, 300, 300) == 32
    size = same_noise(128, 300, None)
    assert size is not None
    assert (1 - size / 300) / size == pytest.approx(1 / 128, rel=0.02)


# -- Words ------------------------------------------------------------------------------------------------------------

SOME = PredictedDuration(
    "", "gd", 0.01, False, None, 8.2, math.nan, math.nan, 4.0, 20.0, (0.8, 0.6), (0.5, 0.55), 0.5, 0.04,
    (0.0, 1.0, 10.0), (1.0, 0.9, 0.1), 300, 48, (1.0, 0.1),
)  # fmt: skip


@given(
    st.floats(0.0, 1e6), st.floats(0.01, 1e4), st.floats(0.5, 1.0), st.floats(0.5, 0.99), st.floats(0.0, 1.0),
    st.sampled_from(["gd", "sgd", "adam"]), st.floats(1.0, 3.0),
)  # fmt: skip
def test_words_do_not_contradict_numbers(
    steps: float, ratio: float, accuracy: float, majority: float, largest: float, optimizer: Any, apart: float
) -> None:
    found = replace(
        SOME, steps=steps, ratio=ratio, accuracy=(0.5, accuracy), majority=majority, optimizer=optimizer,
        largest=(0.9, largest), low=steps, high=apart * steps,
    )  # fmt: skip
    words = found.words
    assert not (found.early and found.late)
    gained = (accuracy - majority) / (1 - majority)
    assert "nothing to do" not in words  # which the answer says, or does not
    if "before much is learned" in words:
        assert gained <= 0.25
        assert ratio >= 3 or optimizer == "adam"
    if "most is learned before that" in words:
        assert gained >= 0.5
        assert ratio < 3
    if found.high > 1.5 * found.low:
        assert "learned" not in words
        return
    said = re.search(r"after (?:about|roughly) (one|[\d ]+) steps?", words)
    assert said is not None
    number = 1 if said[1] == "one" else int(said[1].replace(" ", ""))
    assert number == pytest.approx(max(1, round(steps)), rel=0.5 if optimizer == "adam" else 0.05)
    assert ("largest share is still" in words) == (largest > majority + 0.2)


def test_a_bias_that_is_not_gone_is_said_to_last() -> None:
    found = replace(SOME, steps=math.inf, left=(1.0, 0.9, 0.8))
    assert "more than a quarter of the starting bias is left after 10 steps" in found.words
    assert not found.early


def test_labels_that_might_be_more_even_give_a_range() -> None:
    found = replace(SOME, low=2.0, high=9.0)
    assert "gone after 2 to 9 steps" in found.words
    assert not found.early


def test_a_swing_of_about_a_quarter_gives_a_range() -> None:
    found = replace(SOME, low=2.0, high=9.0, left=(1.0, -0.24, 0.0))
    assert "gone after 2 to 9 steps: on the way other classes are favoured in turn" in found.words


def test_some_of_many_points_may_have_other_labels() -> None:
    """Of the whole there is one number; of a part, what one standard error of the labels changes."""
    model = mlp(1, 128, nn.ReLU)
    x, y = digits(200)
    whole, part = asked(model, x, y).lasting, asked(model, x, y, points=200).lasting
    assert math.isnan(whole.low)
    assert part.low <= part.steps <= part.high
    assert part.steps == pytest.approx(whole.steps, rel=1e-6)


# -- Refusals ---------------------------------------------------------------------------------------------------------


def test_deep_and_narrow_is_not_lazy() -> None:
    found = asked(mlp(12, 32, nn.ReLU), *digits(150)).lasting
    assert found.words.startswith("not predicted: training is not lazy")
    assert math.isnan(found.steps)


def test_a_frozen_layer_is_noticed() -> None:
    model = mlp(1, 200, nn.ReLU)
    model[0].requires_grad_(False)
    found = asked(model, *digits(150)).lasting
    assert "of the pace of its description" in found.words
    assert math.isnan(found.steps)


def test_without_labels_nothing_is_said_of_learning() -> None:
    x, _ = digits(100)
    found = fg.diagnose(mlp(1, 100, nn.ReLU), x, inits=20, advice=False).lasting
    assert found is not None
    assert "no class labels" in found.words


@pytest.mark.parametrize(
    ("model", "labels", "words"),
    [
        (lambda: mlp(1, 100, nn.ReLU), "one", "all labels are the same"),
        (lambda: nn.Sequential(mlp(1, 100, nn.ReLU), nn.Softmax(1)), "two", "returns probabilities"),
        (lambda: mlp(1, 100, nn.ReLU, classes=1), "two", "one output per class"),
        (lambda: mlp(1, 100, nn.ReLU, classes=60), "two", "fewer than 4 points per class"),
    ],
    ids=["one class", "softmax", "one logit", "many classes"],
)
def test_refusals_name_their_reason(model: Any, labels: str, words: str) -> None:
    x, y = digits(100)
    found = asked(model(), x, np.zeros_like(y) if labels == "one" else y).lasting
    assert words in found.words
    assert not found.known


def test_log_softmax_trains_as_logits_do() -> None:
    x, y = digits(100)
    model = mlp(1, 100, nn.ReLU)
    plain, logs = (asked(m, x, y).lasting for m in (model, nn.Sequential(*model, nn.LogSoftmax(1))))
    assert logs.steps == pytest.approx(plain.steps, rel=1e-3)


def test_what_is_even_has_nothing_to_lose() -> None:
    found = asked("dense(weight_var=2) > relu > batchnorm > dense", *digits(150), width=300).lasting
    assert "hardly any" in found.words


def test_nothing_where_the_structure_is_not_read() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(64, 50), nn.Linear(50, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.layer(x) * torch.sin(self.layer(x)))

    d = asked(Own(), *digits(100))
    assert d.lasting is None
    assert "How long" not in str(d)


@pytest.mark.parametrize("options", [{"lr": 0.0}, {"lr": -1.0}, {"lr": math.nan}, {"lr": True}, {"optimizer": "lion"}])
def test_bad_wishes_are_refused_before_any_work(options: dict[str, Any]) -> None:
    with pytest.raises(fg.InvalidInput, match="diagnose"):
        asked(lambda: pytest.fail("it was built"), *digits(50), **options)


def test_little_time_leaves_it_out() -> None:
    d = asked(mlp(3, 200, nn.ReLU), *digits(), seconds=0.02)
    assert d.lasting is None or not d.lasting.known or d.lasting.steps > 0


# -- Page, report, shell ----------------------------------------------------------------------------------------------


def test_it_is_on_the_page_in_the_report_and_in_json(tmp_path: Any) -> None:
    d = asked(mlp(1, 100, nn.ReLU), *digits(100), lr=1e-3)
    assert "With gradient descent at lr 0.001 75 % of the starting bias" in " ".join(str(d).split())
    page = d.save(tmp_path / "report.html").read_text()
    assert "How long will the bias last?" in page
    assert "how much faster the bias moves" in page
    stored = json.loads(json.dumps(d.to_dict()["lasting"], allow_nan=False))
    assert stored["steps"] == pytest.approx(d.lasting.steps)
    assert stored["left"]["part"][0] == pytest.approx(1.0)
    if d.lasting.early:
        assert d.case.startswith("Hardly")


def test_shell() -> None:
    text = "dense(weight_var=2) > relu > dense(weight_var=2)"
    told = ["diagnose", text, "--data", "digits", "--points", "120", "--inits", "20", "--width", "100", "--no-advice"]
    done = run_here(*told, "--lr", "1e-4", "--optimizer", "adam", "--json")
    found = json.loads(done.stdout)["lasting"]
    assert (found["lr"], found["optimizer"]) == (1e-4, "adam")
    assert found["words"].startswith("with Adam")
    assert "optimizer" in refused(*told, "--optimizer", "lion")


def test_an_end_that_was_not_seen_is_more_than_what_was() -> None:
    """The latest of the counts may be beyond the last step that was looked at."""
    assert "gone after 10 steps or more: " in replace(SOME, low=10.0, high=math.inf).words
