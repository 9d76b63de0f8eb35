"""Seeds and draws: member i of an ensemble depends on (seed, i) only.

torch's CPU generators use the low 32 bits of a seed, so hashed seeds of many members collide (performance.md, "Random
numbers"). Here a keyed permutation of the 32-bit numbers gives every member a value of its own: no two members of one
seed ever share it, and another seed is another permutation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.checks import count
from firstguess.base.errors import InvalidInput
from firstguess.network.tensors import Weights
from firstguess.network.weights import degrees_of, has_variance, scale_of

MOST_MEMBERS = 2**32
_ROUNDS = 6
_MASK = (1 << 64) - 1


def check_seed(seed: object, where: str = "seed") -> int:
    """A whole number of at least 0."""
    return count(seed, 0, "seed", where, "seed=0")


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finalizer: every bit of the result depends on every bit of z."""
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _round_keys(seed: int) -> NDArray[np.uint64]:
    state, words = np.zeros(1, np.uint64), max(1, -(-seed.bit_length() // 64))
    for i in range(words):  # seeds of any size: 64 bits at a time
        state = _mix(state ^ np.uint64((seed >> 64 * i) & _MASK))
    return _mix(state + np.arange(_ROUNDS, dtype=np.uint64))


def member_seeds(seed: int, start: int, stop: int) -> NDArray[np.uint32]:
    """The 32-bit generator seeds of members start … stop − 1: a keyed Feistel permutation of their numbers.

    >>> [int(s) for s in member_seeds(0, 0, 3)] == [int(member_seeds(0, i, i + 1)[0]) for i in range(3)]
    True
    """
    if not 0 <= start <= stop <= MOST_MEMBERS:
        hint = "another seed"
        raise InvalidInput(f"members between 0 and {MOST_MEMBERS}", got=f"{start} … {stop}", where="members", hint=hint)
    members = np.arange(start, stop, dtype=np.uint64)
    half = np.uint64(0xFFFF)
    left, right = members >> np.uint64(16), members & half
    for key in _round_keys(check_seed(seed)):
        left, right = right, left ^ (_mix(right ^ key) & half)
    return ((left << np.uint64(16)) | right).astype(np.uint32)


def tie_stream(seed: int, member: int) -> np.random.Generator:
    """The stream that breaks a member's ties; a stream of its own, so that ties do not disturb weights."""
    return np.random.default_rng((check_seed(seed), member, 0x7135))


def fill_weights(out: torch.Tensor, generator: torch.Generator, law: Weights) -> torch.Tensor:
    """Fill one member's weights (units, inputs…), contiguous float32, with Var W = weight_var / fan_in.

    Always flat draws: a generator's stream depends on length, contiguity and type. Orthogonal weights are the Q of a
    Gaussian matrix, scaled to the same variance of an entry (so not to unit gain where units ≠ inputs). Laplace is the
    difference of two exponentials; Student's t is √(ν(U^(−2/ν) − 1))·cos 2πV of two uniforms (Bailey, 1994), in
    float64, whose uniforms reach into its tails.
    """
    std = scale_of(law.init, law.weight_var, law.fan_in)
    if law.init == "uniform":
        reach = math.sqrt(3.0) * std
        if reach > 1e38:  # infinite in float32, as normal ones become by themselves: the measurement says so
            return out.fill_(math.inf)
        return out.uniform_(-reach, reach, generator=generator) if reach > 0.0 else out.zero_()
    if law.init == "normal":
        return out.normal_(0.0, std, generator=generator)
    if law.init == "rademacher":
        return out.random_(0, 2, generator=generator).mul_(2.0).sub_(1.0).mul_(std)
    if law.init == "laplace":
        other = torch.empty_like(out).exponential_(generator=generator)
        return out.exponential_(generator=generator).sub_(other).mul_(std / math.sqrt(2.0))
    if (degrees := degrees_of(law.init)) is not None:
        u, v = (torch.empty(out.shape, dtype=torch.float64).uniform_(generator=generator) for _ in range(2))
        radius = (degrees * torch.expm1(-2.0 / degrees * torch.log1p(-u))).sqrt_()
        unit = math.sqrt((degrees - 2.0) / degrees) if has_variance(law.init) else 1.0
        return out.copy_(radius.mul_(torch.cos(2.0 * math.pi * v)).mul_(unit * std))
    out.normal_(0.0, 1.0, generator=generator)
    units, inputs = out.shape[0], out[0].numel()
    matrix = out.view(units, inputs)
    tall = (matrix if units >= inputs else matrix.T).double()
    q, r = torch.linalg.qr(tall)
    q = q * torch.where(r.diagonal() < 0, -1.0, 1.0)  # makes it uniform over orthogonal matrices
    matrix.copy_((q if units >= inputs else q.T) * (std * math.sqrt(max(units, inputs))))
    return out


def fill_biases(out: torch.Tensor, generator: torch.Generator, law: Weights) -> torch.Tensor:
    """Fill one member's biases, N(0, bias_var); drawn after the layer's weights, and only if bias_var > 0."""
    return out.normal_(0.0, math.sqrt(law.bias_var), generator=generator)


# The order in which a member sees the data: it depends on (seed, member) only, whatever trains it.

_STREAM = 0x0DA7A  # apart from the streams of weights and of ties


def orders(seed: int, member: int, n: int, batch: int | None) -> Iterator[NDArray[np.int64]]:
    """The points of every mini-batch, without end: epochs are reshuffled, the last batch of one may be smaller.

    Without a batch size, or from n on, every batch is all points in their own order.

    >>> steps = orders(0, member=3, n=5, batch=2)
    >>> epoch = [next(steps) for _ in range(3)]
    >>> [len(part) for part in epoch], sorted(np.concatenate(epoch).tolist())
    ([2, 2, 1], [0, 1, 2, 3, 4])
    """
    if batch is None or batch >= n:
        whole = np.arange(n)
        while True:
            yield whole
    rng = np.random.default_rng((seed, member, _STREAM))
    while True:
        order = rng.permutation(n)
        for first in range(0, n, batch):
            yield order[first : first + batch]
