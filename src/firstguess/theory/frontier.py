"""`fg.frontier`: bias against gradients at one depth, where a network stands there, where remedies move it: (31)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from firstguess.base.checks import known_options
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.record import Record, Shown
from firstguess.network.activations.registry import centered
from firstguess.network.causes_bias import causes_bias
from firstguess.network.inputs import Inputs
from firstguess.network.layers import Activate
from firstguess.network.network import Network
from firstguess.network.walk import changed, every, needs_tokens
from firstguess.theory.phases.fixed_points import edge_of_chaos
from firstguess.theory.predict import predict
from firstguess.theory.tunable_families import activation_of, family_for, is_norm
from firstguess.theory.tune import HARMLESS, Tuned, described, given_by, said_gamma, stand, tune

Sort: TypeAlias = Literal["network", "remedy", "tuned"]
TARGETS = (0.1, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0)
GRADIENTS = (0.1, 1.0, 10.0)
_HEAD = "changes first guesses only: gradients and nonlinearity stay"
_NORMS = {"layernorm": "LayerNorm", "batchnorm": "BatchNorm", "rmsnorm": "RMSNorm", "groupnorm": "GroupNorm"}
_CLOSE = 0.02  # relative distance from the edge that is no change


@dataclass(frozen=True)
class FrontierPoint:
    """A network on the plane of γ and gradients.

    `gradients` is the factor on their mean square from the output to the inputs, for a signal that keeps its size: g of
    theory.md (31), so that (1 + γ)·g = (1 + γ₀)·P with P the `nonlinearity`. (A bias moved in the head alone is
    the one change that leaves the curve.)
    """

    name: str
    sort: Sort
    gamma: float
    gradients: float
    nonlinearity: float
    network: str
    note: str = ""


@dataclass(frozen=True)
class Frontier(Record, Shown):
    """Bias against gradients at a network's depth. `fg.figures.frontier_chart` draws it.

    `here` is the network, `remedies` what known changes make of it, `reached` what its parameter makes at some targets
    (the settings in their names), `data_gamma` is γ₀: nothing lies below (1 + γ)·g = 1 + γ₀.
    """

    _as_text = ("network",)
    network: Network
    depth: int
    here: FrontierPoint
    remedies: tuple[FrontierPoint, ...]
    reached: tuple[FrontierPoint, ...]
    knob: str
    reachable: tuple[float, float] | None  # γ at constant gradients, by this parameter; None: not known
    data_gamma: float = 0.0
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        here = f"γ = {self.here.gamma:.3g}, gradients × {self.here.gradients:.3g}"
        return f"Frontier({here}, {len(self.remedies)} remedies, {len(self.reached)} settings of {self.knob})"

    def __str__(self) -> str:
        rows = [("this network", self.here), *((m.name, m) for m in (*self.remedies, *self.reached))]
        width = max(len(name) for name, _ in rows)
        lines = [f"Bias against gradients, {self.depth} hidden layers: (1 + γ)·g = P at a signal of constant size"]
        lines.append(f"  {'':<{width}}  {'γ':>9}  {'gradients':>10}  {'P':>9}")
        for name, m in rows:
            lines.append(
                f"  {name:<{width}}  {m.gamma:>9.3g}  {'× ' + f'{m.gradients:.3g}':>10}  {m.nonlinearity:>9.4g}"
            )
        if self.reachable is not None:
            low, high = map(said_gamma, self.reachable)
            lines.append(f"  {self.knob} reaches γ from {low} to {high} at constant gradients")
        return "\n".join([*lines, *(f"  {note}" for note in (*self.notes, HARMLESS))])


@known_options
def frontier(
    network: Network | str, *, targets: tuple[float, ...] = TARGETS, data: Any = None, inputs: Inputs | None = None
) -> Frontier:
    """Where a network stands between bias and gradients, what its parameter reaches there, where remedies move it.

    Args:
        network: A description with one activation throughout, plain or with residual blocks.
        targets: The γ that the parameter is set for, at constant gradients and, where it can, at a tenth and at ten
            times.
        data: Your points, for their own γ₀.
        inputs: The same as moments.

    >>> f = frontier("20 x [dense(weight_var=2) > relu] > dense(weight_var=2)", targets=(0.5,))
    >>> print(f"{f.here.gamma:.2f} {f.here.nonlinearity:.2f} {f.reached[0].name} {f.reached[0].nonlinearity:.2f}")
    18.39 19.39 slope 0.679 1.50
    """
    net = described(network, "frontier(network)")
    if needs_tokens(net.layers):
        expected = "a network of vectors, whose nonlinearity is known"
        raise NotCovered(expected, got="a network of tokens", where="frontier")
    knob = family_for(net, growth=1.0, mean_square=1.0).name  # or why there is none
    given = given_by(net, data, inputs, "frontier")
    assert isinstance(given, Inputs)
    rest = 1.0 + given.mean_square / given.variance
    here = _mark("this network", "network", net, given)
    remedies = list(_remedies(net, given, here))
    reached, ends, why = _reached(net, knob, targets, given)
    notes = (f"{knob} reaches none of them: {why}",) if why else ()
    return Frontier(net, net.depth, here, tuple(remedies), tuple(reached), knob, ends, rest - 1.0, notes)


def _mark(name: str, sort: Sort, net: Network, given: Inputs) -> FrontierPoint:
    at = stand(predict(net, inputs=given))
    rest = 1.0 + given.mean_square / given.variance
    return FrontierPoint(name, sort, at.gamma, rest * at.nonlinearity / (1.0 + at.gamma), at.nonlinearity, str(net))


def _remedies(net: Network, given: Inputs, here: FrontierPoint) -> Iterator[FrontierPoint]:
    """Changes that the closed form knows, without those that change nothing."""
    for name, variant in _variants(net):
        if variant == net:
            continue
        try:
            yield _mark(name, "remedy", variant, given)
        except FirstguessError:  # not every norm has a closed form in every place
            continue
    yield replace(here, name="head centred", sort="remedy", gamma=0.0, note=_HEAD)


def _variants(net: Network) -> Iterator[tuple[str, Network]]:
    phi = activation_of(net)
    norm = next((layer for layer in every(net.layers) if is_norm(layer)), None)
    kind = norm.text() if norm is not None else "layernorm"
    name = _NORMS.get(norm.kind if norm is not None else "layernorm", "norm")
    for place in ("before", "after"):
        yield f"{name} {place} φ", net.where(f"{kind} {place} {phi}")
    if causes_bias(phi) and not phi.centered:
        yield (
            "centred φ",
            replace(
                net,
                layers=changed(net.layers, lambda x: (x if x.function is None else Activate(centered(x.function)),)),
            ),
        )
    weights = [layer for layer in net.layers[:-1] if layer.draws]
    if not net.plain or not weights:
        return
    own, bias_var = (float(getattr(weights[-1], name, math.nan)) for name in ("weight_var", "bias_var"))
    try:
        target = edge_of_chaos(phi, bias_var=bias_var)
    except FirstguessError:
        return  # no edge, or none that can be found
    if abs(target - own) > _CLOSE * target:
        layers = changed(net.layers, lambda x: (x.with_variances(target, bias_var),) if x.draws else (x,))
        yield "edge of chaos", replace(net, layers=layers)


def _reached(
    net: Network, knob: str, targets: tuple[float, ...], given: Inputs
) -> tuple[list[FrontierPoint], tuple[float, float] | None, str]:
    """Marks at all targets that can be had, the range at constant gradients, and why there is none."""
    marks, ends, why = list[FrontierPoint](), None, ""
    # Weights of another size leave a ReLU's gradients as they are, against its signal; blocks keep them at 1.
    for gradients in GRADIENTS if knob in ("variances", "affine") else (1.0,):
        for gamma in targets:
            try:
                s = tune(net, gamma=gamma, gradients=gradients, knob=knob, inputs=given)  # type: ignore[arg-type]
            except FirstguessError as error:
                why = why or str(error)
                continue
            ends = s.reachable if gradients == 1.0 else ends
            marks.append(_mark(said(s), "tuned", s.network, given))
    return marks, ends, "" if marks else why


def said(s: Tuned) -> str:
    """The parameter and its setting, briefly."""
    name, value = next(iter(s.settings.items()))
    if s.knob == "variances":
        return f"σw² {s.settings['weight_var']:.3g}, σb² {s.settings['bias_var']:.2g}"
    return f"{name.replace('_', ' ')} {value:.3g}"
