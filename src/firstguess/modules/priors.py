"""`fg.match_prior`: first outputs that know how often classes are, theory.md (36)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import nn

from firstguess.base.checks import count, known_options
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.shown import Shown
from firstguess.data import collect, load
from firstguess.modules.feeding import Forward, fed
from firstguess.modules.guard import private_copy, unwrapped
from firstguess.modules.head import Seen, logits_of, needed
from firstguess.modules.outputs import Pick, contrasts
from firstguess.modules.repair import refuse_trained, save_weights
from firstguess.modules.sources import Mode

Array: TypeAlias = NDArray[np.float64]
Aim: TypeAlias = Literal["loss", "guesses"]
_EXCESS = 0.01  # nats by which the first loss may be above the prior's entropy
_ADVICE = "Early in training class weights in the loss do far more for rare classes than any start; in the end less."


@dataclass(frozen=True, eq=False)
class Matched(Shown):
    """A model whose head starts at the classes' frequencies. `shares` are those expected over initializations."""

    model: nn.Module = field(repr=False)
    prior: Array
    shares: Array
    loss: tuple[float, float]  # cross-entropy with labels of this prior, before and after, measured on these points
    scale: float  # by which the head's weights were multiplied
    changed: tuple[str, ...]
    added: tuple[str, ...]
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors; gives the path back."""
        return save_weights(self.model, path)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the weights."""
        return {
            "prior": self.prior.tolist(),
            "shares": self.shares.tolist(),
            "loss": list(self.loss),
            "scale": self.scale,
            "changed": list(self.changed),
            "added": list(self.added),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return f"Matched({len(self.prior)} classes, first loss {self.loss[0]:.3g} → {self.loss[1]:.3g})"

    def __str__(self) -> str:
        prior = ", ".join(f"{p:.1%}" for p in self.prior[:10])
        shares = ", ".join(f"{p:.1%}" for p in self.shares[:10])
        more = ", …" if len(self.prior) > 10 else ""
        return "\n".join(
            [
                f"prior {prior}{more}",
                f"expected guesses {shares}{more}",
                f"first loss {self.loss[0]:.3g} → {self.loss[1]:.3g}, the head's weights × {self.scale:.3g}",
                *self.notes,
            ]
        )


@known_options
def match_prior(
    model: nn.Module,
    data: object,
    *,
    prior: str | Sequence[float] | Array = "labels",
    mode: Aim = "loss",
    in_place: bool = False,
    force: bool = False,
    points: int = 512,
    forward: Forward | None = None,
    logits: Pick = None,
    run: Mode = "train",
    seed: int = 0,
) -> Matched:
    """A copy of `model` whose head's bias is the logarithm of the prior, its weights scaled for one of two aims.

    "loss": so small that the first loss is the prior's entropy, up to 0.01; "guesses" (two classes): so that on average
    over initializations guesses have the prior's shares. Both at once is impossible: theory.md (36).

    Args:
        model: An untrained model; one that looks trained is refused, unless `force=True`.
        data: Points and, for `prior="labels"`, their labels.
        prior: "labels", or the shares of the classes.
        mode: "loss" or "guesses".
        run: "train": BatchNorm normalizes by the batch; "eval": by its running statistics.

    >>> model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
    >>> m = match_prior(model, torch.randn(300, 20), prior=[0.9, 0.1], mode="guesses")
    >>> m.changed, m.shares.round(3).tolist()
    (('2.bias', '2.weight'), [0.9, 0.1])
    """
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            "a model, an instance of nn.Module",
            got=type(model).__name__,
            where="match_prior(model)",
            hint="fg.match_prior(model, data): the model comes first",
        )
    if mode not in ("loss", "guesses"):
        raise InvalidInput('"loss" or "guesses"', got=mode, where="match_prior(mode)", hint='mode="loss"')
    if not force:
        refuse_trained(model, "match_prior")
    whole = load(data) if isinstance(data, str) else data
    batches = fed(
        model,
        collect(whole, count(points, 2, "number of points", "match_prior(points)", "points=512"), seed=seed),
        forward,
    )
    fixed = model if in_place else private_copy(unwrapped(model))
    if fixed is None:
        raise InvalidInput(
            "a model that can be copied", got=type(model).__name__, where="match_prior", hint="in_place=True"
        )
    keys = set(fixed.state_dict())
    before = logits_of(fixed, batches, pick=logits, mode=run)
    p = _shares(prior, before)
    head = needed(before, "match_prior")
    weight = getattr(head.module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim < 2:
        raise NotCovered("a head with a matrix of weights", got=head.path, where="match_prior")
    if before.rows.ndim == 1:
        raise NotCovered(
            "two logits for two classes", got="one logit", where="match_prior", hint="nn.Linear(features, 2)"
        )
    size = _size(before, head.bias)
    wanted = _wanted(p, mode)
    factor = wanted / size
    with torch.no_grad():
        weight.mul_(factor)
        if head.bias is not None:
            head.bias.zero_()
    head.move(torch.from_numpy(np.log(p)))
    after = logits_of(fixed, batches, pick=logits, mode=run)
    moved = (head.key, f"{head.path}.weight" if head.path else "weight")
    gamma = before.gamma()
    notes = (
        f"γ {gamma:.2g} only adds spread between initializations: a single network's guesses are off by that.",
        _ADVICE,
    )
    return Matched(
        fixed,
        p,
        expected_shares(np.log(p), wanted),
        (_loss(before, p), _loss(after, p)),
        factor,
        tuple(key for key in moved if key in keys),
        tuple(key for key in moved if key not in keys),
        notes,
    )


def _shares(prior: Any, logits: Seen) -> Array:
    if isinstance(prior, str):
        if prior != "labels":
            raise InvalidInput('"labels" or shares of the classes', got=repr(prior), where="match_prior(prior)")
        if logits.labels is None:
            raise InvalidInput(
                "data with labels", got="none", where="match_prior(data)", hint="data=(x, y), or prior=[0.9, 0.1]"
            )
        prior = np.bincount(logits.labels.numpy(), minlength=logits.classes)
    p = np.asarray(prior, dtype=np.float64)
    if p.shape != (logits.classes,) or not np.isfinite(p).all() or not (p > 0).all():
        least = 1.0 / (2 * len(logits.rows))
        raise InvalidInput(
            f"{logits.classes} shares above 0",
            got=np.array2string(p, precision=3, threshold=10),
            where="match_prior(prior)",
            hint=f"a class that never occurs gets a small share, such as {least:.1g}",
        )
    return p / p.sum()


def _size(logits: Seen, bias: torch.Tensor | None) -> float:
    """Root mean square of the logits' contrasts without the bias that will go: s of theory.md (36)."""
    rows = logits.rows if bias is None else logits.rows - bias.detach().float().cpu()
    size = math.sqrt(float(contrasts(rows).square().mean()))
    if not size > 0.0:
        raise InvalidInput("logits that differ", got="a head whose logits are all alike", where="match_prior")
    return size


def _wanted(p: Array, aim: Aim) -> float:
    """s: by the excess of the loss, ε = s²(1 − Σp²)/2; or so that guesses of two classes follow the prior."""
    if aim == "loss":
        return math.sqrt(2.0 * _EXCESS / (1.0 - float(np.sum(p * p))))
    if len(p) != 2:
        raise NotCovered("two classes, for guesses that follow the prior", got=f"{len(p)} classes", hint='mode="loss"')
    q = float(p.min())
    if math.isclose(q, 0.5):
        return 1.0  # any size has even guesses
    return float(special.logit(q) / (math.sqrt(2.0) * special.ndtri(q)))


def expected_shares(biases: Array, scale: float) -> Array:
    """E G_k = ∫φ(t) Π_{j≠k} Φ(t + (b_k − b_j)/s) dt: theory.md (36).

    >>> expected_shares(np.log([0.1, 0.9]), 1.21234).round(5).tolist()
    [0.1, 0.9]
    """
    t, w = np.polynomial.hermite_e.hermegauss(200)
    apart = (biases[:, None] - biases[None, :]) / scale
    logs = special.log_ndtr(t[None, None, :] + apart[:, :, None])
    for k in range(len(biases)):
        logs[k, k] = 0.0
    found = np.exp(logs.sum(axis=1)) @ (w / w.sum())
    return found / found.sum()


def _loss(logits: Seen, p: Array) -> float:
    """Cross-entropy with labels drawn from the prior, whatever the point."""
    logs = torch.log_softmax(logits.rows.double(), 1).mean(0).numpy()
    return float(-(p * logs).sum())
