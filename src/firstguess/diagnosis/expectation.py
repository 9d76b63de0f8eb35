"""What theory expects of this architecture on these data, compared with what was measured, in one sentence.

The kernel reading at the network's own widths where it can, else at infinite width, else the closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.record import Record
from firstguess.base.text import elided, percent
from firstguess.data import Batch, Data
from firstguess.diagnosis.compare import compare, gamma_of
from firstguess.ensemble.measurement import Measurement
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.network import Network
from firstguess.network.shapes import UNKNOWN
from firstguess.network.walk import changed, needs_images, needs_tokens, shapes
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.gaussian import Guesses

if TYPE_CHECKING:
    from firstguess.diagnosis.compare import Comparison, Difference

# Whether a prediction is what was measured, in words that the numbers next to them never contradict.

Agreement = Literal["as measured", "close", "not as measured", "too few to tell"]

_LARGEST = "average largest share"  # as `compare` names it
# What may still be called the same without looking at errors: γ by a ratio, with a floor where it is next to nothing.
_SAME_GAMMA, _SAME_SHARE = 0.5, 0.1
_CLOSE_GAMMA, _CLOSE_SHARE = 0.1, 0.02
_FLOOR = 0.2


def agreement(c: Comparison) -> Agreement:
    """The word by the tests of `compare`, which need errors that are known: numbers far apart are never "as measured".

    "close": a difference that is clear and small, as finite width makes it (γ within 10 %, the share within 0.02 or two
    of its standard errors).
    """
    if c.agrees:
        return "as measured" if _within(c, _SAME_GAMMA, _SAME_SHARE) else "too few to tell"
    error = 2 * _output(c)[1].se
    share = min(max(_CLOSE_SHARE, error), _SAME_SHARE) if math.isfinite(error) else _CLOSE_SHARE
    return "close" if _within(c, _CLOSE_GAMMA, share) else "not as measured"


def said(c: Comparison) -> str:
    """The agreement in words: what was measured, and for a disagreement the number that shows it and its p-value."""
    word = agreement(c)
    if word == "as measured":
        return f"as measured (p = {adjusted(c):.2g})"
    if word == "too few to tell":
        few = f"{c.inits} initialization{'s' if c.inits > 1 else ''}"
        return f"not what was measured, but {few} cannot rule it out"
    least = f"the distribution of class shares (p = {adjusted(c):.2g})"
    if c.worst.p_value <= c.p_value:
        least = f"{_name(c.worst)}, {_pair(c.worst)} (p = {adjusted(c):.2g})"
    start = "close to what was measured" if word == "close" else "not what was measured"
    return f"{start}; largest difference: {least}"


def adjusted(c: Comparison) -> float:
    """The smallest p-value times how many there are: below `level` exactly where `agrees` is False."""
    p_values = [*(d.p_value for d in c.differences), c.p_value]
    return min(1.0, min((p for p in p_values if not math.isnan(p)), default=1.0) * len(p_values))


def _output(c: Comparison) -> tuple[Difference | None, Difference]:
    """γ of the output, where it was measured, and the average largest share."""
    largest = next(d for d in c.summaries if d.name == _LARGEST)
    return (c.layers[-1] if c.layers else None), largest


def _within(c: Comparison, ratio: float, share: float) -> bool:
    gamma, largest = _output(c)
    if not abs(largest.predicted - largest.measured) <= share:
        return False
    if gamma is None or gamma.predicted == gamma.measured:
        return True
    apart = abs(gamma.predicted - gamma.measured)
    return apart - gamma.room <= ratio * max(abs(gamma.predicted), abs(gamma.measured), _FLOOR) < math.inf


def _name(d: Difference) -> str:
    """ "γ 3: fc2" counts layers with weights, and a name may be a number too: γ after fc2."""
    what, _, layer = d.name.partition(": ")
    return f"γ after {elided(layer, 40)}" if layer and what.startswith("γ ") else what


def _pair(d: Difference) -> str:
    """Two numbers with as many digits as tell them apart."""
    texts = [(f"{d.predicted:.{digits}g}", f"{d.measured:.{digits}g}") for digits in range(3, 16)]
    predicted, measured = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return f"{predicted} predicted against {measured} ± {d.se:.2g}"


@dataclass(frozen=True, eq=False)
class Expected(Record):
    """What theory predicts for this architecture and these data, or why it cannot be read.

    `width`: how wide the layers are, in words. `narrow`: why the prediction is for infinitely wide ones all the same.
    `wide`: next to a prediction at its own widths, that at infinite width, and how it compares.
    """

    _also = ("words", "size", "p_value")
    _apart = ("why", "narrow", "wide")

    prediction: Prediction | None
    comparison: Comparison | None
    why: str = ""
    width: str = ""
    narrow: str = ""
    wide: tuple[Prediction, Comparison] | None = None

    @property
    def p_value(self) -> float:
        """The chance of a difference like the largest one seen, if the prediction is right (Bonferroni's bound)."""
        return math.nan if self.comparison is None else adjusted(self.comparison)

    @property
    def words(self) -> str:
        """One sentence."""
        p = self.prediction
        if p is None:
            return f"not predicted: {self.why}"
        known = "on your data" if p.reading == "kernel" else "for random data"
        at = f" at {self.width}" if p.finite_size is not None and self.width else ""
        text = f"predicted {known}{at}, the largest share is {percent(p.guesses.expected_max())} on average"
        if p.finite_size is None:
            text += f" and γ = {gamma_of(p):.3g}".replace("inf", "∞")
        if self.comparison is not None:
            text += f": {said(self.comparison)}"
            if self.narrow and agreement(self.comparison) != "as measured":  # what a difference may be
                text += f"; the prediction is for infinitely wide layers, and what {self.width} adds is not known here"
        return f"{text} ({self.why})" if self.why else text

    @property
    def size(self) -> str:
        """What finite width changed, or why that is not known; "" where there is nothing to say."""
        if self.prediction is None:
            return ""
        if self.prediction.finite_size is not None:
            return f"what finite width changed: {self.prediction.finite_size}"
        wide = f"the prediction is for infinitely wide layers, not for {self.width}: {self.narrow}"
        return wide if self.narrow else ""

    @property
    def for_changes(self) -> Prediction | None:
        """What changes are predicted by: infinite width, which is quick."""
        return self.prediction if self.wide is None else self.wide[0]

    @property
    def trusted(self) -> bool:
        """Whether that is what was measured, or close to it: else remedies are measured, not predicted."""
        compared = self.comparison if self.wide is None else self.wide[1]
        return compared is not None and agreement(compared) in ("as measured", "close")


# What theory expects of a network of tokens: the kernel on as many sequences as fit the time, else the closed form.

_FEWEST = 16  # sequences: of fewer, γ would be known to 10 % at best
_INPUTS = ("input_ids", "pixel_values")


def sequences_of(batches: Sequence[Batch], padding: int | None = None) -> torch.Tensor | None:
    """All sequences of token ids, or images, as one tensor, filled up at the end with `padding` to one length.

    None where they cannot be: a mask that is not that of this id, two segments, or more than that.
    """
    found = [_sequences(batch.inputs, padding) for batch in batches]
    known = [x for x in found if x is not None]
    if not known or len(known) < len(found) or len({x.dtype for x in known}) > 1:
        return None
    if padding is not None and all(x.ndim == 2 for x in known):
        longest = max(x.shape[1] for x in known)
        known = [torch.nn.functional.pad(x, (0, longest - x.shape[1]), value=padding) for x in known]
    return torch.cat(known) if len({x.shape[1:] for x in known}) == 1 else None


def _sequences(inputs: Any, padding: int | None) -> torch.Tensor | None:
    if isinstance(inputs, torch.Tensor):
        return inputs
    if not isinstance(inputs, dict):
        return None
    mask, types = inputs.get("attention_mask"), inputs.get("token_type_ids")
    rest = set(inputs) - {*_INPUTS, "attention_mask", "token_type_ids"}
    if rest or (types is not None and bool((types != 0).any())):
        return None
    found = next((inputs[key] for key in _INPUTS if isinstance(inputs.get(key), torch.Tensor)), None)
    if found is not None and (padding is not None or mask is not None):
        masked = torch.zeros_like(found, dtype=torch.bool) if mask is None else mask == 0
        same = torch.equal(masked, found == padding) if padding is not None else not bool(masked.any())
        return found if same else None
    return found


def predicted_tokens(network: Network, data: Data, *, draws: int, seed: int, seconds: float) -> tuple[Prediction, str]:
    """The kernel reading on all sequences, or γ of as many as fit the time; else the closed form with their p₂."""
    count = data.n
    refused: NotCovered | None = None
    while count >= min(_FEWEST, data.n):
        few = data if count == data.n else data.subset(count, seed)
        try:
            found = predict(network, data=few, draws=draws, seed=seed, seconds=seconds)
        except NotCovered as error:
            refused, count = refused or error, count // 2
            if network.layers[-1].each_token:
                break  # whose law is drawn for its own tokens: γ alone does not give it
            continue
        if count == data.n:
            return found, ""
        law = Guesses(float(found.gamma[-1]), network.classes, data.n)
        said = f"γ is that of {count} of the {data.n} sequences, for lack of time"
        return replace(found, guesses=law, assumptions=(*found.assumptions, said)), said
    assert refused is not None  # the loop ends by a prediction or by refusals
    tokens = tokens_of(np.asarray(data.x))
    padding = getattr(network.layers[0], "padding", None)
    if tokens is None or (padding is not None and bool((np.asarray(data.x) == padding).any())):
        raise refused
    found = predict(network, inputs=tokens, points=data.n)
    said = f"random tokens are taken instead, two of them the same in {percent(tokens.chance)} of cases, as in yours"
    if tokens.shared:
        said += f"; the first {'is' if tokens.shared == 1 else f'{tokens.shared} are'} the same in all sequences"
    return found, f"not on your own sequences, because {refused.reason}; {said}"


def tokens_of(ids: NDArray[Any]) -> Tokens | None:
    """What the closed form knows of sequences (n, tokens): their length, p₂, and how many first tokens are shared.

    p₂ = Σ n_i(n_i − 1)/(N(N − 1)) over the other tokens, which is Σ p² on average: theory.md (20).

    >>> tokens_of(np.array([[7, 1, 2], [7, 2, 3]]))
    Tokens(length=3, coincidence=0.16666666666666666, shared=1)
    """
    if ids.ndim != 2 or len(ids) < 2:
        return None
    same = (ids == ids[0]).all(axis=0)
    shared = len(same) if same.all() else int(np.argmin(same))
    if shared == ids.shape[1]:
        return None
    counts = np.unique(ids[:, shared:], return_counts=True)[1].astype(np.float64)
    total = counts.sum()
    return Tokens(ids.shape[1], float((counts * (counts - 1)).sum() / (total * (total - 1))), shared)


# Predictions at a network's own widths: theory.md §12, where it covers them; else at infinite width, and why.


@dataclass(frozen=True)
class OwnSize:
    """What finite width has to know beyond a description.

    `width`: of layers that name none (None: there are none of them). `law`: what all weights are drawn from, where that
    was read of a model ("": it could not be recognised); None: as the description says.
    """

    width: int | None = None
    law: str | None = None

    def drawn(self, network: Network) -> Network:
        """The network with weights of that distribution."""
        if self.law is None:
            return network
        if not self.law:
            got = "normal, uniform and orthogonal are not what all of them look like"
            raise NotCovered("weights of one known distribution, at finite width", got=got, hint="fg.measure(model, x)")
        law = self.law
        return replace(network, layers=changed(network.layers, lambda layer: (layer.with_distribution(law),)))

    def widths(self, network: Network) -> tuple[int, ...]:
        """The widths of the hidden layers, the narrowest first; nothing where none is known."""
        after = shapes(network.layers, UNKNOWN, self.width)[1:]
        hidden = [shape.width for layer, shape in zip(network.layers[:-1], after, strict=False) if layer.weighted]
        return tuple(sorted({width for width in hidden if width is not None}))

    def words(self, network: Network) -> str:
        """ "width 100", "widths 64 to 512"."""
        found = self.widths(network)
        if not found:
            return "its own widths"
        return f"width {found[0]}" if len(found) == 1 else f"widths {found[0]} to {found[-1]}"


def at_own_size(
    network: Network, data: Data, size: OwnSize, *, draws: int, seed: int, seconds: float
) -> tuple[Prediction | None, str]:
    """The prediction on these data at the network's own widths; or None, and why not ("": width means nothing)."""
    widths = size.widths(network)
    if needs_tokens(network.layers) or needs_images(network.layers):
        kind = "networks of tokens" if needs_tokens(network.layers) else "convolutions"
        return None, f"finite width is not covered for {kind}"
    if not widths:
        return None, ""
    known: dict[str, Any] = {"draws": draws, "seed": seed, "seconds": seconds}
    try:
        return predict(size.drawn(network), data=data, width=size.width or widths[0], **known), ""
    except FirstguessError as error:
        return None, str(error)


DRAWS = 2000  # of the kernel's distribution: its error is then small next to that of a hundred initializations


def expectation(
    network: Network | None,
    why: str,
    data: Data | None,
    m: Measurement,
    *,
    size: OwnSize | None = None,
    seed: int = 0,
    seconds: float = 10.0,
) -> Expected:
    """The prediction for `network` on `data`, compared with the measurement; `why` says why there is no network."""
    if network is None:
        return Expected(None, None, why)
    if data is None:
        padded = "sequences of one length without padding" if needs_tokens(network.layers) else "one array of numbers"
        return Expected(None, None, f"the inputs are not {padded}")
    if network.classes != m.classes:
        return Expected(None, None, f"{network.classes} classes were read and {m.classes} measured")
    width, narrow = ("", "") if size is None else (size.words(network), "")
    found: Prediction | None = None
    if size is not None:
        found, narrow = at_own_size(network, data, size, draws=DRAWS, seed=seed, seconds=seconds)
    try:
        prediction, remark = predicted(network, data, seed=seed, seconds=seconds)
    except FirstguessError as error:
        return Expected(None, None, error.reason)
    if found is not None:
        return Expected(found, compare(found, m), width=width, wide=(prediction, compare(prediction, m)))
    if math.isnan(float(prediction.gamma[-1])):
        return Expected(prediction, None, remark, width, narrow)
    if remark and needs_images(network.layers) and any("of a pool" in said for said in prediction.assumptions):
        rough = "a rough number: it takes the positions of a pool for independent, which in images they are not"
        return Expected(prediction, None, f"{rough}; {remark}", width, narrow)
    return Expected(prediction, compare(prediction, m), remark, width, narrow)


def predicted(network: Network, data: Data, *, seed: int = 0, seconds: float = 10.0) -> tuple[Prediction, str]:
    """The kernel reading on these points; the closed form, with a remark, where that cannot be had."""
    if needs_tokens(network.layers):
        return predicted_tokens(network, data, draws=DRAWS, seed=seed, seconds=seconds)
    try:
        return predict(network, data=data, draws=DRAWS, seed=seed, seconds=seconds), ""
    except FirstguessError as error:
        found = predict(network, inputs=Inputs.of_data(data), points=data.n)
        return found, f"not on your own data, because {error.reason}"
