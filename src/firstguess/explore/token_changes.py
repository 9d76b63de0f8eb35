"""On demand: what known changes make of a network of tokens, each predicted for random tokens (theory.md §9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

from firstguess.base.errors import FirstguessError
from firstguess.base.text import percent
from firstguess.diagnosis.remedies.tokens import OF_TOKENS
from firstguess.explore.choice import Choice
from firstguess.explore.panels import STYLE, number, signed
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction, largest_share, stream_growth


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
    variants = [variant for remedy in OF_TOKENS for variant in remedy(network)]
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


def table(found: list[Change], classes: int) -> str:
    """One row each."""
    head = "<tr><th>change</th><th>γ</th><th>largest share</th><th>gradients, per block</th></tr>"
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in _cells(one, classes)) + "</tr>" for one in found)
    notes = "".join(f"<p class='fg-soft'>{escape(one.name)}: {escape(one.note)}</p>" for one in found if one.note)
    whole = f'<div class="fg-scroll"><table>{head}{body}</table></div>{notes}'
    return f'{STYLE}<section id="fg-changes"><h3>What each change does</h3>{whole}</section>'


def _cells(one: Change, classes: int) -> Iterator[str]:
    known = one.gamma == one.gamma
    yield one.name
    yield number(one.gamma) if known else "–"
    yield percent(largest_share(max(one.gamma, 0.0), classes)) if known else "–"
    yield "not known" if one.growth is None else signed(one.growth)
