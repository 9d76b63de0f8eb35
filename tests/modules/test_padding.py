"""Batches with and without padding: nodes with different numbers of points, against loops over the real tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import unshared
from torch import nn

import firstguess as fg
from firstguess.data import collect
from firstguess.ensemble.member_statistics import BETWEEN, DEAD, MEAN, SPREAD
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.engine import ModuleEngine

pytestmark = pytest.mark.usefixtures("one_thread")


class Encoder(nn.Module):
    """A layer on each token, and 3 classes of the mean over the real ones; wide layers are summed by blocks."""

    def __init__(self, width: int, *, transposed: bool = False, tokens: bool = False) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(50, width), nn.Linear(width, width), nn.Linear(width, 3)
        self.transposed, self.tokens = transposed, tokens

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        h = self.embed(input_ids)
        if self.transposed:  # the layer's output is then not contiguous, which another order of its nodes would suit
            h = h.movedim(0, 1).contiguous().movedim(0, 1)
        h = torch.relu(self.layer(h))
        keep = attention_mask[..., None]
        return self.head(h if self.tokens else (h * keep).sum(1) / keep.sum(1))


def texts(lengths: list[list[int]], tokens: int) -> list[dict[str, torch.Tensor]]:
    """A batch for each list of lengths."""
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "input_ids": torch.randint(0, 50, (len(batch), tokens), generator=generator),
            "attention_mask": (torch.arange(tokens) < torch.tensor(batch)[:, None]).long(),
        }
        for batch in lengths
    ]


def by_token(h: torch.Tensor, keep: torch.Tensor) -> np.ndarray:
    """MEAN, BETWEEN, SPREAD, DEAD of (samples, tokens, channels): of each node over the samples with its token."""
    means, variances, of_means, dead = [], [], [], []
    for token in range(h.shape[1]):
        for channel in range(h.shape[2]):
            values = h[keep[:, token], token, channel].double().numpy()
            if len(values) > 1:
                means.append(values.mean())
                variances.append(values.var(ddof=1))
                of_means.append(variances[-1] / len(values))
                dead.append(len(set(values.tolist())) == 1)
    row = np.empty(4)
    row[MEAN], row[BETWEEN] = np.mean(means), np.var(means) - np.mean(of_means)
    row[SPREAD], row[DEAD] = np.mean(variances), np.mean(dead)
    return row


FULL, RAGGED, SHORT = [6] * 40, [6, 5, 4, 3] * 10, [2] * 40
MIXES = {"full first": [FULL, RAGGED], "padded first": [RAGGED, FULL, RAGGED], "all tokens late": [SHORT, FULL]}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("width", [8, 160])
@pytest.mark.parametrize("mix", MIXES)
def test_batches_with_and_without_padding(mix: str, width: int, transposed: bool) -> None:
    data = texts(MIXES[mix], 6)
    engine = ModuleEngine(lambda: Encoder(width, transposed=transposed), collect(data), strategy="loop")
    members = engine.run(0, 2)
    for i in range(2):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(member_seeds(0, i, i + 1)[0]))
            model = Encoder(width)
        ids, mask = (torch.cat([batch[key] for batch in data]) for key in ("input_ids", "attention_mask"))
        with torch.no_grad():
            embedded = model.embed(ids)
            want = [by_token(h, mask.bool()) for h in (embedded, model.layer(embedded))]
            logits = unshared(model(ids, mask))[:, None]
        want.append(by_token(logits, torch.ones(len(ids), 1, dtype=torch.bool)))
        np.testing.assert_allclose(members.stats[i], want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_padded_tokens_are_no_points_of_the_output(strategy: str) -> None:
    data = texts([FULL, RAGGED], 6)
    engine = ModuleEngine(Encoder(160, tokens=True), collect(data), strategy=strategy)
    members = engine.run(0, 2)
    assert engine.points == 6 * 40 + 18 * 10
    for i in range(2):
        with engine._source.member(int(member_seeds(0, i, i + 1)[0])) as model, torch.no_grad():
            rows = torch.cat([model(**batch)[batch["attention_mask"].bool()] for batch in data])
        assert np.array_equal(members.fractions[i], np.bincount(rows.argmax(1), minlength=3) / len(rows))
        want = by_token(unshared(rows)[:, None], torch.ones(len(rows), 1, dtype=torch.bool))
        np.testing.assert_allclose(members.stats[i, -1], want, rtol=1e-4, atol=1e-6)


def test_bert_of_width_128() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=3,
    )
    data = texts([[32] * 64, [32, 20] * 32], 32)
    for what in (lambda: transformers.BertForSequenceClassification(config), Encoder(128)):
        one = fg.measure(what, data, inits=4)
        other = fg.measure(what, data[::-1], inits=4)
        assert [layer.name for layer in one.layers] == [layer.name for layer in other.layers]
        np.testing.assert_allclose(
            [layer.gamma for layer in one.layers], [layer.gamma for layer in other.layers], rtol=1e-3, atol=1e-4
        )
