"""`fg.match_prior`: first outputs that know how often classes are, theory.md (36)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy import special
from torch import nn

from firstguess.base import checks
from firstguess.base.checks import count, known_options
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.record import Record, Shown
from firstguess.base.text import page, percents, spaced
from firstguess.data import batches as stream
from firstguess.data import collect, load
from firstguess.modules import repair
from firstguess.modules.call_model import Forward, fed, whole_labels
from firstguess.modules.members.sources import Mode
from firstguess.modules.outputs import Pick, by_class, contrasts
from firstguess.modules.repair import LogitRows

Aim: TypeAlias = Literal["loss", "guesses"]
_EXCESS = 0.01  # nats by which the first loss may differ from the prior's entropy
_ERRORS = 3.0  # standard errors of the loss on a sample of the points that are kept clear of that limit
_SHRINK = 0.9  # the head's weights are multiplied by this until the loss is within the limit
_ABSENT = 0.005  # at most, of all classes without examples together: it costs the loss as many nats
_ADVICE = "Early in training class weights in the loss do far more for rare classes than any start; in the end less."


@dataclass(frozen=True, eq=False)
class Matched(Record, Shown):
    """A model whose head starts at the classes' frequencies. `shares` are those expected over initializations."""

    _apart = ("model",)

    model: nn.Module = field(repr=False)
    prior: Array  # whose logarithm the bias is; classes without examples have a little
    shares: Array
    loss: tuple[float, float]  # cross-entropy before and after, on these points and their labels
    entropy: float  # of the frequencies: the loss of a model that knows them and nothing else
    scale: float  # by which the head's weights were multiplied
    changed: tuple[str, ...]
    added: tuple[str, ...]
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> Path:
        """Write the weights as safetensors; gives the path back."""
        return repair.save_weights(self.model, path)

    def __repr__(self) -> str:
        return f"Matched({len(self.prior)} classes, first loss {self.loss[0]:.3g} → {self.loss[1]:.3g})"

    def __str__(self) -> str:
        before, after = self.loss
        more = ", …" if len(self.prior) > 10 else ""
        rows = [
            ("prior", ", ".join(percents(*self.prior[:10])) + more),
            ("first loss", f"{before:.3g} → {after:.3g} (the entropy of the prior is {self.entropy:.3g})"),
            ("expected guesses", ", ".join(percents(*self.shares[:10])) + more),
            ("head's weights", "as they were" if self.scale == 1.0 else f"× {self.scale:.3g}"),
        ]
        return page("Head matched to the classes' frequencies", rows, remarks=self.notes)


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
    """A copy of `model` whose head's bias is the logarithm of the prior; a head with one logit gets log(p/(1 − p)).

    "loss": the first cross-entropy is the prior's entropy, up to 0.01; the head's weights are made smaller where that
    needs it, never larger. "guesses" (two classes): the weights are scaled so that on average over initializations
    guesses have the prior's shares. Both at once is impossible: theory.md (36).

    Args:
        model: An untrained model, or a trained one with a fresh head; one whose head is trained too is refused, unless
            `force=True`.
        data: Points and, for `prior="labels"`, their labels: all labels are counted, which reads a loader to its end.
        prior: "labels", or the shares of the classes, as a list; the loss is then that of labels drawn from it.
        mode: "loss" or "guesses".
        points: How many points the loss is measured on.
        run: "train": BatchNorm normalizes by the batch; "eval": by its running statistics.

    >>> model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
    >>> m = match_prior(model, torch.randn(300, 20), prior=[0.9, 0.1], mode="guesses")
    >>> m.changed, m.shares.round(3).tolist()
    (('2.bias', '2.weight'), [0.9, 0.1])
    """
    repair.check_instance(model, "match_prior")
    checks.choice(mode, ("loss", "guesses"), "match_prior(mode)", "mode")
    whole = load(data) if isinstance(data, str) else list(data) if isinstance(data, Iterator) else data
    taken = collect(whole, count(points, 2, "number of points", "match_prior(points)", "points=512"), seed=seed)
    batches = fed(model, taken, forward)
    fresh_head = partial(repair.has_fresh_head, model, batches, logits, run, seed)
    fixed = repair.to_change(model, "match_prior", in_place=in_place, force=force, allowed=fresh_head)
    keys = set(fixed.state_dict())
    before = repair.logits_of(fixed, batches, pick=logits, mode=run)
    by_labels = isinstance(prior, str)
    counts = _counts(prior, whole, before) if by_labels else np.asarray(prior, dtype=np.float64)
    if counts.shape != (before.classes,) or not np.isfinite(counts).all() or (counts < 0).any() or not counts.any():
        got = np.array2string(counts, precision=3, threshold=10)
        raise InvalidInput(f"{before.classes} shares of at least 0", got=got, where="match_prior(prior)")
    shares = counts / counts.sum()
    p = _finite(shares, counts.sum() if by_labels else len(before.rows))
    head = repair.needed(before, "match_prior")
    weight = getattr(head.module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.ndim < 2:
        raise NotCovered("a head with a matrix of weights", got=head.path, where="match_prior")
    bare = before.rows if head.bias is None else before.rows - head.bias.detach().float().cpu()
    labels = whole_labels(before.labels, "match_prior(data)") if by_labels and before.labels is not None else None
    size = math.sqrt(float(contrasts(bare).square().mean()))
    if mode == "loss":
        part = len(bare) / counts.sum() if by_labels else 0.0
        factor = _scale(by_class(bare.double()), p, shares, labels, math.sqrt(max(0.0, 1.0 - part)))
    else:
        factor = _by_guesses(p, size, one_logit=bare.ndim == 1)
    logs = np.log(p)
    with torch.no_grad():
        weight.mul_(factor)
        if head.bias is not None:
            head.bias.zero_()
    head.move(torch.from_numpy(logs if bare.ndim > 1 else logs[1:] - logs[:1]))
    after = repair.logits_of(fixed, batches, pick=logits, mode=run)
    moved = (head.key, *((f"{head.path}.weight" if head.path else "weight",) if factor != 1.0 else ()))
    entropy = float(special.entr(shares).sum())
    spread = factor * size / (math.sqrt(2.0) if bare.ndim == 1 else 1.0)  # one logit is a difference of two
    loss = entropy + _excess(before, shares, labels), entropy + _excess(after, shares, labels)
    changed, added = tuple(key for key in moved if key in keys), tuple(key for key in moved if key not in keys)
    notes = tuple(_notes(counts, p, before, mode, by_labels=by_labels))
    return Matched(fixed, p, expected_shares(logs, spread), loss, entropy, factor, changed, added, notes)


def _counts(prior: str, data: object, logits: LogitRows) -> Array:
    """How many labels of each class there are in all of the data; negative ones (ignored by losses) do not count."""
    if prior != "labels":
        raise InvalidInput('"labels" or shares of the classes', got=repr(prior), where="match_prior(prior)")
    counts = np.zeros(logits.classes)
    for batch in () if logits.labels is None else stream(data):
        if batch.labels is None:
            continue
        labels = whole_labels(batch.labels, "match_prior(data)")
        labels = labels[labels >= 0].numpy()
        if labels.size and labels.max() >= logits.classes:
            raise InvalidInput(f"labels below {logits.classes}", got=int(labels.max()), where="match_prior(data)")
        counts += np.bincount(labels, minlength=logits.classes)
    if not counts.sum() > 0:
        hint = "data=(x, y), or prior=[0.9, 0.1]"
        raise InvalidInput("data with labels", got="none", where="match_prior(data)", hint=hint)
    return counts


def _finite(shares: Array, examples: float) -> Array:
    """The prior: half an example or less stands for a class that has none, so that its logarithm is finite."""
    absent = shares == 0.0
    p = np.where(absent, min(0.5 / examples, _ABSENT / max(1, int(absent.sum()))), shares)
    return p / p.sum()


def _above(outputs: torch.Tensor, shares: Array, labels: torch.Tensor | None) -> torch.Tensor:
    """Cross-entropy of every point minus that of the frequencies; of labels drawn from them where none are given."""
    found = torch.log_softmax(outputs, 1)
    if labels is None:
        return -found @ torch.from_numpy(shares) - float(special.entr(shares).sum())
    known = labels >= 0
    own = labels[known]
    return torch.from_numpy(np.log(shares[own.numpy()])) - found[known].gather(1, own[:, None])[:, 0]


def _excess(logits: LogitRows, shares: Array, labels: torch.Tensor | None) -> float:
    return float(_above(by_class(logits.rows.double()), shares, labels).mean())


def _scale(bare: torch.Tensor, p: Array, shares: Array, labels: torch.Tensor | None, unseen: float) -> float:
    """At most 1: the head's factor whose loss is within the limit, for all points if these are a sample of them."""
    logs, factor = torch.from_numpy(np.log(p)), 1.0
    while True:
        above = _above(factor * bare + logs, shares, labels)
        error = unseen * float(above.std()) / math.sqrt(len(above)) if len(above) > 1 else 0.0
        if abs(float(above.mean())) + _ERRORS * error <= _EXCESS:
            return factor
        factor *= _SHRINK


def _by_guesses(p: Array, size: float, *, one_logit: bool) -> float:
    """The factor after which guesses of two classes follow the prior on average: s of theory.md (36)."""
    if len(p) != 2:
        raise NotCovered("two classes, for guesses that follow the prior", got=f"{len(p)} classes", hint='mode="loss"')
    if not size > 0.0:
        raise InvalidInput("logits that differ", got="a head whose logits are all alike", where="match_prior")
    q = float(p.min())
    if math.isclose(q, 0.5):
        return 1.0  # any size has even guesses
    return float(special.logit(q) / special.ndtri(q)) / (size if one_logit else size * math.sqrt(2.0))


def _notes(counts: Array, p: Array, before: LogitRows, mode: Aim, *, by_labels: bool) -> Iterator[str]:
    if by_labels:
        used = spaced(len(before.rows))
        yield f"Frequencies of all {spaced(counts.sum())} labels; the loss is that of {used} points."
    none = np.flatnonzero(counts == 0)
    if len(none):
        absent = ", ".join([*map(str, none[:10]), *(["…"] if len(none) > 10 else [])])
        each, share = " each" if len(none) > 1 else "", percents(float(p[none[0]]))[0]
        yield f"No examples of class {absent}: a share of {share}{each} is assumed, so that the logarithm is finite."
    if mode == "guesses":
        yield f"γ {before.gamma():.2g} spreads the guesses of single networks around the expected ones."
    yield _ADVICE


def expected_shares(biases: Array, scale: float) -> Array:
    """E G_k = ∫φ(t) Π_{j≠k} Φ(t + (b_k − b_j)/s) dt: theory.md (36).

    >>> expected_shares(np.log([0.1, 0.9]), 1.21234).round(5).tolist()
    [0.1, 0.9]
    """
    t, w = np.polynomial.hermite_e.hermegauss(200)
    apart = (biases[:, None] - biases[None, :]) / max(scale, 1e-12)
    logs = special.log_ndtr(t[None, None, :] + apart[:, :, None])
    for k in range(len(biases)):
        logs[k, k] = 0.0
    found = np.exp(logs.sum(axis=1)) @ (w / w.sum())
    return found / found.sum()
