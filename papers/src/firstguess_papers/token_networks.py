"""Transformers of the ledger's items on tokens: drawn block by block, and their predicted covariances."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.judging import Number
from firstguess_papers.mf_simulation import Array, mean, ratio

if TYPE_CHECKING:
    from firstguess import Network
    from firstguess_papers.running import Run

CLASSES = 10
_HEADS = 16  # classifiers that are drawn on one network: its average largest share
_DRAWS = 40_000  # of the predicted law: 0.001 on a largest share
ReadOut = Literal["token", "mean", "first", "last"]  # "token": any one, if none is special


@dataclass(frozen=True)
class Design:
    """A block of attention and MLP: where its norms stand, which they are, and what bends the MLP.

    All variances are 1 (σ² of theory.md §9), embeddings of unit size, no positions: whatever two sequences of
    different tokens share, the blocks have made.
    """

    name: str
    place: Literal["before", "after"]  # of a branch (pre-norm), or after its sum (post-norm)
    norm: Literal["layernorm", "rmsnorm"]
    gated: bool = False

    def network(self, depth: int, width: int) -> Network:
        """Without a read-out; after blocks that do not end in a norm there is one more."""
        from firstguess import Network

        hidden = f"dense(width={2 * (8 * width // 3)}) > gated(silu)" if self.gated else f"dense(width={4 * width})"
        mlp = f"{hidden} > dense" if self.gated else f"{hidden} > gelu > dense"
        if self.place == "after":
            block = f"residual[attention(4)] > {self.norm} > residual[{mlp}] > {self.norm}"
        else:
            block = f"residual[{self.norm} > attention(4)] > residual[{self.norm} > {mlp}]"
        end = f" > {self.norm}" if self.place == "before" else ""
        return Network.parse(f"embed(1, width={width}) > {depth} x [{block}]{end}", classes=CLASSES)

    def ends(self, blocks: int) -> int:
        """The number of layers up to the end of block `blocks`, the embedding with them."""
        return 1 + blocks * (4 if self.place == "after" else 2)


def different_tokens(sequences: int, length: int, *, seed: int = 0, shared: bool = False) -> NDArray[np.int64]:
    """Ids (sequences, length), no two alike but, if `shared`, the first of every sequence, which is 0.

    >>> different_tokens(2, 3, shared=True)[:, 0].tolist(), len(np.unique(different_tokens(2, 3)))
    ([0, 0], 6)
    """
    ids = np.random.default_rng((seed, 0x70C)).permutation(sequences * length).reshape(sequences, length) + 1
    if shared:
        ids[:, 0] = 0
    return ids


def pair_sums(tokens: Array, read_out: ReadOut) -> tuple[float, float]:
    """C and S of one network from nodes (sequences, tokens, D): theory.md (28); "token" averages over places."""
    n, _, width = tokens.shape
    if read_out == "mean":
        tokens = tokens.mean(axis=1, keepdims=True)
    elif read_out != "token":
        tokens = tokens[:, :1] if read_out == "first" else tokens[:, -1:]
    places = tokens.shape[1]
    own = float((tokens**2).sum()) / (n * places * width)
    both = float((tokens.sum(axis=0) ** 2).sum()) / (places * width)
    return (both - n * own) / (n * (n - 1)), own


def covariance_of(k: Array, sequences: int, read_out: ReadOut) -> tuple[float, float, Array]:
    """C, S and the covariance (sequences, sequences) of a read-out from that of all tokens; of "token" the last's."""
    blocks = k.reshape(sequences, len(k) // sequences, sequences, -1)
    if read_out == "mean":
        found = blocks.mean(axis=(1, 3))
        means = found
    else:
        place = 0 if read_out == "first" else -1
        found = blocks[:, place, :, place].copy()
        means = np.einsum("asbs->ab", blocks) / blocks.shape[1] if read_out == "token" else found
    own = float(np.trace(means)) / sequences
    return (float(means.sum()) - sequences * own) / (sequences * (sequences - 1)), own, found


@dataclass(frozen=True)
class Drawn:
    """Networks that were drawn: C, S and the average largest share, (networks, places and read-outs) each."""

    c: Array
    s: Array
    share: Array

    def gamma(self, index: int = -1) -> Number:
        """γ = C/(S − C), averages over networks first."""
        return ratio(self.c[:, index], (self.s - self.c)[:, index])

    def largest(self, index: int = -1) -> Number:
        """The average largest share."""
        return mean(self.share[:, index])


def gamma_ratio(one: Drawn, other: Drawn, index: int = -1) -> Number:
    """γ of one over γ of the other, networks that share their weights: the error leaves out one pair at a time."""

    def value(kept: NDArray[np.bool_]) -> float:
        c, s, d, t = (a[kept, index].mean() for a in (one.c, one.s, other.c, other.s))
        return float(c / (s - c) / (d / (t - d)))

    n = len(one.c)
    left_out = np.array([value(np.arange(n) != i) for i in range(n)])
    return Number(value(np.ones(n, dtype=bool)), float(np.sqrt((n - 1) * left_out.var())))


def drawn(
    run: Run,
    name: str,
    network: Network,
    x: NDArray[Any],
    *,
    width: int,
    inits: int,
    read_outs: Sequence[ReadOut] = ("token",),
    behind: Sequence[int] = (),
    normed: bool = False,
) -> Drawn:
    """Networks behind as many layers as `behind` says (and their last norm, if `normed`), or behind all of them.

    Columns are by place, and at each by read-out.
    """

    def compute() -> dict[str, Any]:
        import torch

        from firstguess import Network
        from firstguess_papers.library import Dense, PoolTokens, build

        whole = Network((*network.layers, PoolTokens("mean"), Dense()), CLASSES)
        marks = list(behind) or [len(network.layers)]
        found = np.empty((3, inits, len(marks), len(read_outs)))
        data = torch.from_numpy(x)
        for member in range(inits):
            heads = np.random.default_rng((run.seed, member, 0x4EAD)).standard_normal((_HEADS, CLASSES, width))
            modules = list(build(whole, x, width=width, seed=run.seed, member=member))[:-2]
            y = data
            for index, module in enumerate(modules, start=1):
                with torch.inference_mode():
                    y = module(y)
                    if index not in marks:
                        continue
                    nodes = (modules[-1](y) if normed else y).numpy().astype(np.float64)
                for column, read_out in enumerate(read_outs):
                    numbers = *pair_sums(nodes, read_out), _share(nodes, read_out, heads)
                    found[:, member, marks.index(index), column] = numbers
            run.progress(name, member + 1, inits)
        c, s, share = found.reshape(3, inits, -1)
        return {"c": c, "s": s, "share": share}

    key = {
        "tokens": str(network),
        "data": _hash(x),
        "width": width,
        "inits": inits,
        "read": list(read_outs),
        "behind": list(behind),
    }
    piece = run.piece(key, compute, label=name)
    return Drawn(*(np.asarray(piece[part]).reshape(inits, -1) for part in ("c", "s", "share")))


def _hash(x: NDArray[Any]) -> str:
    return hashlib.sha256(repr(x.shape).encode() + np.ascontiguousarray(x).tobytes()).hexdigest()[:16]


def _share(nodes: Array, read_out: ReadOut, heads: Array) -> float:
    """The average largest share of classes among sequences, over the heads that are drawn."""
    features = nodes.mean(axis=1) if read_out == "mean" else nodes[:, 0 if read_out == "first" else -1]
    guesses = np.einsum("nd,hcd->hnc", features, heads).argmax(axis=2)
    return float(np.mean([np.bincount(one, minlength=CLASSES).max() for one in guesses])) / len(nodes)


def predicted(
    run: Run, name: str, network: Network, x: NDArray[Any], *, width: int, read_out: ReadOut = "token"
) -> tuple[float, float]:
    """γ of a read-out and the average largest share, by the covariances of tokens: theory.md (20)-(28)."""

    def compute() -> dict[str, float]:
        from firstguess_papers.library import draw_guesses, token_covariances

        c, s, k = covariance_of(token_covariances(network, x, width=width).k, len(x), read_out)
        law = draw_guesses(k, CLASSES, draws=_DRAWS)
        return {"gamma": c / (s - c), "share": float(law.fractions.max(axis=1).mean())}

    key = {"covariances": str(network), "data": _hash(x), "width": width, "read": read_out}
    piece = run.piece(key, compute, label=f"{name}, predicted")
    return float(piece["gamma"]), float(piece["share"])
