"""Causes are ranked by what taking each away does: against plain loops over models that PyTorch draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import collect
from firstguess.diagnosis import Cause, Diagnosis
from firstguess.diagnosis.causes import lines_of, ranked
from firstguess.modules.ablation import effects_of
from firstguess.modules.flow import trace_flow
from firstguess.modules.members.sources import source_of

DIGITS = torch.as_tensor(np.array(fg.data.load("digits").x), dtype=torch.float32).reshape(-1, 64)
RAW = 8 + 6 * DIGITS[:251]  # far from centred
OFF, NEAR = DIGITS[:251] + 0.6, DIGITS[:251] + 0.1
IMAGES = (8 + 6 * DIGITS[:251]).reshape(-1, 1, 8, 8)


def mlp(depth: int, phi: Callable[[], nn.Module], *, norm: bool = False, gain: float = 0.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(depth):
        layers.append(nn.Linear(64 if i == 0 else 80, 80))
        layers += [nn.LayerNorm(80)] if norm else []
        layers.append(phi())
    layers.append(nn.Linear(80, 10))
    for layer in layers:
        if gain and isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.in_features))
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def largest(logits: torch.Tensor) -> float:
    return float(logits.argmax(1).bincount(minlength=logits.shape[1]).max()) / len(logits)


def without_mean(model: nn.Sequential, x: torch.Tensor, kinds: tuple[type, ...]) -> torch.Tensor:
    for module in model:
        x = module(x)
        x = x - x.mean() if isinstance(module, kinds) else x
    return x


def plain_loop(
    build: Callable[[], nn.Sequential],
    x: torch.Tensor,
    removals: dict[str, Callable[[nn.Sequential], torch.Tensor]],
    models: int = 100,
) -> dict[str, np.ndarray]:
    """Falls of the largest fraction in this many models."""
    falls: dict[str, list[float]] = {name: [] for name in removals}
    with torch.no_grad():
        for _ in range(models):
            model = build()
            before = largest(model(x))
            for name, remove in removals.items():
                falls[name].append(before - largest(remove(model)))
    return {name: np.array(values) for name, values in falls.items()}


def ranks(causes: tuple[Cause, ...]) -> dict[str, int]:
    """Of all activations together, and of the data; last where nothing is in common."""
    found = {"data": len(causes), "activations": len(causes)}
    for rank, cause in enumerate(causes):
        if cause.kind == "data":
            found["data"] = rank
        elif len(cause.steps) > 1 and cause.kind not in ("Linear", "LayerNorm"):
            found["activations"] = rank
    return found


@pytest.mark.parametrize(
    ("build", "x", "first"),
    [
        (lambda: mlp(5, nn.ReLU, norm=True), OFF, "activations"),  # the norms are at the wrong place
        (lambda: mlp(8, nn.ReLU, gain=2.0), NEAR, "activations"),
        (lambda: mlp(2, lambda: nn.LeakyReLU(0.8)), RAW, "data"),
    ],
)
def test_the_order_is_that_of_what_removing_each_does(
    build: Callable[[], nn.Sequential], x: torch.Tensor, first: str
) -> None:
    """100 members and 250 models: where the loop is certain by 8 standard errors, members are by 5 of their own."""
    batches = collect(x, batch_size=251)
    members = source_of(build, batches)
    flow = trace_flow(members, batches, inits=20)
    causes = ranked(flow, lambda removals: effects_of(members, batches, flow, removals, inits=100)).causes
    phi = (nn.ReLU, nn.LeakyReLU)
    removals = {"data": lambda m: m(x - x.mean(0)), "activations": lambda m: without_mean(m, x, phi)}
    falls = plain_loop(build, x, removals, 250)
    apart = falls["activations"] - falls["data"]
    z = apart.mean() / (apart.std(ddof=1) / math.sqrt(len(apart)))
    assert abs(z) > 8  # else the two are alike, and the order means nothing
    assert (z > 0) == (first == "activations")
    found = ranks(causes)
    assert (found["activations"] < found["data"]) == (z > 0)
    assert all(c.tried for c in causes)
    shares = [round(c.largest_before - c.largest_after, 2) for c in causes]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("build", [lambda: mlp(5, nn.ReLU, norm=True), lambda: mlp(4, nn.ReLU)])
def test_effects_are_those_of_a_plain_loop(build: Callable[[], nn.Sequential]) -> None:
    """The same networks, other members: 8 standard errors of 20 and of 100, false alarm about 1e-6 with Student's t of
    19 degrees of freedom."""
    d = fg.diagnose(build, RAW, inits=10, seconds=600, advice=False)
    data = next(c for c in d.causes if c.kind == "data")
    assert (data.inits, data.points) == (20, 251)
    falls = plain_loop(build, RAW, {"data": lambda m: m(RAW - RAW.mean(0))})["data"]
    error = math.hypot(data.error, falls.std(ddof=1) / math.sqrt(len(falls)))
    assert abs(data.largest_before - data.largest_after - falls.mean()) < 8 * error


def test_norms_that_lower_correlation_are_shown() -> None:
    blocks = [m for i in range(4) for m in (nn.Linear(64 if i == 0 else 80, 80), nn.ReLU(), nn.LayerNorm(80))]
    d = fg.diagnose(nn.Sequential(*blocks, nn.Linear(80, 10)), RAW, inits=10, seconds=600, advice=False)
    norms = next(c for c in d.causes if c.kind == "LayerNorm" and len(c.steps) == 4)
    assert norms.added < 0
    assert norms.largest_after > norms.largest_before + 0.1
    page = str(d)
    assert page.index("what lowers it") < page.index("the 4 LayerNorm layers")


# -- Pools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pool",
    [
        lambda: nn.MaxPool2d(2),
        pytest.param(lambda: nn.AvgPool2d(2), marks=pytest.mark.slow),
        pytest.param(lambda: nn.AdaptiveMaxPool2d(4), marks=pytest.mark.slow),
    ],
)
def test_pools_of_a_cnn_have_an_effect_of_their_own(pool: Callable[[], nn.Module]) -> None:
    """Its own part: the grand average and c fall to what they were before it (once more, by hand)."""

    def build() -> nn.Sequential:
        convs = [nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), pool(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*convs, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))

    def moments(x: torch.Tensor) -> tuple[float, float, float]:
        x = x.double().flatten(1)
        spread = float(x.var(0).mean())
        return float(x.mean(0).square().mean()) - spread / len(x), spread, float(x.mean())

    def removed(model: nn.Sequential) -> torch.Tensor:
        before = model[:2](IMAGES)
        y = model[2](before)
        (c0, s0, g0), (c1, s1, g1) = moments(before), moments(y)
        share = g0**2 / (c0 + s0)
        wanted = math.sqrt(share / (1 - share) * (c1 + s1 - g1**2))
        y = y - (g1 - min(wanted, g1))
        c1, s1, _ = moments(y)
        factor = min(math.sqrt(c0 / s0 * s1 / c1), 1.0)
        return model[3:](y - (1 - factor) * y.mean(0))

    d = fg.diagnose(build, IMAGES, inits=10, seconds=600, advice=False)
    cause = next(c for c in d.causes if c.name == "2")
    falls = plain_loop(build, IMAGES, {"pool": removed})["pool"]
    error = math.hypot(cause.error, falls.std(ddof=1) / math.sqrt(len(falls)))
    assert abs(cause.largest_before - cause.largest_after - falls.mean()) < 8 * error


# -- Inputs that are the same for every point ------------------------------------------------------------------------


class Tokens(nn.Module):
    """Words, positions and token types, as BERT has them."""

    def __init__(self, *, broadcast: bool, encoder: bool) -> None:
        super().__init__()
        self.words, self.positions, self.types = nn.Embedding(90, 32), nn.Embedding(12, 32), nn.Embedding(2, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) if encoder else nn.Linear(32, 32)
        self.norm, self.body, self.head = nn.LayerNorm(32), layer, nn.Linear(32, 4)
        self.broadcast = broadcast

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        places = torch.arange(12)[None]
        places = places if self.broadcast else places.expand(len(ids), -1)
        h = self.words(ids) + self.positions(places) + self.types(types)
        return self.head(self.body(self.norm(h)).mean(1))


def tokens(points: int = 251) -> torch.Tensor:
    return torch.randint(1, 90, (points, 12), generator=torch.Generator().manual_seed(3))


def constants(d: Diagnosis) -> list[Cause]:
    return [cause for cause in d.causes if cause.kind == "constant"]


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("encoder", [True, False])
def test_constant_inputs_are_one_line(broadcast: bool, encoder: bool) -> None:
    model = Tokens(broadcast=broadcast, encoder=encoder)
    batch = {"ids": tokens(), "types": torch.zeros(251, 12, dtype=torch.long)}
    d = fg.diagnose(model, [batch], inits=10, seconds=600, advice=False)
    (cause,) = constants(d)
    assert set(cause.steps) == {"positions", "types"}
    assert cause.tried
    others = [step for c in d.causes if c.kind != "constant" for step in c.steps]
    assert not {"positions", "types", "code before norm"} & set(others)
    assert sum("constant inputs: " in line for line in str(d).splitlines()) <= 1


def test_token_types_of_a_bert() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=90, num_labels=4
    )
    ids = tokens(127)
    batch = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }
    d = fg.diagnose(transformers.BertForSequenceClassification(config), [batch], inits=6, seconds=600, advice=False)
    (cause,) = constants(d)
    assert {step.rpartition(".")[2] for step in cause.steps} == {"position_embeddings", "token_type_embeddings"}
    lines = str(d).splitlines()
    assert max(len(line) for line in lines) <= 100
    named = [line for line in lines if "encoder.layer" in line or "…" in line]
    assert all(not line.endswith("…") for line in named if " at " in line or " before " in line)


def test_a_float_input_that_is_the_same_for_all_is_not_the_data() -> None:
    class Timed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.phi, self.b = nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 3)

        def forward(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.phi(self.a(x * scale)))

    x = NEAR - NEAR.mean(0)
    d = fg.diagnose(Timed(), [{"scale": torch.ones(251, 1), "x": x}], inits=10, seconds=600, advice=False)
    assert not [c for c in d.causes if c.kind == "data"]


# -- Names -----------------------------------------------------------------------------------------------------------


def test_long_names_keep_their_ends_and_ranks_do_not_run_into_them(tmp_path: Path) -> None:
    long = "model.backbone.transformer.encoder.layers.{}.feed_forward.intermediate.activation_function"
    causes = [
        Cause(long.format(i), "GELUActivation", 0.1, 0.5, 0.4, 0.0, ("x",), 0.9, 0.5 + i / 100, 0.01, 9.0, 1.0, 9, 99)
        for i in (3, 11)
    ]
    lines = lines_of(causes, causes, 100)
    assert all(len(line) <= 100 and line.endswith("activation_function`)") for line in lines[1:])
    assert all(cause.short(34).endswith("_function`)") and len(cause.short(34)) <= 34 for cause in causes)
    d = fg.diagnose(mlp(2, nn.ReLU), RAW, inits=6, seconds=60, advice=False)
    text = d.save(tmp_path / "r.html").read_text("utf-8")
    assert "ReLU (<code>1</code>)" in text
    assert "1. 1" not in text
    assert "<th>Rank</th>" in text or ">Rank<" in text
