"""Every kind of model, input, output and factory that the ensemble reading of modules has to take."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from small_models import kinds, mlp, points
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch, collect
from firstguess.ensemble.member_statistics import SPREAD
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.engine import ModuleEngine

pytestmark = pytest.mark.usefixtures("one_thread")
_ONE = nn.Linear(10, 2)


class Everything(nn.Module):
    """Own parameters, a shared module, control flow by data, a dict of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((10,), 2.0))
        self.shared = nn.Linear(10, 10)
        self.rare = nn.Linear(10, 10)
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor, *, twice: bool = True) -> dict[str, torch.Tensor]:
        x = self.shared(x * self.scale)
        if twice:
            x = self.shared(torch.relu(x))
        if len(x) > 5 and float(x.mean()) > 0:
            x = self.rare(x)
        return {"features": x, "scores": self.head(x)}


def test_shared_modules_and_control_flow() -> None:
    engine = ModuleEngine(Everything(), collect({"x": points(64, 10), "twice": True}, batch_size=8), logits="scores")
    members = engine.run(0, 6)
    assert [layer.name for layer in engine.layers][:2] == ["shared", "shared#2"]
    assert "scale" not in {f.layer for f in members.findings}  # a constant: there is nothing to re-initialize
    assert ("control flow", "rare") in {(f.kind, f.layer) for f in members.findings}
    assert members.stats.shape == (6, len(engine.layers), 4)
    assert "(model)" not in {layer.name for layer in engine.layers if layer.weights}


def test_transformer_encoder_classifier() -> None:
    class Classifier(nn.Module):
        def __init__(self, batch_first: bool) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 3)
            self.batch_first = batch_first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.body(x if self.batch_first else x.transpose(0, 1))
            return self.head(h.mean(1 if self.batch_first else 0))

    x = points(6, 6, 16)  # as many tokens as samples: only a second batch size tells them apart
    torch.manual_seed(0)
    first = Classifier(True)
    second = Classifier(False)
    one, two = (ModuleEngine(m, collect(x), seed=1).run(0, 3) for m in (first, second))
    np.testing.assert_allclose(one.stats, two.stats, rtol=1e-4, atol=1e-6)
    names = {layer.name for layer in ModuleEngine(first, collect(x)).layers}
    assert {"body.layers.0.self_attn", "body.layers.1.linear2", "body.layers.0.norm1"} <= names
    assert {f.kind for f in one.findings} == {"cloned"}  # the constructor's own Xavier draw of the attention survives


def test_single_logit_heads() -> None:
    x = points(50, 10)
    for model in (nn.Linear(10, 1), nn.Sequential(nn.Linear(10, 1), nn.Flatten(0))):
        engine = ModuleEngine(model, collect(x))
        members = engine.run(0, 4)
        assert engine.classes == 2
        with engine._source.member(int(member_seeds(0, 2, 3)[0])), torch.no_grad():
            z = engine._source.shared_copy(x).reshape(-1)
        assert members.fractions[2].tolist() == [float((z < 0).double().mean()), float((z > 0).double().mean())]
        assert [layer.weights for layer in engine.layers] == [True]


def test_per_token_heads_count_tokens_and_respect_the_mask() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.head = nn.Linear(8, 20)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, None]:
            return self.head(self.embed(input_ids)), None

    ids = torch.arange(40).reshape(8, 5) % 20
    mask = torch.ones(8, 5, dtype=torch.long)
    mask[3:, 3:] = 0
    data = {"input_ids": ids, "attention_mask": mask}
    engine = ModuleEngine(Tokens(), collect(data, batch_size=4))
    members = engine.run(0, 2)
    assert engine.points == int(mask.sum())
    assert engine.classes == 20
    assert [layer.name for layer in engine.layers] == ["embed", "head"]
    private = engine._source.shared_copy
    with engine._source.member(int(member_seeds(0, 1, 2)[0])), torch.no_grad():
        h = private.embed(ids).double()
        guesses = private.head(private.embed(ids))[mask.bool()].argmax(-1)
    np.testing.assert_allclose(members.fractions[1], np.bincount(guesses, minlength=20) / int(mask.sum()))
    means = torch.stack([h[mask[:, t].bool(), t].mean(0) for t in range(5)])
    spreads = torch.stack([h[mask[:, t].bool(), t].var(0) for t in range(5)])
    counts = mask.sum(0)[:, None]
    want = [means.mean(), means.var(unbiased=False) - (spreads / counts).mean(), spreads.mean()]
    np.testing.assert_allclose(members.stats[1, 0, :3], want, rtol=1e-5)
    stacked = ModuleEngine(Tokens(), collect(data, batch_size=4), strategy="vmap").run(0, 2)
    np.testing.assert_allclose(stacked.stats, members.stats, rtol=1e-5, atol=1e-7)


def test_padding_to_different_lengths() -> None:
    """Batches padded each to its own length have no nodes in common but the channels."""
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 30))
    batches = [Batch(torch.randint(30, (6, n), generator=torch.Generator().manual_seed(n)), None, 6) for n in (4, 7)]
    engine = ModuleEngine(model, batches)
    members = engine.run(0, 2)
    assert engine.points == 6 * 11
    assert [layer.nodes for layer in engine.layers] == [8, 30]
    assert "node" in kinds(members)
    assert np.isfinite(members.stats).all()


