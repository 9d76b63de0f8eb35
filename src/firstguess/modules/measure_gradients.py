"""`measure_gradients`: one backward pass through each of many initializations, seen at every layer with weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, Unpack, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess._version import __version__
from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.data import Batch, Data, as_data, collect, load
from firstguess.ensemble.gradient_statistics import ALL, FAVOURED, OTHERS, Gradients, gradient_layers, growth_of
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.call_model import fed, left_aside
from firstguess.modules.gradient_passes import Member, Passes
from firstguess.modules.measure import recorded
from firstguess.modules.members.sources import Mode, Source, is_source, named, source_of
from firstguess.modules.options import WIDTH, ModelOptions, settled
from firstguess.network.builders import as_network
from firstguess.network.network import Network

Progress: TypeAlias = Callable[[int, int], object]

_TAKEN = ("init", "logits", "forward", "mode", "device", "dtype", "redraw", "scale")


@checks.takes(_TAKEN)
@torch.inference_mode(False)  # a copy made in a caller's inference mode could not be differentiated
def measure_gradients(
    what: object,
    data: object,
    *,
    inits: int = 20,
    seed: int = 0,
    points: int = 256,
    labels: object = None,
    batch_size: int | None = None,
    width: int = WIDTH,
    classes: int | None = None,
    progress: Progress | None = None,
    seconds: float | None = None,
    **options: Unpack[ModelOptions],
) -> Gradients:
    """Draw initializations, take one backward pass of the cross-entropy through each, and measure gradients by layer.

    What counts is the gradient of a point's own loss at a layer's weights, summed over positions that share them, for
    inputs of unit size (theory.md (39), `GradientLayer`): in a plain wide network its mean square changes by χ̃ of
    theory.md (10) per layer going back, and layers of other shapes compare. Residual networks are followed along their
    stream, block by block. (The loss is the sum over points; BatchNorm in train mode, and attention between tokens that
    have logits each, couple points, so that their gradients are of several losses.) Points whose label is the class
    that this initialization favours (the one that gets most points of the batch) are also told from the others: their
    losses are small already (MF).
    Member i depends on (seed, i) only; a model comes back untouched, its `.grad` included.

    >>> x = np.random.default_rng(0).standard_normal((64, 50))
    >>> g = measure_gradients("10 x [dense(weight_var=1) > relu] > dense", x, inits=5, width=200)
    >>> g.word, round(g.growth.value, 2)  # theory: weight_var / 2
    ('shrink', 0.51)

    Args:
        what: A `Network` or its text, an `nn.Module`, a class or a factory: as for `fg.measure`.
        data: Anything that `firstguess.data` takes.
        inits: How many initializations.
        seed: Random seed of the weights, and of random labels.
        points: At most this many data points.
        labels: Integers, one a data point, or "random". By default those of the data; where there are none, and for
            tokens, uniformly random ones.
        batch_size: Points of one pass; by default all in one (loaders keep theirs). Only BatchNorm sees the difference.
        width: Units of the layers of a description that name no width.
        classes: For a text, the number of classes; by default that of the labels, or 2.
        progress: Called with (members done, members in all).
        seconds: Draw no further initializations once this much time has passed (at least 2 are drawn).
        options: From `ModelOptions`: init, logits, forward, mode, device, dtype, redraw and scale. Gradients at the
            logits are computed in float64 whatever the dtype is.
    """
    started = time.perf_counter()
    inits = checks.count(inits, 1, "number of initializations", "measure_gradients(inits)", "inits=20")
    seed = checks.count(seed, 0, "seed", "measure_gradients(seed)", "seed=0")
    points = checks.count(points, 1, "number of points", "measure_gradients(points)", "points=256")
    width = checks.count(width, 1, "width", "measure_gradients(width)", "width=1000")
    known = settled(options)
    mode: Mode = known.pop("mode", "train")
    checks.choice(mode, get_args(Mode), "measure_gradients(mode)", "mode")
    what = named(what)
    if isinstance(what, (Network, str)):
        for name in ("init", "redraw", "scale", "forward"):
            if name in known:
                why = "a description says its own" if name in ("init", "forward") else "it is for modules"
                got = "one" if name == "forward" else repr(known[name])
                raise InvalidInput(f"no {name}: {why}", got=got, where=f"measure_gradients({name})")
        network = as_network(what, where="measure_gradients")
        most = points if labels is None or isinstance(labels, str) else None  # else labels are of all of them
        data = load(data) if isinstance(data, str) else data
        given = as_data(data, most=most)
        if labels is not None and not isinstance(labels, str):
            given = Data(given.x, np.asarray(labels), given.name)
        given = given.subset(points) if points < given.n else given
        if classes is None and isinstance(what, str) and given.classes is not None:
            classes = max(2, given.classes)
        network = as_network(network, classes=classes)
        batches = _batches((given.x, given.y), labels if isinstance(labels, str) else None, points, batch_size)
        findings: tuple[Finding, ...] = ()
        member: Member = _built(network, given.x, width, seed, known.get("device"), known.get("dtype"))
        origin: dict[str, Any] = {"network": str(network), "width": width, "data": given.name}
    elif callable(what) or is_source(what):
        if width != WIDTH:
            raise InvalidInput("no width: a module has its own", got=width, where="measure_gradients(width)")
        data = load(data) if isinstance(data, str) else data
        batches = _batches(data, labels, points, batch_size)
        forward = known.pop("forward", None)
        batches = batches if is_source(what) else fed(what, batches, forward)
        members = source_of(what, batches, mode=mode, **known)
        findings = (*members.findings, *left_aside(batches))
        if any(finding.kind == FindingKind.NOTHING_FRESH for finding in findings):
            inits = 1  # all members are one
        member = partial(_member, members, seed)
        origin = {"model": getattr(members.given, "__qualname__", type(members.given).__qualname__)}
        origin |= {"data": getattr(data, "name", type(data).__qualname__)}
    else:
        raise checks.no_model(what, "measure_gradients(what)", "fg.measure_gradients(model, data)")
    origin |= {"prepared": name} if (name := recorded(data).get("prepared")) else {}
    passes = Passes(member, batches, seed, known.get("logits"), "random" if isinstance(labels, str) else None)
    if classes is not None and classes != passes.classes:
        raise InvalidInput(f"{passes.classes} classes, what the model gives", got=classes, where="measure_gradients")
    found: list[NDArray[np.float64]] = []
    shares: list[float] = []
    for i in range(inits):
        squares, share = passes.run(i)
        found.append(squares)
        shares.append(share)
        if progress is not None:
            progress(i + 1, inits)
        if i > 0 and seconds is not None and time.perf_counter() - started > seconds:
            break
    inits = len(found)
    squares = np.array(found)  # (inits, layers and stream, 4)
    names = [layer.name for layer in (*passes.layers, *passes.stream)]
    way = squares[:, [names.index(name) for name in passes.path]]
    remarks = {(f.kind, f.layer): f for f in (*findings, *passes.findings.values(), *passes.missing(squares))}
    levels = gradient_layers((*passes.layers, *passes.stream), squares)
    return Gradients(
        levels[: len(passes.layers)],
        replace(growth_of(way[..., ALL]), **_without(squares[:, : max(1, len(passes.layers) - 1), ALL])),
        growth_of(way[..., FAVOURED]),
        growth_of(way[..., OTHERS]),
        float(np.nanmean(shares)) if np.isfinite(shares).any() else math.nan,
        inits,
        passes.points,
        passes.classes,
        tuple(remarks.values()),
        (*passes.notes, *_zeros(squares, inits)),
        seed,
        {"firstguess": __version__, "torch": torch.__version__, **origin},
        time.perf_counter() - started,
        levels[len(passes.layers) :],
    )


def _member(members: Source, seed: int, i: int) -> AbstractContextManager[nn.Module]:
    return members.member(int(member_seeds(seed, i, i + 1)[0]))


def _built(network: Network, x: NDArray[Any], width: int, seed: int, device: Any, dtype: torch.dtype | None) -> Member:
    @contextmanager
    def member(i: int) -> Generator[nn.Module]:
        yield build(network, x, width=width, seed=seed, member=i).to(device=device, dtype=dtype)

    return member


def _batches(data: object, labels: object, points: int, batch_size: int | None) -> list[Batch]:
    if labels is not None and isinstance(data, dict) and not isinstance(labels, str):
        data = {**cast("dict[str, Any]", data), "labels": labels}
    elif labels is not None and not isinstance(labels, str):
        data = cast("tuple[Any, ...]", data)[0] if isinstance(data, tuple) else data
        data = (getattr(data, "x", data), labels)
    elif isinstance(labels, str) and labels != "random":
        raise InvalidInput("labels as integers, or 'random'", got=repr(labels), where="measure_gradients(labels)")
    return collect(data, points, batch_size=points if batch_size is None else batch_size)


def _without(hidden: NDArray[np.float64]) -> dict[str, int]:
    """Initializations without gradients in any hidden layer: exactly 0, or NaN."""
    lost = np.isnan(hidden).all(axis=1)
    return {"zeros": int((~lost & ((hidden == 0) | np.isnan(hidden)).all(axis=1)).sum()), "lost": int(lost.sum())}


def _zeros(squares: NDArray[np.float64], inits: int) -> list[str]:
    """What to say about gradients that are exactly 0."""
    words = {ALL: "all gradients", FAVOURED: "the favoured class's gradient", OTHERS: "the others' gradient"}
    notes: list[str] = []
    for group, word in words.items():
        count = int((squares[..., group] == 0).any(axis=1).sum())
        if count:
            zero = f"in {count} of {inits} initializations {word} at some layer is exactly 0"
            out = "left out of its level and growth there; dtype=torch.float64 reaches further"
            notes.append(f"{zero} (below the number format, or a zero head): {out}")
    return notes
