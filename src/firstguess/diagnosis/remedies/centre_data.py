"""Centre the data: a direction that all points share is bias before any layer (theory.md (2), m0)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstguess.diagnosis.remedies.base import IMPORTS, Case, Variant, inputs_of
from firstguess.theory.data_bias import data_bias

_CODE = """class Centred(nn.Module):
    def __init__(self, model, mean):
        super().__init__()
        self.model = model
        self.register_buffer("mean", mean)

    def forward(self, x):
        return self.model(x - self.mean)


points = [batch[0] if isinstance(batch, (list, tuple)) else batch for batch in loader]
model = Centred(model, torch.cat(points).mean(0))
"""
_WORTH = 0.01  # γ₀ below which there is nothing to gain


def variants(case: Case) -> Iterator[Variant]:
    """The same network on data minus their mean point, if the data bring a drift ratio worth speaking of."""
    x = inputs_of(case.batches)
    if x is None or len(x) < 3:
        return
    bias = data_bias(x.numpy())
    # γ₀ of a sample has m0 too large by v0/n; what is left is the data's own.
    if bias.gamma - 1 / bias.points < _WORTH:
        return
    parts = (x - x.mean(0, keepdim=True)).split([b.size for b in case.batches])
    centred = [replace(b, inputs=part) for part, b in zip(parts, case.batches, strict=True)]
    yield Variant(
        "centre the data",
        "x - x.mean(0): subtract the mean point",
        network=case.network,
        model=case.model,
        batches=centred,
        code=f"{IMPORTS}{_CODE}",
        price="none, where the mean is that of the training data, at test time too",
        note=f"the data alone bring a drift ratio γ₀ = {bias.gamma:.3g}",
    )
