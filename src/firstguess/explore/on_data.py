"""The network of the page on real data, on demand: predicted and measured; and what known changes make of it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from firstguess.base.errors import FirstguessError
from firstguess.base.text import by_powers, percent
from firstguess.data import Data, digits, npz
from firstguess.diagnosis.remedies.tokens import gated_mlps, pre_norm, smaller_embeddings
from firstguess.ensemble.measurement import Measurement
from firstguess.explore import panels
from firstguess.explore.choice import Choice
from firstguess.explore.panels import STYLE, signed
from firstguess.modules.measure import measure
from firstguess.network.walk import needs_tokens
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction, largest_share, stream_growth

POINTS, INITS, WIDTH = 300, 100, 200

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class OnData:
    """Two readings of one network on one data set; None where there is none, with the reason."""

    name: str
    points: int
    predicted: Prediction | None
    measured: Measurement | None
    why: tuple[str, ...]
    own_width: bool = False  # a transformer's layers have widths of their own


def uploaded(name: str, contents: bytes) -> Data:
    """A user's .npz: read as `fg.data.npz` reads a file, without pickles."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(name).name or "data.npz")
        path.write_bytes(contents)
        return npz(path)


def embedded() -> Data:
    """The digits inside scikit-learn."""
    return digits()


def beside(choice: Choice, data: Data, progress: Progress | None = None) -> OnData:
    """Predict on the data, then measure some initializations."""
    network = choice.network
    some = data.subset(min(POINTS, len(data)))
    why: list[str] = []
    predicted: Prediction | None = None
    measured: Measurement | None = None
    try:
        width = None if needs_tokens(network.layers) else WIDTH  # of tokens there is no theory at finite width
        predicted = predict(network, data=some, width=width, progress=progress)
    except FirstguessError as error:
        why.append(f"Not predicted on your data: {error.reason}.")
    try:
        measured = measure(network, some, inits=INITS, width=WIDTH, progress=progress)
    except FirstguessError as error:
        why.append(f"Not measured: {error.reason}.")
    return OnData(data.name, len(some), predicted, measured, tuple(why), needs_tokens(network.layers))


def table(found: OnData) -> str:
    """Both, one row each."""
    rows: list[tuple[str, str, str, str]] = []
    if found.predicted is not None:
        p = found.predicted
        wide = "wide layers" if found.own_width else f"width {WIDTH}"
        rows.append(("predicted on your data", wide, "–", percent(p.guesses.expected_max())))
    if found.measured is not None:
        m = found.measured
        low, high = (float(end) for end in m.gamma_interval[-1])
        gamma = f"{m.gamma[-1]:.3g} ({low:.3g} to {high:.3g})"
        width = "" if found.own_width else f", width {WIDTH}"
        rows.append(("measured", f"{m.inits} initializations{width}", gamma, percent(m.guesses.expected_max())))
    title = f"<p>On {escape(found.name)}, {found.points} points:</p>"
    whole = panels.table("reading|networks|drift ratio γ|largest share", rows, found.why)
    return f'{STYLE}<section id="fg-data">{title}{whole}</section>'


# What known changes make of a network of tokens, each predicted for random tokens (theory.md §9).


@dataclass(frozen=True)
class Change:
    """A changed network: γ, and by how much gradients change a residual block (None: not known)."""

    name: str
    gamma: float
    growth: float | None
    note: str = ""


def changes(choice: Choice, progress: Callable[[int, int], None] | None = None) -> list[Change]:
    """The network as it is, and after every change that it has room for; what is not covered is left out."""
    network, inputs = choice.network, choice.inputs
    variants = [variant for remedy in (pre_norm, gated_mlps, smaller_embeddings) for variant in remedy(network)]
    found = [_change("this network", predict(network, inputs=inputs))]
    for done, variant in enumerate(variants, start=1):
        if variant.network is not None:
            try:
                found.append(_change(variant.title, predict(variant.network, inputs=inputs), variant.price))
            except FirstguessError as error:
                found.append(Change(variant.title, float("nan"), None, f"not predicted: {error.reason}"))
        if progress is not None:
            progress(done, len(variants))
    head = "the head's bias less the mean logit: changes first guesses only"  # theory.md (37)
    return [*found, Change("head centred", 0.0, found[0].growth, head)]


def _change(name: str, p: Prediction, note: str = "") -> Change:
    stream = stream_growth([(layer.layer, layer.gradient) for layer in p.layers])
    return Change(name, float(p.gamma[-1]), None if stream is None else stream[0], note)


def changes_table(found: list[Change], classes: int) -> str:
    """One row each."""
    notes = [f"{one.name}: {one.note}" for one in found if one.note]
    rows: list[tuple[str, str, str, str]] = []
    for one in found:
        share = percent(largest_share(max(one.gamma, 0.0), classes))
        gamma, share = ("–", "–") if math.isnan(one.gamma) else (by_powers(one.gamma), share)
        rows.append((one.name, gamma, share, "not known" if one.growth is None else signed(one.growth)))
    whole = panels.table("change|γ|largest share|gradients, per block", rows, notes)
    return f'{STYLE}<section id="fg-changes"><h3>What each change does</h3>{whole}</section>'
