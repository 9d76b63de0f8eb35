"""Any model, any data: numbers are those of a plain loop, in standard errors, however models are called."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from any_models import CLASSES, FEATURES, MLP, ROWS, Dict, Item, Structured, X, Y, apart, compared, cut
from small_models import kinds
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg
from firstguess.data import collect
from firstguess.modules.call_model import fed

pytestmark = pytest.mark.usefixtures("one_thread")
Z = 6.0  # standard errors; with 120 initializations the tails of a mean are a little heavier than the normal's 2e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_numbers_are_those_of_a_plain_loop(name: str) -> None:
    mine, found = compared(name, 120)
    for way, (numbers, m) in found.items():
        if way == "instance" and ROWS[name].fixed:
            assert (m.inits, "not redrawn" in kinds(m)) == (1, True)
            continue
        assert max(map(abs, apart(mine, numbers))) < Z, (way, mine, numbers)


@pytest.mark.parametrize("name", ["the batch's dict as its one argument, a `Dataset` with paths", "LoRA"])
def test_two_of_them_quickly(name: str) -> None:
    mine, found = compared(name, 40)
    for numbers, _ in found.values():
        assert max(map(abs, apart(mine, numbers))) < Z


# -- How a model is called --------------------------------------------------------------------------------------------


class Simple(MLP):
    def forward(self, batch: dict[str, Any]) -> Any:
        return super().forward(batch["x"])


SAME = {
    "tensor": (MLP, lambda: X, {}),
    "dict of one": (MLP, lambda: {"x": X}, {}),
    "dict with more": (MLP, lambda: [{"x": x, "id": torch.arange(len(x)), "path": ["p"] * len(x)} for x in cut(X)], {}),
    "dict as one argument": (Simple, lambda: [{"x": x, "y": x[:, 0], "path": ["p"] * len(x)} for x in cut(X)], {}),
    "(dict, labels)": (MLP, lambda: [({"x": x}, x[:, 0].long()) for x in cut(X)], {}),
    "forward of a pair": (MLP, lambda: (X, Y), {"forward": lambda m, b: m(b[0])}),
    "forward of a loader": (MLP, lambda: DataLoader(TensorDataset(X, Y), 50), {"forward": lambda m, b: m(b[0])}),
    "forward of a named tuple": (MLP, lambda: [Item(x, x) for x in cut(X)], {"forward": lambda m, b: m(b.image)}),
    "forward with its own output": (MLP, lambda: X, {"forward": lambda m, b: {"a": m(b), "b": b}, "logits": "a"}),
    "forward through parts": (MLP, lambda: X, {"forward": lambda m, b: m.head(m.two(m.one(b).relu()).relu())}),
    "paths aside": (MLP, lambda: [(x, [Path("a")] * len(x)) for x in cut(X)], {}),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_the_same_network_however_it_is_called(name: str, strategy: Any) -> None:
    reference = fg.measure(MLP(), X, inits=4, strategy="loop")
    make, data, options = SAME[name]
    m = fg.measure(make(), data(), inits=4, strategy=strategy, **options)
    np.testing.assert_allclose(m.guesses.fractions, reference.guesses.fractions, atol=1.5 / len(X))
    assert m.layers[-1].gamma == pytest.approx(reference.layers[-1].gamma, rel=1e-4)
    told = "dict with more" in name or "aside" in name
    assert ("not given to the model" in kinds(m)) == told
    structure = fg.read(make(), data(), forward=options.get("forward"))
    whole = name not in ("forward with its own output", "forward through parts")
    assert (structure.network is not None) == whole, structure


@pytest.mark.parametrize("make", [MLP, Dict])
def test_every_reading_calls_it_so(make: type[nn.Module]) -> None:
    data = [{"x": x, "y": y, "path": ["p"] * len(x)} for x, y in zip(cut(X), cut(Y), strict=True)]
    forward: Any = None if make is Dict else lambda model, batch: model(batch["x"])
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    d = fg.diagnose(model, data, inits=10, seconds=5, forward=forward)
    assert d.measurement is not None
    assert not [note for note in d.notes if note.startswith("no ")]  # causes and gradients were found as well
    fg.assert_neutral(model, data, 100.0, inits=5, forward=forward)
    assert fg.explain_guess(model, data, inits=5, seconds=5, forward=forward).points == len(X)
    plain = fg.measure_gradients(MLP(), (X, Y), inits=3, batch_size=64)
    other = fg.measure_gradients(model, data, inits=3, forward=forward)
    np.testing.assert_allclose(
        [layer.all.value for layer in other.layers], [layer.all.value for layer in plain.layers], rtol=1e-4
    )
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_trial_leaves_no_trace() -> None:
    class Counting(Dict):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.seen: list[int] = []

        def forward(self, batch: dict[str, Any]) -> Any:
            self.calls += 1
            self.seen.append(1)
            torch.rand(3)
            return super().forward({**batch, "y": batch["x"], "path": batch["x"]})

    model, state = Counting(), torch.random.get_rng_state()
    batches = fed(model, collect({"x": X}))
    assert batches[0].call is not None
    assert (float(model.calls), model.seen) == (0, [])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_no_model_is() -> None:
    with pytest.raises(fg.InvalidInput, match="function of a model and a batch"):
        fg.measure(MLP, X, forward="x")  # type: ignore[arg-type]
    with pytest.raises(fg.InvalidInput, match="forward="):
        fg.measure("dense > relu > dense", X, forward=lambda m, b: m(b))
    with pytest.raises(fg.InvalidInput, match="no forward"):
        fg.measure_gradients("dense > relu > dense", X, forward=lambda m, b: m(b))


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64])
def test_whole_numbers_in_one_clear_line(kind: torch.dtype) -> None:
    images = torch.randint(0, 255, (20, 3, 8, 8)).to(kind)
    models = (nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten()))
    for model in models:
        for ask in (fg.measure, fg.diagnose, fg.explain_guess, fg.measure_gradients):
            with pytest.raises(fg.InvalidInput, match=r"as floats, but got (uint8|int64).*Try: x\.float\(\)") as caught:
                ask(model, images)
            assert "\n" not in str(caught.value)


# -- How many points --------------------------------------------------------------------------------------------------


def endless(batch: Any) -> Iterator[Any]:
    return itertools.repeat(batch)


def test_a_thousand_points_unless_asked() -> None:
    many = torch.randn(1200, FEATURES, generator=torch.Generator().manual_seed(5))
    net = "dense > relu > dense"
    for what, options in ((MLP(), {}), (net, {"width": 10})):
        m = fg.measure(what, many, inits=2, **options)
        assert m.points == 1000
        assert "1 000 of the 1 200 points, drawn at random (points=1200 takes all)" in str(m)
        assert fg.measure(what, many, inits=2, points=1200, **options).points == 1200
        assert "points=" not in str(fg.measure(what, many[:1000], inits=2, **options))
        m = fg.measure(what, endless((many[:300], None)), inits=2, **options)
        assert (m.points, "the first 1 000 points of a stream" in str(m)) == (1000, True)
        loader = DataLoader(TensorDataset(many), 100)
        assert "1 000 of the 1 200 points, the first" in str(fg.measure(what, loader, inits=2, **options))
        d = fg.diagnose(what, many, inits=4, seconds=3, seed=3, advice=False, **options)
        assert "1 000 of the 1 200 points, drawn at random" in str(d)
        assert d.measurement is not None
        # The same points, whatever the seed of the weights is.
        same = fg.measure(what, many, inits=4, seed=3, **options)
        np.testing.assert_allclose(d.measurement.guesses.fractions, same.guesses.fractions, atol=2.5 / 1000)
        assert fg.diagnose(what, endless((many[:300], None)), inits=4, seconds=2, advice=False, **options)
    assert fg.assert_neutral(MLP(), endless(many[:300]), 100.0, inits=4).points == 1000
    assert fg.explain_guess(MLP(), endless(many[:300]), inits=3, seconds=3).points <= 1000
    assert fg.measure_gradients(net, endless(many[:100]), inits=2, width=5).points == 256
    assert fg.predict(net, data=endless(many[:100]), points=200, draws=5).guesses.points == 200


# -- Whole batches ----------------------------------------------------------------------------------------------------


class Forty(MLP):
    """A hard-coded batch, and lazy layers after it."""

    def __init__(self, *, lazy: bool = False) -> None:
        super().__init__()
        self.head = nn.LazyLinear(CLASSES) if lazy else self.head

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.view(40, FEATURES))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_model_of_whole_batches_is_read(lazy: bool) -> None:
    structure = fg.read(Forty(lazy=lazy), X[:40])
    plain = fg.read(MLP(), X[:40])
    assert structure.network is not None
    assert [type(layer) for layer in structure.network.layers] == [type(layer) for layer in plain.network.layers]
    assert fg.measure(Forty(lazy=lazy), X[:40], inits=3).points == 40
    assert fg.diagnose(Forty(lazy=lazy), X[:40], inits=4, seconds=3, advice=False).structure is not None


def test_a_dataclass_is_an_output() -> None:
    assert fg.diagnose(Structured(), X, inits=4, seconds=3, advice=False).measurement is not None