def test_a_class_at_every_position() -> None:
    model = nn.Conv2d(3, 5, 1)
    data = collect(points(6, 3, 4, 4))
    with pytest.raises(InvalidInput, match="movedim"):
        ModuleEngine(model, data)
    engine = ModuleEngine(model, data, logits=lambda out: out.movedim(1, -1))
    assert (engine.points, engine.classes) == (6 * 16, 5)
    np.testing.assert_allclose(engine.run(0, 3).fractions.sum(1), 1)


def test_lazy_modules() -> None:
    model = nn.Sequential(nn.LazyLinear(12), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(3))
    engine = ModuleEngine(model, collect(points(20, 10)))
    engine.run(0, 2)
    assert isinstance(model[0], nn.LazyLinear)
    assert [layer.kind for layer in engine.layers] == ["Linear", "ReLU", "BatchNorm1d", "Linear"]
    factory = ModuleEngine(lambda: nn.Sequential(nn.LazyLinear(12), nn.LazyLinear(3)), collect(points(20, 10)))
    assert not np.allclose(*factory.run(0, 2).stats)


def test_compiled_models_are_unwrapped_without_compiling() -> None:
    plain = mlp()
    compiled = torch.compile(plain, backend=_never)
    data = collect(points(20, 10))
    want = ModuleEngine(plain, data).run(0, 2)
    assert np.array_equal(ModuleEngine(compiled, data).run(0, 2).stats, want.stats)
    inside = nn.Sequential(torch.compile(mlp(), backend=_never))
    assert ModuleEngine(inside, data).layers[0].name == "0.0"
    plain.compile(backend=_never)
    assert np.array_equal(ModuleEngine(plain, data).run(0, 2).stats, want.stats)


def _never(*_: object) -> None:
    raise AssertionError("compiled")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    data = collect(points(40, 10))
    own = ModuleEngine(mlp().to(dtype), data).run(0, 2)
    asked = ModuleEngine(mlp(), data, dtype=dtype)
    assert "float32 to" in asked.notes[-1]
    assert np.isfinite(own.stats).all()
    plain = ModuleEngine(mlp(), data).run(0, 400)
    cast = ModuleEngine(mlp(), data, dtype=dtype).run(0, 400)
    # Other draws with the same distribution: mean SPREAD within 6 standard errors (1 in 5e8)
    one, two = plain.stats[:, 4, SPREAD], cast.stats[:, 4, SPREAD]
    assert abs(one.mean() - two.mean()) < 6 * math.hypot(one.std(), two.std()) / 20


def test_inputs_are_never_written() -> None:
    x = points(20, 10)
    before = x.clone()
    engine = ModuleEngine(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(10, 3)), collect(x))
    one = engine.run(0, 2)
    assert torch.equal(x, before)
    plain = ModuleEngine(nn.Sequential(nn.ReLU(), nn.Linear(10, 3)), collect(x)).run(0, 2)
    np.testing.assert_allclose(one.stats, plain.stats)


def test_tuple_and_keyword_inputs() -> None:
    bilinear = nn.Bilinear(4, 5, 3)
    engine = ModuleEngine(bilinear, collect((points(20, 4), points(20, 5), None)))
    assert engine.run(0, 2).fractions.shape == (2, 3)
    assert ModuleEngine(bilinear, collect({"input1": points(20, 4), "input2": points(20, 5)})).classes == 3


def test_recurrent_networks() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    for init in (None, "orthogonal", (1.0, 0.1)):
        members = ModuleEngine(Recurrent(), collect(points(12, 5, 6)), init=init).run(0, 6)
        assert np.isfinite(members.stats).all()
        assert not kinds(members)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (nn.Linear, r"def make\(\): return Linear\("),
        (lambda: 3, "nn.Module"),
        (_ONE.eval, "give the model itself"),
        (3, "nn.Module"),
        (nn.Linear(7, 2), "runs on this data"),
        (nn.Sequential(nn.Linear(10, 2), nn.Unflatten(0, (1, -1))), "first axis"),
    ],
)
def test_bad_models_end_in_one_clear_error(what, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        ModuleEngine(what, collect(points(20, 10)))


def test_bad_options() -> None:
    data = collect(points(20, 10))
    for options in ({"mode": "test"}, {"node": "pixel"}, {"strategy": "fast"}, {"init": "he"}, {"init": (-1, 0)},
                    {"logits": "logits"}, {"logits": lambda out: out.argmax(1)}, {"seed": -1}):  # fmt: skip
        with pytest.raises(InvalidInput):
            ModuleEngine(mlp(), data, **options)
    with pytest.raises(InvalidInput, match="two data points"):
        ModuleEngine(mlp(), collect(points(1, 10)))


def test_factories_that_do_not_draw_are_told() -> None:
    def seeded() -> nn.Module:
        torch.manual_seed(0)
        return mlp()

    members = ModuleEngine(seeded, collect(points(20, 10))).run(0, 2)
    assert any(f.kind == "not redrawn" and "seed" in f.message for f in members.findings)
    backbone = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8))
    before = copy.deepcopy(backbone.state_dict())
    data = collect(points(20, 10))
    shared = ModuleEngine(lambda: nn.Sequential(backbone, nn.Linear(8, 2)), data, dtype=torch.float64)
    members = shared.run(0, 3)
    assert {f.layer for f in members.findings if f.kind == "not redrawn"} >= {"0.0.weight", "0.1.bias"}
    assert not np.allclose(members.stats[0, -1], members.stats[1, -1])
    after = backbone.state_dict()
    assert all(torch.equal(before[name], after[name]) and after[name].dtype == before[name].dtype for name in before)
    assert backbone.training
    assert not backbone[0]._forward_hooks
