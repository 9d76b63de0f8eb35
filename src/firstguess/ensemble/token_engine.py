"""The ensemble reading of networks of tokens: one member after another, as torch modules, a core each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.base.checks import count, number
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.statistics import guesses as tied_guesses
from firstguess.base.threads import cores
from firstguess.ensemble.engine import check_data, one_torch_thread
from firstguess.ensemble.member_module import drawn
from firstguess.ensemble.member_statistics import Finding, FindingKind, Members, Probe, ProbedLayer
from firstguess.ensemble.moments import GuessCounts, NodeMoments, statistics
from firstguess.ensemble.resolved import resolve
from firstguess.ensemble.seeds import check_seed, member_seeds, tie_stream
from firstguess.network.network import Network
from firstguess.network.shapes import PositionGrid
from firstguess.network.tensors import Place

_HELD = 12.0  # activations of the widest layer that are alive at once
_MASK = 6.0  # bytes a pair of tokens, of who attends to whom
_CHUNK = 64  # sequences carried together: more do not fit the cache
_PADDED = "some tokens are padding: layers are measured behind the one that reads the tokens"
_GOOD_STRETCH = 5e10  # operations between two looks at the clock


class TokenEngine:
    """Initializations of a `Network` of tokens on ids (n, tokens), or on images that it cuts into patches.

    Member i depends on (seed, i) only, and is `build(network, x, seed=seed, member=i)`. Options as
    `DescriptionEngine`'s; there is nothing to reduce or to group here.
    """

    def __init__(
        self,
        network: Network,
        x: NDArray[Any],
        *,
        seed: int = 0,
        width: int = 1000,
        memory: float = 2e9,
        threads: int | None = None,
        reduce: bool = True,
        batch: int | None = None,
        dtype: torch.dtype = torch.float32,
        probe: Probe = "all",
        group: int | None = None,
        chunk: int | None = None,
    ) -> None:
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInput("dtype float32 or float64", got=str(dtype), where="measure", hint="torch.float32")
        if probe not in ("all", "weights", "output"):
            raise InvalidInput("probe 'all', 'weights' or 'output'", got=probe, where="measure", hint="probe='all'")
        if not number(memory) > 0:
            raise InvalidInput("a positive memory budget in bytes", got=memory, where="measure", hint="memory=2e9")
        self.seed = check_seed(seed, "measure")
        width = count(width, 1, "width", "measure", "width=1000")
        self._threads = count(cores() if threads is None else threads, 1, "number of threads", "measure", "threads=2")
        data = check_data(x)
        tokens = network.layers[0].tokens_of(data)  # ids that are none, and images that do not fit, are refused here
        real = None if tokens is None else network.layers[0].real_tokens(tokens)
        vocabulary = int(data.max()) + 1 if data.ndim == 2 else None
        self._places = resolve(
            network, data.shape[1:], width=width, inputs=lambda: None, points=len(data), vocabulary=vocabulary
        )
        for place in self._places:
            place.layer.tensors(place)  # a layer without a meaning is refused before any long work
        each_token = self._places[-1].layer.each_token
        whole = np.ones(data.shape[: 2 if each_token else 1], dtype=bool) if real is None or not each_token else real
        self._guessed = torch.from_numpy(whole)  # (points,), or (points, tokens) of a language model: what is guessed
        self.network, self.points, self.classes = network, int(whole.sum()), network.classes
        self.notes: tuple[str, ...] = () if real is None else (_PADDED,)
        last = len(self._places) - 1
        chosen = [
            i
            for i, p in enumerate(self._places)
            if (probe == "all" or (p.layer.weighted if probe == "weights" else i == last))
            and (real is None or i == last or p.after.grid == PositionGrid())
        ]
        self._probes = {i: k for k, i in enumerate(chosen)}
        self.layers = tuple(
            ProbedLayer(
                p.name, p.layer.kind, network.classes if p.layer.each_token else p.after.nodes, p.layer.weighted
            )
            for p in (self._places[i] for i in chosen)
        )
        self._dtype = dtype
        self._data = torch.from_numpy(data.astype(np.int64) if data.ndim == 2 else data.astype(np.float32))
        if data.ndim != 2:
            self._data = self._data.to(dtype)
        widest = max(_widest(place) for place in self._places)
        size = 4.0 if dtype == torch.float32 else 8.0
        masked = real is not None or any(getattr(p.layer, "window", None) for p in _all(self._places))
        one = size * _HELD * widest + (_MASK * data.shape[1] ** 2 if masked and data.ndim == 2 else 0.0)
        if one > memory:
            raise NotCovered(
                f"sequences of which one takes at most {memory / 1e9:.2g} GB",
                got=f"{one / 1e9:.2g} GB, with {data.shape[1:]} numbers each",
                where="measure",
                hint=f"shorter sequences, or memory={2 * one:.0e}",
            )
        fitting = int(memory / (self._threads * one))
        self._chunk = chunk or max(1, min(len(data), _CHUNK, fitting))

    @property
    def batch_hint(self) -> int:
        """How many members are convenient to ask for at once."""
        nodes = sum(place.after.nodes * (place.before.width or 1) for place in self._places if place.layer.weighted)
        return self._threads * max(1, min(round(_GOOD_STRETCH / (8.0 * nodes * len(self._data))), 100))

    @property
    def bitwise_group(self) -> int:
        """Members that are computed side by side: none, each is alone."""
        return 1

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1."""
        if not 0 <= start < stop:
            raise InvalidInput("members start < stop", got=f"{start} … {stop}", where="run", hint="run(0, 100)")
        inits = stop - start
        fractions, tied = np.empty((inits, self.classes)), np.zeros(inits, np.int64)
        stats, bad = np.empty((inits, len(self.layers), 4)), dict[int, Place]()
        own = np.zeros(inits)
        seeds = member_seeds(self.seed, start, stop)

        def one(index: int) -> None:
            torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
            with torch.inference_mode():
                moments, guesses, place, hits = self._through(int(seeds[index]))
            own[index] = hits / self.points
            if place is not None:
                bad[index] = place
            if 0 in guesses.tied:
                tied[index] = guesses.ties(0)
                guesses.settle(0, tie_stream(self.seed, start + index))
            fractions[index] = guesses.counts[0].numpy() / self.points
            if bool(guesses.lost[0]):
                fractions[index] = np.nan  # no class for NaN
            for at, probe in self._probes.items():
                stats[index, probe] = statistics(*moments[at].result(), moments[at].points)[0].numpy()

        with one_torch_thread(), ThreadPoolExecutor(min(self._threads, inits)) as pool:
            for _ in pool.map(one, range(inits)):
                pass
        found = Members(start, fractions, tied, stats, self._nonfinite(start, inits, bad))
        return replace(found, own=own) if self._places[-1].layer.each_token else found

    def _nonfinite(self, start: int, inits: int, bad: dict[int, Place]) -> tuple[Finding, ...]:
        if not bad:
            return ()
        first = min(bad)
        said = f"{len(bad)} of {inits} initializations have NaN or Inf; in member {start + first} first after "
        return (Finding(FindingKind.NONFINITE, said + bad[first].where, bad[first].name),)

    def _through(self, seed: int) -> tuple[dict[int, NodeMoments], GuessCounts, Place | None, int]:
        """One member on all points; the first layer after which a number is not finite, if there is one.

        Last how often a language model guesses the token that it is given.
        """
        modules = list(drawn(self._places, seed).to(self._dtype))
        moments = {i: NodeMoments() for i in self._probes}
        guesses, lost, hits = GuessCounts(1, self.classes), len(modules), 0
        first, broken = 0, tie_stream(seed, 0)
        for given, guessed in self._chunks():
            x = given
            for index, module in enumerate(modules):
                x = module(x)
                if index == len(modules) - 1 and self._places[-1].layer.each_token:
                    x = x[guessed]  # tokens are points
                    hits += int((tied_guesses(x.numpy(), broken) == given[guessed].numpy()).sum())
                if index < lost and not bool(torch.isfinite(x).all()):
                    lost = index
                if index in moments:
                    moments[index].add(x.flatten(1).T.unsqueeze(0), torch.empty_like)
            guesses.add(x.T.unsqueeze(0), first)
            first += len(x)
        return moments, guesses, self._places[lost] if lost < len(modules) else None, hits

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Some sequences at a time, and which of them, or of their tokens, are guessed."""
        for first in range(0, len(self._data), self._chunk):
            part = slice(first, first + self._chunk)
            yield self._data[part], self._guessed[part]


def _all(places: Iterable[Place]) -> Iterator[Place]:
    """All layers, those within others included."""
    for place in places:
        yield place
        for path in place.paths:
            yield from _all(path)


def _widest(place: Place) -> int:
    """The most numbers that a point has in or after a layer."""
    inner = [_widest(one) for path in place.paths for one in path]
    return max([place.after.nodes, *inner])
