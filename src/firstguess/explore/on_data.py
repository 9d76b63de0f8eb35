"""On demand: the network of the page on real data, predicted and measured, compared with random inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from firstguess.base.errors import FirstguessError
from firstguess.base.text import percent
from firstguess.data import Data, digits, npz
from firstguess.ensemble.measurement import Measurement
from firstguess.explore.choice import Choice
from firstguess.explore.panels import STYLE
from firstguess.modules.measure import measure
from firstguess.network.walk import needs_tokens
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction

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
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    head = "<tr><th>reading</th><th>networks</th><th>drift ratio γ</th><th>largest share</th></tr>"
    notes = "".join(f"<p>{escape(line)}</p>" for line in found.why)
    title = f"<p>On {escape(found.name)}, {found.points} points:</p>"
    whole = f'<div class="fg-scroll"><table>{head}{body}</table></div>' if rows else ""
    return f'{STYLE}<section id="fg-data">{title}{whole}{notes}</section>'
