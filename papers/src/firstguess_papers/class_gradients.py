"""Descent with each class's gradient known at every step: a plain loop of PyTorch on members of a description.

With full batches the gradient of the mean loss is the sum over classes of n_c/n times the gradient of the mean loss on
class c: taking it class by class costs no more than taking it at once, and says who pulls how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess import Network
from firstguess_papers.library import build
from firstguess_papers.training_pieces import Array

PLAIN, EQUAL = "plain", "equal"


def follow(
    network: str,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    *,
    members: Sequence[int],
    width: int,
    lr: float,
    looks: Sequence[int],
    seed: int,
    how: str = PLAIN,
    threads: int = 2,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[Array, Array, Array]:
    """Norms of each class's gradient (members, looks, classes), shares of the guesses (the same), accuracies (members,
    looks), at steps `looks` of full-batch descent.

    "equal" gives every class's gradient the same length, and their sum the length that the plain one has: the same
    steps without the imbalance. Member i is that of `fg.train`.
    """
    parsed = Network.parse(network, classes=int(y.max()) + 1)
    points, labels = torch.from_numpy(np.array(x, dtype=np.float32)), torch.from_numpy(np.array(y, dtype=np.int64))

    def one(member: int) -> tuple[Array, Array, Array]:
        model = build(parsed, x.shape[1:], width=width, seed=seed, member=member)
        return _descend(model, points, labels, lr=lr, looks=looks, equal=how == EQUAL)

    found: list[tuple[Array, Array, Array]] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # layers this narrow gain nothing from more; members run side by side instead
    try:
        with ThreadPoolExecutor(threads) as pool:
            for result in pool.map(one, members):
                found.append(result)
                progress(len(found), len(members))
    finally:
        torch.set_num_threads(before)
    norms, shares, right = (np.array(part) for part in zip(*found, strict=True))
    return norms, shares, right


def _descend(
    model: nn.Module, points: torch.Tensor, labels: torch.Tensor, *, lr: float, looks: Sequence[int], equal: bool
) -> tuple[Array, Array, Array]:
    classes = int(labels.max()) + 1
    groups = [torch.nonzero(labels == c).flatten() for c in range(classes)]
    weights = [p for p in model.parameters() if p.requires_grad]
    norms, shares, right = (np.empty((len(looks), *more)) for more in ((classes,), (classes,), ()))
    at = {step: index for index, step in enumerate(looks)}
    for step in range(max(looks) + 1):
        pulls: list[list[torch.Tensor]] = []
        guesses = torch.empty_like(labels)
        for rows in groups:
            logits = model(points[rows])
            guesses[rows] = logits.detach().argmax(dim=1)
            loss = nn.functional.cross_entropy(logits, labels[rows])
            pulls.append(list(torch.autograd.grad(loss, weights)))
        lengths = [_norm(pull) for pull in pulls]
        if step in at:
            norms[at[step]] = lengths
            shares[at[step]] = np.bincount(guesses.numpy(), minlength=classes) / len(labels)
            right[at[step]] = float((guesses == labels).double().mean())
        parts = [len(rows) / len(labels) for rows in groups]
        plain = [sum_of(parts, [pull[k] for pull in pulls]) for k in range(len(weights))]
        if equal:
            each = [part / max(length, 1e-30) for part, length in zip(parts, lengths, strict=True)]
            evened = [sum_of(each, [pull[k] for pull in pulls]) for k in range(len(weights))]
            scale = _norm(plain) / max(_norm(evened), 1e-30)
            plain = [scale * one for one in evened]
        with torch.no_grad():
            for weight, slope in zip(weights, plain, strict=True):
                weight -= lr * slope
    return norms, shares, right


def sum_of(parts: Sequence[float], tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Σ part·tensor."""
    total = torch.zeros_like(tensors[0])
    for part, tensor in zip(parts, tensors, strict=True):
        total += part * tensor
    return total


def _norm(pull: Sequence[torch.Tensor]) -> float:
    return float(torch.sqrt(sum((one.double() ** 2).sum() for one in pull)))  # type: ignore[arg-type]
