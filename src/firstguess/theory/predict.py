"""`fg.predict`: the closed form without data, the kernel with them; both give the same kind of result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import numpy as np

from firstguess.base import checks
from firstguess.base.checks import known_options
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.builders import as_network
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.network import Network
from firstguess.network.walk import needs_images, needs_tokens, no_output
from firstguess.theory import closed_form
from firstguess.theory.finite.expansion import check_width, predict_finite
from firstguess.theory.finite.on_data import at_width, output_reading
from firstguess.theory.kernel.propagation import image_kernel, kernel
from firstguess.theory.prediction import Prediction, provenance
from firstguess.theory.shares.argmax_sampling import draw_guesses
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.tokens import token_kernel

_TIED = 0.01  # share of tied guesses that is worth a remark; float32 logits alone tie in fewer than 1 of 10 000
_MOST_POINTS = 5000
_FAN_IN = 1000  # of layers that name no width, in a tangent kernel


@known_options
def predict(
    network: Network | str,
    *,
    data: Any = None,
    inputs: Inputs | Tokens | None = None,
    points: int | None = None,
    classes: int | None = None,
    draws: int = 10_000,
    seed: int = 0,
    tangent: bool = False,
    width: int | None = None,
    precision: str = "float64",
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> Prediction:
    """Predict γ by layer and the distribution of class shares of an untrained network.

    Without `data`: the closed form, for i.i.d. inputs (theory.md (2)-(9)). `inputs` describes them (default: the blob
    of the papers, components N(0, 1)); `points` is the size of the data set (None: infinitely many). Networks of tokens
    want `inputs=fg.Tokens(length=…, coincidence=…)` (theory.md §9), or sequences of token ids as `data`.

    With `data` (anything `fg.data` takes): the kernel reading, for *these* points at infinite width (theory.md (11)).
    The distribution is sampled with `draws` initializations; `points` uses a random subset. `tangent=True` also carries
    the tangent kernel (theory.md (12)), for which `width` is the fan-in of layers without a width of their own (1000).

    `width`: layers that name no width have this number of units, and guesses are those of such networks (theory.md
    §12), with what that changed in `finite_size`; `inputs=fg.Inputs(dimension=…)` says how many dimensions i.i.d.
    inputs have. None: infinitely many of both. Convolutions and tokens have no finite width here, but for heads of
    language models, which are as wide as the stream. Networks with
    convolutions that would take longer than about `seconds` are refused, with what would fit. `precision="float32"`
    halves memory; the covariance is then good to about 1e-6 (less after a batchnorm: `kernel`).

    >>> p = predict("20 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    >>> print(f"{p.gamma[1]:.6f} {p.gamma[-1]:.6f} {p.regime}")
    0.466942 18.390547 deeply biased
    """
    if width is not None:
        width = check_width(width)
    draws = checks.count(draws, 1, "number of draws", "predict", "draws=10_000")
    fan_in = _FAN_IN if width is None else width
    heads: dict[str, Any] = {"draws": draws, "seed": seed, "width": fan_in, "seconds": seconds}
    if data is None:
        network = as_network(network, classes)
        if isinstance(inputs, Tokens) and network.layers[-1].each_token:
            from firstguess.theory.language import predict_language  # a cold prediction loads no language models

            return predict_language(network, inputs, {"tokens": closed_form.described(inputs)}, points=points, **heads)
        found = closed_form.predict(network, inputs=inputs, points=points)
        if isinstance(inputs, Tokens):
            if width is not None:
                raise _no_width("one of tokens")
            return found
        inputs = inputs or Inputs()
        if width is None and inputs.dimension is None:
            return found
        return predict_finite(found, inputs, width, seed=seed, progress=progress)
    started = time.perf_counter()
    if inputs is not None:
        raise InvalidInput("either data or inputs", got="both", where="predict", hint="fg.predict(net, data=x)")
    checks.choice(precision, ("float64", "float32"), "predict", "precision")
    network = as_network(network, classes)
    x, name, digest, remarks = _prepare(data, points, seed)
    last = network.layers[-1]
    if not last.weighted:
        raise no_output(network.layers)
    if last.each_token and not tangent:
        from firstguess.theory.language import predict_language

        return predict_language(network, x, {"data": name, "data_hash": digest}, **heads)
    if width is not None and not tangent and (needs_tokens(network.layers) or needs_images(network.layers)):
        raise _no_width("one of tokens" if needs_tokens(network.layers) else "one with convolutions")
    if needs_tokens(network.layers):
        if tangent:
            expected = "a tangent kernel of a network of tokens"
            raise NotCovered(expected, got="none is known through attention", where="predict", hint="tangent=False")
        result = token_kernel(network, x, width=fan_in, seconds=seconds, progress=progress)
        precision = "float64"
    elif needs_images(network.layers):
        result = image_kernel(network, x, tangent=tangent, width=fan_in, seconds=seconds, progress=progress)
        precision = "float64"
    else:
        dtype = np.float32 if precision == "float32" else np.float64
        result = kernel(network, x, tangent=tangent, width=fan_in, dtype=dtype)
    finite = (
        None
        if width is None or tangent
        else at_width(network, width, x, result.covariance, seed=seed, progress=progress)
    )
    if finite is not None:
        layers = (*result.layers[:-1], output_reading(last, finite.covariance))
        result = replace(result, covariance=finite.covariance, layers=layers)
        remarks += ["γ of the hidden layers is that of infinite width", finite.size.remark]
        if finite.counted is not None:
            remarks.append(
                f"guesses were counted: {len(finite.counted)} output layers of {finite.size.networks} networks"
            )
    lower = None if finite is None else finite.lower
    drawn = draw_guesses(result.covariance, network.classes, draws=draws, seed=seed, progress=progress, known=lower)
    if drawn.jitter > 0.0:
        remarks.append(f"the covariance's diagonal was raised by {drawn.jitter:.0e} of its mean to make it positive")
    if drawn.ties >= _TIED:
        remarks.append(f"in {drawn.ties:.1%} of all guesses the largest logit is shared: broken at random")
    if precision == "float32":
        remarks.append(
            "float32: covariances are good to about 1e-6 of their diagonal (3e-5 for deep smooth activations); a "
            "batchnorm that leaves a share s of the signal makes it 1e-6/s"
        )
    return Prediction(
        network,
        "kernel",
        result.layers,
        EmpiricalGuesses(
            drawn.fractions if finite is None or finite.counted is None else finite.counted, x.shape[0], seed
        ),
        (
            *(("wide layers",) if finite is None else ()),
            f"the distribution is sampled: {draws} draws",
            *remarks,
            *result.remarks,
        ),
        provenance(network, data=name, data_hash=digest, points=x.shape[0], seed=seed, draws=draws)
        | ({} if finite is None else {"width": width}),
        time.perf_counter() - started,
        per_point=drawn.agreement,
        tangent=result.tangent,
        covariance=result.covariance,
        finite_size=None if finite is None else finite.size,
    )


def _no_width(got: str) -> NotCovered:
    hint = "width=None, or fg.measure(net, x, width=…)"
    return NotCovered("a network of dense layers, at finite width", got=got, where="predict(width)", hint=hint)


def _prepare(data: Any, points: int | None, seed: int) -> tuple[np.ndarray, str, str, list[str]]:
    from firstguess.data import as_data, load

    endless = isinstance(data, Iterator)  # or as good as that: only its first points are read
    given = load(data) if isinstance(data, str) else as_data(data, most=points or _MOST_POINTS if endless else None)
    remarks: list[str] = []
    if points is not None:
        given = given.subset(points, seed=seed)
    elif given.n > _MOST_POINTS:
        remarks.append(
            f"{_MOST_POINTS} of {given.n} points, drawn at random: a fraction moves by at most "
            f"±{0.5 * math.sqrt((1 - _MOST_POINTS / given.n) / _MOST_POINTS):.4f} (one standard deviation)"
        )
        given = given.subset(_MOST_POINTS, seed=seed)
    x = given.x.astype(np.float64)
    checks.within(x.shape[0], "at least 2 data points", "predict", "more data, or no data=", low=2, closed=True)
    flat = x.reshape(x.shape[0], -1)
    rows = np.ascontiguousarray(flat) + 0.0  # −0.0 and 0.0 are the same point
    distinct = len({blake2b(row, digest_size=16).digest() for row in rows})  # np.unique would sort whole rows
    if distinct == 1:
        got = f"{x.shape[0]} copies of one point"
        raise InvalidInput("data points that differ", got=got, where="predict", hint="check how the data were loaded")
    if distinct < x.shape[0]:
        remarks.append(f"{x.shape[0] - distinct} of {x.shape[0]} points are duplicates")
    zero = int(np.sum(~flat.any(axis=1)))
    if zero:
        remarks.append(f"{zero} points are zero everywhere")
    return x, given.prepared, given.hash, remarks


# From which width on the infinite theory is right.

_START, _WIDEST = 32, 10**7
_CLOSE = 1.02  # widths this near to each other count as one


def width_needed(
    network: Network | str,
    *,
    tolerance: float = 0.02,
    inputs: Inputs | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> int:
    """The width from which on the infinite theory is right: its standard deviation of a class's share, to `tolerance`.

    Layers that name a width keep it. The difference falls with the width (theory.md §12), so it is found by doubling
    and halving, to 2 %. `tolerance=0.02`: two percent of the data. For inputs of infinitely many dimensions.

    >>> width_needed("20 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)", tolerance=0.02)
    764
    """
    checks.within(tolerance, "a tolerance between 0 and 1", "width_needed", "tolerance=0.02", high=1.0)
    given = inputs or Inputs()
    if given.dimension is not None:
        expected = "inputs of infinitely many dimensions, as the infinite theory has them"
        raise InvalidInput(expected, got=f"dimension {given.dimension}", where="width_needed", hint="fg.Inputs()")
    infinite = closed_form.predict(network, inputs=given, classes=classes)

    def right(width: int) -> bool:
        try:
            size = predict_finite(infinite, given, width, seed=seed).finite_size
        except NotCovered:
            if width >= _START:
                raise
            return False  # a few units: networks die
        assert size is not None
        return abs(size.added) <= tolerance

    high = _START
    if right(high):
        while high > 2 and right(high // 2):
            high //= 2
    else:
        while not right(high := 2 * high):
            if high > _WIDEST:
                expected = f"a network whose layers may all be wider than {_WIDEST}"
                hint = "leave widths of its own out, or a larger tolerance"
                raise NotCovered(expected, got="one that differs at any width", where="width_needed", hint=hint)
    low = max(high // 2, 2)
    while high - low > 1 and high > _CLOSE * low:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        low, high = (low, middle) if right(middle) else (middle, high)
    return high
