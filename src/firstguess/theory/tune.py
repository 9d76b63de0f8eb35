"""`fg.tune`: the network of a family that has the bias you want at the gradients you need, theory.md §10."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from firstguess.base import checks
from firstguess.base.checks import known_options
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.numerics import find_root
from firstguess.base.record import Record, Shown
from firstguess.network.builders import as_network
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.network import Network, pytorch_code
from firstguess.network.walk import every, needs_tokens
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction
from firstguess.theory.tunable_families import Family, family_for, is_norm, normed

ParameterName = Literal["slope", "branch_scale", "variances", "affine", "shared_scale"]
_OFF = 1e-5  # relative error of the gradients that is the quadrature's, not the family's


HARMLESS = "Tuning lets a deep plain network train as well as a shallow one of the same nonlinearity, not better."
_SHARED = "Smaller shared vectors change first guesses; what the network knows of positions starts smaller, too."


@dataclass(frozen=True)
class Stand:
    """Where a network stands: γ of its output, its gradients, its nonlinearity; (1 + γ)·g = P at constant q.

    `gradients` is the factor on the mean square of gradients from the output's pre-activations back to the first ones;
    `nonlinearity` is P = E‖∇f‖²·Var x/Var f, 1 for a linear network: theory.md (31). It is not known of tokens (NaN).
    """

    gamma: float
    gradients: float
    nonlinearity: float


def stand(p: Prediction) -> Stand:
    """The position of a prediction in closed form.

    >>> at = stand(predict("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"))
    >>> print(f"{at.gamma:.4f} {at.gradients:.4f} {at.nonlinearity:.4f}")
    1.5305 1.0000 2.5305
    """
    if "inputs" not in p.provenance:
        return Stand(float(p.gamma[-1]), float(np.prod(p.gradient_growth)), math.nan)
    given = Inputs(**p.provenance["inputs"])
    logs = [math.log(layer.gradient) if layer.gradient else math.nan for layer in p.layers]
    out = p.layers[-1]
    total = sum(logs) + math.log(given.variance) - (out.log_q + math.log(out.one_minus_c))
    growth = p.gradient_growth
    return Stand(out.gamma, float(np.prod(growth)), math.exp(total) if total < 700 else math.inf)


@dataclass(frozen=True)
class Tuned(Record, Shown):
    """A tuned network: `network` to build or measure, `settings` to set by hand, `code()` to paste.

    `reachable` is the range of γ of this family at these gradients. Tuning lets a deep plain network train as
    well as a shallow one of the same nonlinearity, not better (theory.md §10).
    """

    _apart = ("inputs",)
    _as_text = ("network",)

    network: Network
    knob: str
    settings: Mapping[str, float]
    gamma: float
    gradients: float
    nonlinearity: float
    reachable: tuple[float, float]
    before: Stand
    inputs: Inputs | Tokens = field(repr=False)

    def code(self, framework: str = "pytorch", *, width: int = 100) -> str:
        """Runnable PyTorch for exactly this network; `width` where the description names none.

        >>> print(tune("2 x [dense > relu] > dense", gamma=0.2).code().splitlines()[0])
        import math
        """
        if framework != "pytorch":
            raise InvalidInput('"pytorch"', got=repr(framework), where="code", hint='code("pytorch")')
        return pytorch_code(self.network, width=width)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value:.6g}" for name, value in self.settings.items())
        return f"Tuned({said}: γ = {self.gamma:.4g}, gradients × {self.gradients:.4g})"

    def __str__(self) -> str:
        said = ", ".join(f"{name} {value:.6g}" for name, value in self.settings.items())
        low, high = self.reachable
        was = self.before
        moved = f"γ {was.gamma:.4g} → {self.gamma:.4g}, gradients × {was.gradients:.4g} → × {self.gradients:.4g}"
        known = not math.isnan(self.nonlinearity)
        p = f", nonlinearity {was.nonlinearity:.4g} → {self.nonlinearity:.4g}" if known else ""
        at = "at these gradients" if known else "with gradients as they come"
        reach = f"This family reaches γ from {said_gamma(low)} to {said_gamma(high)} {at}."
        last = HARMLESS if known else _SHARED
        return "\n".join([f"{self.knob}: {said}", f"{moved}{p}", reach, last, str(self.network)])


@known_options
def tune(
    network: Network | str,
    *,
    gamma: float,
    gradients: float | None = 1.0,
    knob: ParameterName | None = None,
    data: Any = None,
    inputs: Inputs | Tokens | None = None,
) -> Tuned:
    """The network of this one's family whose output has this γ while gradients change by the factor `gradients`.

    Args:
        network: A description with one activation throughout, plain or with residual blocks; or one of tokens.
        gamma: The wanted γ of the output; 0 is even, from 0.5 on classes lean, theory.md §1.
        gradients: The factor on the mean square of gradients from the last layer to the first; None: as they come.
            Those of tokens always come as they do: a transformer's norms and blocks set them.
        parameter: What may be changed: "slope" (of a ReLU), "branch_scale" (of residual blocks), "variances" (of
            weights and biases), "affine" (shift and scale of φ), "shared_scale" (of what all sequences share:
            positions, token types, a class token). By default the one that the network calls for.
        data: Your points: their own γ₀ is what the network gets, and below it γ cannot fall at constant gradients; or
            token ids, (sequences, length).
        inputs: The same as moments, `fg.Inputs(...)`, or `fg.Tokens(...)`.

    >>> s = tune("20 x [dense(weight_var=2) > relu] > dense(weight_var=2)", gamma=0.5)
    >>> print(f"{s.settings['slope']:.6f} {s.nonlinearity:.4f}")
    0.679312 1.5000
    """
    net = described(network, "tune(network)")
    checks.within(gamma, "a γ above 0", "tune(gamma)", "gamma=0.01 is even for all purposes; 0 is linear")
    checks.within(gradients, "gradients above 0", "tune(gradients)", "gradients=1.0", optional=True)
    wanted = 1.0 if gradients is None else float(gradients)
    given = given_by(net, data, inputs, "tune")
    if isinstance(given, Tokens) and wanted != 1.0:
        hint = "gradients=None"
        raise NotCovered("gradients as they come, for a network of tokens", got=gradients, where="tune", hint=hint)
    untuned = predict(net, inputs=given)
    before, depth = stand(untuned), max(1, len(untuned.gradient_growth))
    growth = wanted ** (1.0 / depth)
    square = 1.0 if isinstance(given, Tokens) else given.mean_square + given.variance
    family = family_for(net, growth=growth, mean_square=square, name=knob)
    at, reachable = _solve(family, gamma, given)
    found = family.network(at)
    now = stand(predict(found, inputs=given))
    if not math.isclose(now.gamma, gamma, rel_tol=1e-6):
        expected = f"a family in which γ changes smoothly through {gamma:.4g}"
        hint = f"another γ between {reachable[0]:.3g} and {reachable[1]:.3g}"
        raise NotCovered(expected, got=f"{now.gamma:.4g}", where="tune(gamma)", hint=hint)
    free = gradients is None or isinstance(given, Tokens)
    if not free and not abs(now.gradients / wanted - 1.0) <= _OFF:
        expected = f"a family whose gradients can change by the factor {wanted:.4g}"
        got = f"{now.gradients:.4g} at γ = {gamma:.4g} by {family.name}"
        hint = "gradients=None takes them as they come; or another knob="
        raise NotCovered(expected, got=got, where="tune", hint=hint)
    return Tuned(
        found, family.name, family.settings(at), now.gamma, now.gradients, now.nonlinearity, reachable, before, given
    )


def described(network: object, where: str) -> Network:
    """A description, or its text as one."""
    net = as_network(network, where=where) if isinstance(network, str) else network
    if not isinstance(net, Network):
        raise InvalidInput("a description", got=type(net).__name__, where=where, hint="fg.read(model, data).network")
    return net


def given_by(net: Network, data: Any, inputs: Inputs | Tokens | None, where: str) -> Inputs | Tokens:
    """What the closed form is given: `inputs`, what the data are, or the papers' blob."""
    tokens = needs_tokens(net.layers)
    if data is None:
        if inputs is None and tokens:
            hint = "data=ids, or inputs=fg.Tokens(length=128, coincidence=0.0075)"
            raise InvalidInput("the sequences that a network of tokens gets", got="none", where=where, hint=hint)
        return inputs or Inputs()
    if not tokens:
        from firstguess.data import as_data

        return Inputs.of_data(as_data(data))
    ids = np.asarray(data)
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or ids.size == 0 or ids.min() < 0:
        expected = "token ids, (sequences, length)"
        hint = "inputs=fg.Tokens(length=197, coincidence=0.3) for patches of images"
        raise InvalidInput(expected, got=f"{ids.dtype} of shape {ids.shape}", where=f"{where}(data)", hint=hint)
    shared = int(np.cumprod((ids == ids[:1]).all(axis=0)).sum())  # a BOS or CLS that all begin with
    rest = ids[:, shared:]
    if not rest.size:
        raise InvalidInput("sequences that differ", got="the same tokens in all of them", where=f"{where}(data)")
    return Tokens(length=ids.shape[1], frequencies=np.bincount(rest.ravel()), shared=shared)


