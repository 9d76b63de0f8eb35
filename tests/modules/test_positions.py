"""A class at every token or pixel: one population for fractions and γ, and which axis of the outputs is the classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import points
from torch import nn

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.ensemble.seeds import member_seeds

pytestmark = pytest.mark.usefixtures("one_thread")

INITS = 6


class Tokens(nn.Module):
    """5 classes for each of 7 positions, which differ by their own vectors: (batch, 7, 5), or (batch, 5, 7)."""

    def __init__(self, *, first: bool = False) -> None:
        super().__init__()
        self.places, self.layer, self.head = nn.Parameter(torch.randn(7, 6)), nn.Linear(6, 40), nn.Linear(40, 5)
        self.first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.head(torch.relu(self.layer(x + self.places)))
        return z.transpose(1, 2) if self.first else z


class Series(nn.Sequential):
    """A Conv1d model: (batch, 5, 7)."""

    def __init__(self) -> None:
        super().__init__(nn.Conv1d(6, 20, 3, padding=1), nn.ReLU(), nn.Conv1d(20, 5, 1))


class Pixels(nn.Sequential):
    """Segmentation: (batch, 4, 6, 6)."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))


class Mask(nn.Sequential):
    """One logit a pixel: (batch, 1, 6, 6)."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1))


def loop(make: Callable[[], nn.Module], logits: Callable[[nn.Module], torch.Tensor]) -> tuple[np.ndarray, float]:
    """Fractions of each class and γ, both over all positions of all samples: logits (…, classes)."""
    shares, center, spread = [], 0.0, 0.0
    for seed in member_seeds(0, 0, INITS):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(seed))
            z = logits(make().eval()).double().numpy()
        z = z.reshape(-1, z.shape[-1])
        if z.shape[1] == 1:
            shares.append([np.mean(z < 0), np.mean(z > 0)])
        else:
            shares.append([np.mean(z.argmax(1) == label) for label in range(z.shape[1])])
            z = z - z.mean(1)[:, None]
        center += np.mean(z.mean(0) ** 2 - z.var(0, ddof=1) / len(z))
        spread += np.mean(z.var(0, ddof=1))
    return np.array(shares), center / spread


def agrees(m: Any, want: tuple[np.ndarray, float]) -> None:
    np.testing.assert_allclose(m.guesses.fractions, want[0], atol=1.5 / m.points)
    assert m.gamma[-1] == pytest.approx(want[1], rel=1e-4)
    assert m.layers[-1].gamma == m.gamma[-1]


def labels(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


def test_tokens_are_pooled_in_fractions_and_gamma() -> None:
    x = points(30, 7, 6)
    m = fg.measure(Tokens, x, inits=INITS, batch_size=12)
    assert (m.points, m.classes, m.layers[-1].nodes) == (210, 5, 5)
    agrees(m, loop(Tokens, lambda net: net(x)))


LAYOUTS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, torch.Tensor]] = {
    "tokens": (Tokens, points(30, 7, 6), labels(30, 7)),
    "transposed": (lambda: Tokens(first=True), points(30, 7, 6), labels(30, 7)),
    "series": (Series, points(30, 6, 7), labels(30, 7)),
    "pixels": (Pixels, points(30, 3, 6, 6), labels(30, 6, 6)),
    "mask": (Mask, points(30, 3, 6, 6), torch.zeros(30, 1, 6, 6)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_labels_tell_which_axis_is_the_classes(name: str) -> None:
    make, x, y = LAYOUTS[name]
    m = fg.measure(make, (x, y), inits=INITS, batch_size=12)
    assert m.points == 30 * y[0].numel()
    agrees(m, loop(make, lambda net: net(x) if name == "tokens" else net(x).movedim(1, -1)))
    model = make()
    vmap, one = (fg.measure(model, (x, y), inits=2, strategy=way) for way in ("vmap", "loop"))
    np.testing.assert_allclose(vmap.gamma, one.gamma, rtol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_without_labels_a_function_tells(name: str) -> None:
    make, x, y = LAYOUTS[name]
    if name != "tokens":  # whose head works on its last axis
        with pytest.raises(InvalidInput, match=r"logits=lambda output: output.movedim\(1, -1\)"):
            fg.measure(make, x, inits=INITS)
        m = fg.measure(make, x, inits=INITS, logits=lambda output: output.movedim(1, -1))
        assert m.gamma[-1] == pytest.approx(fg.measure(make, (x, y), inits=INITS).gamma[-1], rel=1e-6)
    else:
        m = fg.measure(make, x, inits=INITS, logits=lambda output: output)
    agrees(m, loop(make, lambda net: net(x) if name == "tokens" else net(x).movedim(1, -1)))


def test_as_many_positions_as_classes() -> None:
    """Labels fit both axes: the head tells, or the user."""
    x, y = points(20, 5, 6), labels(20, 5)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 5))

    agrees(fg.measure(make, (x, y), inits=INITS), loop(make, lambda net: net(x)))
    with pytest.raises(InvalidInput, match="which axis is the classes"):
        fg.measure(Series, (x.transpose(1, 2), y), inits=INITS)


def test_one_label_a_sample_tells_nothing() -> None:
    with pytest.raises(InvalidInput, match="which axis is the classes"):
        fg.measure(Series, (points(30, 6, 7), labels(30)), inits=INITS)


def test_a_diagnosis_and_an_explanation_read_the_same_axis() -> None:
    x, y = points(60, 6, 7), labels(60, 7)
    d = fg.diagnose(Series(), (x, y), seconds=3, advice=False)
    assert d.measurement is not None
    assert (d.measurement.classes, d.measurement.points) == (5, 420)
    e = fg.explain_guess(Series(), (x, y), seconds=3)
    assert (len(e.fractions), e.points) == (5, 420)


def test_hugging_face_heads() -> None:
    """A token classifier and a language model, with a class for every token."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    ids = torch.randint(0, 40, (24, 10), generator=torch.Generator().manual_seed(0))
    bert = transformers.BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=5,
    )
    gpt = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    for make in (lambda: transformers.BertForTokenClassification(bert), lambda: transformers.GPT2LMHeadModel(gpt)):
        m = fg.measure(make, {"input_ids": ids}, inits=INITS)
        assert m.points == 240
        agrees(m, loop(make, lambda net: net(input_ids=ids).logits))