def said_gamma(gamma: float) -> str:
    """The end of a range; what is no more than rounding is 0."""
    return "0" if gamma < 1e-9 else f"{gamma:.3g}"


def _solve(family: Family, gamma: float, inputs: Inputs | Tokens) -> tuple[float, tuple[float, float]]:
    """The parameter's place, and the range of γ between its ends."""

    def reached(at: float) -> float:
        try:
            return float(predict(family.network(at), inputs=inputs).gamma[-1])
        except FirstguessError:
            return math.nan

    low, high = _ends(family, reached)
    ends = (reached(low), reached(high))
    few, most = min(ends), max(ends)
    if not math.isfinite(few):
        raise NotCovered("a family whose γ is known in closed form", got=f"{family.name} of this network", where="tune")
    if most < 1e-9:
        flat = family.network(low)
        kind = NotCovered if normed(flat) is None else InvalidInput
        bends = dict.fromkeys(x.name for x in every(flat.layers) if x.function is not None or is_norm(x))
        got = f"γ = 0 wherever it stands, from 0 to 0, in {' and '.join(bends)}"
        hint = "it is even already; a norm that centres after the activation keeps it so: put it before"
        raise kind(f"a network whose γ {family.name} can move", got=got, where="tune(gamma)", hint=hint)
    if not few <= gamma <= most:
        near = few if gamma < few else most
        expected = f"a γ that {family.name} reaches at these gradients, from {said_gamma(few)} to {said_gamma(most)}"
        hint = f"gamma={near:.3g}"
        if gamma < few:
            if isinstance(inputs, Tokens):
                hint += "; below that fg.repair(model, loader, gamma=…) moves the head's bias"
            elif inputs.mean_square > 0:
                hint += "; the data's own γ₀ is in it: centre them first"
        raise InvalidInput(expected, got=gamma, where="tune(gamma)", hint=hint)

    def off(at: float) -> float:
        return math.log(max(reached(at), 1e-300)) - math.log(gamma)

    if math.isclose(gamma, ends[0], rel_tol=1e-12):
        return low, (few, most)
    try:
        root = find_root(off, low, high, xtol=1e-15, rtol=1e-14)
    except ValueError:  # γ is not known somewhere between
        expected = f"a family whose γ is known all the way to {gamma:.4g}"
        hint = f"gamma={said_gamma(few)} to {said_gamma(most)} without them; or another knob="
        raise NotCovered(expected, got=f"{family.name} with gaps", where="tune(gamma)", hint=hint) from None
    return root, (few, most)


def _ends(family: Family, reached: Any) -> tuple[float, float]:
    """The ends of the parameter, drawn in to where γ is known: the linear end itself has none or is 0."""
    low, high = family.span
    for _ in range(60):
        if math.isfinite(reached(high)):
            break
        high = low + 0.9 * (high - low)
    step = 1e-9 if family.name in ("slope", "branch_scale") else 0.0
    return low + step * (high - low), high
