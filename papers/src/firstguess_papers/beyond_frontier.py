"""Beyond the papers: bias, gradients and nonlinearity of networks before training, and knobs on their frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from firstguess import Network, Stand, predict, tune
from firstguess_papers.beyond_repair import AFTER, BEFORE, INSIDE, PLAIN, SHALLOW, networks
from firstguess_papers.charts import lines
from firstguess_papers.charts import predicted as predicted_line
from firstguess_papers.items import Entry, Holds
from firstguess_papers.judging import Check, Number, check, claimed, each
from firstguess_papers.library import stand
from firstguess_papers.measured import Found, measured
from firstguess_papers.mf_simulation import mean
from firstguess_papers.tables import ratio

if TYPE_CHECKING:
    from firstguess_papers.library import Chart, Piece

DEPTH = 20
TARGETS = (0.1, 0.5, 2.0)  # γ
PARAMETERS: Mapping[str, tuple[str, Literal["slope", "branch_scale", "variances", "affine"]]] = {
    "leaky ReLU, slope": (f"{DEPTH} x [dense > relu] > dense", "slope"),
    "residual ReLU, branch scale": (f"dense > {DEPTH} x [residual[relu > dense]] > dense", "branch_scale"),
    "tanh, variances": (f"{DEPTH} x [dense > tanh] > dense", "variances"),
    "GELU, shift and scale": (f"{DEPTH} x [dense > gelu] > dense", "affine"),
}
EXACT = 0.05  # of 1: room for the law between measured numbers
NEAR = 0.15  # of 1: room for measured numbers against those for infinite width
OUTPUTS = 20  # nodes whose centers and spreads are averaged


@dataclass(frozen=True)
class Case:
    """A network, where it should stand, and of which family it is."""

    family: str
    label: str
    network: Network
    known: Stand
    tuned: bool = False


@dataclass(frozen=True)
class Numbers:
    """What networks have: 1 + γ, the factor on gradients, P, and (1 + γ)·g·q₁/q_L over P, which the law has at 1."""

    one_plus_gamma: Number
    gradients: Number
    nonlinearity: Number
    law: Number
    kept: Number  # q_L/q₁: mean squares of outputs over those of first pre-activations


def cases() -> list[Case]:
    """Networks as they are, with norms, shallow; and each knob at three γ."""
    found: list[Case] = []
    for label, network in networks(DEPTH).items():
        if label in (PLAIN, BEFORE, AFTER, INSIDE, SHALLOW):
            family = "plain ReLU" if label in (PLAIN, SHALLOW) else label
            found.append(Case(family, label, network, stand(predict(network))))
    five = Network.parse("5 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    found.append(Case("plain ReLU", "plain, 5 layers", five, stand(predict(five))))
    for family, (text, knob) in PARAMETERS.items():
        for gamma in TARGETS:
            network = tune(text, gamma=gamma, knob=knob).network
            found.append(Case(family, f"{family}, γ = {gamma:g}", network, stand(predict(network)), True))
    return found


def sampled(network: Network, *, width: int, dimension: int, points: int, inits: int, seed: int) -> Piece:
    """Of every member on random data of its own, by automatic differentiation: averages over points and outputs.

    `spread`: variance of an output over the data; `center`: its squared mean, free of what finite data add; `inputs`
    and `first`: squared gradient by the input and by the first pre-activations; `size`: their mean square.
    """
    import torch

    from firstguess_papers.library import build

    wide = replace(network, classes=OUTPUTS)
    found: dict[str, list[float]] = {name: [] for name in ("spread", "center", "inputs", "first", "size")}
    for member in range(inits):
        rng = np.random.default_rng([seed, member, 0xF207])
        x = torch.from_numpy(rng.standard_normal((points, dimension)).astype(np.float32)).requires_grad_()
        model = build(wide, dimension, width=width, seed=seed, member=member)
        first = model[0](x)
        out = model[1:](first)
        weights = torch.from_numpy(rng.standard_normal(tuple(out.shape)).astype(np.float32))
        by_input, by_first = torch.autograd.grad((out * weights).sum(), (x, first))
        values = out.detach().double()
        spread = float(values.var(0).mean())
        found["spread"].append(spread)
        found["center"].append(float(values.mean(0).square().mean()) - spread / points)
        for name, gradient in (("inputs", by_input), ("first", by_first)):
            found[name].append(float(gradient.double().square().sum(1).mean()) / OUTPUTS)
        found["size"].append(float(first.detach().double().square().mean()))
    return {name: np.array(values) for name, values in found.items()}


def numbers_of(piece: Mapping[str, Any]) -> Numbers:
    """Numbers from a piece of `sampled`; the inputs' variance is 1."""
    spread, center, inputs, first, size = (
        np.asarray(piece[name], dtype=np.float64) for name in ("spread", "center", "inputs", "first", "size")
    )
    square = spread + center
    return Numbers(
        ratio(square, spread),
        mean(first),
        ratio(inputs, spread),
        ratio(first * float(size.mean()), inputs),  # (1 + γ)·g·(q₁/q_L)/P = g·q₁/E‖∇f‖²: γ and q_L drop out
        ratio(square, size),
    )


ENDS = (0.08, 25.0)  # of the line γ = P − 1


Measured: TypeAlias = Mapping[str, tuple[Case, Numbers]]


def _sampled(c: Found) -> dict[str, Any]:
    sizes = {"width": c.width, "dimension": c.width, "points": c.points, "inits": c.inits, "seed": c.run.seed}
    found = {
        case.label: (case, numbers_of(c.run.piece(
            {"network": str(case.network), **sizes}, partial(sampled, case.network, **sizes), label=case.label
        )))
        for case in cases()
    }  # fmt: skip
    return {"networks": found}


# -- Checks


def _predicted(case: Case, f: Numbers) -> Check:
    """1 + γ, gradients and P are those of the closed form: within 15 %, whatever the errors are."""
    known = (1.0 + case.known.gamma, case.known.gradients, case.known.nonlinearity)
    ratios = [m / Number(k) for m, k in zip((f.one_plus_gamma, f.gradients, f.nonlinearity), known, strict=True)]
    found = check(case.label, ratios, near=1.0, room=NEAR)
    return replace(found, truth=False) if any(abs(one.value - 1.0) > NEAR for one in ratios) else found


def judged(found: Measured) -> list[Entry]:
    """B4: the law between measured numbers, the knobs, and the closed form."""
    worst = max((f.law for _, f in found.values()), key=lambda law: abs(law.value - 1.0))
    tuned, others = ([one for one in found.values() if one[0].tuned is own] for own in (True, False))
    half = [f"{c.family} {_gamma(f)}" for c, f in tuned if math.isclose(c.known.gamma, 0.5, rel_tol=1e-3)]
    return [
        claimed(
            "B4", f"(1 + γ)·g·q₁/q_L over P, between measured numbers of {len(found)} networks",
            each({label: f.law for label, (_, f) in found.items()}, near=1.0, room=EXACT),
            headline=f"(1 + γ)·g over P in {len(found)} networks: farthest from 1 is {worst}",
        ),
        claimed(
            "B4", f"knobs reach γ = {', '.join(f'{g:g}' for g in TARGETS)} at constant gradients: gradients, mean "
            "squares, 1 + γ over what was asked for, and over P",
            each({c.label: [f.gradients, f.kept, f.one_plus_gamma / Number(1.0 + c.known.gamma),
                            f.one_plus_gamma / f.nonlinearity] for c, f in tuned}, near=1.0, room=NEAR),
            headline=f"γ where 0.5 was asked for: {', '.join(half)}",
        ),
        claimed(
            "B4", "1 + γ, gradients and P of finite networks, each over the closed form's",
            [_predicted(*one) for one in tuned], within=[_predicted(*one) for one in others],
            limit="not so at this width",
        ),
    ]  # fmt: skip


# -- Words, tables, figures


def _gamma(found: Numbers) -> Number:
    return Number(found.one_plus_gamma.value - 1.0, found.one_plus_gamma.error)


def _row(case: Case, found: Numbers) -> dict[str, Any]:
    line: dict[str, Any] = {"network": str(case.network), "name": case.label, "tuned": case.tuned}
    line |= {"gamma": _gamma(found), "gradients": found.gradients, "nonlinearity": found.nonlinearity}
    line |= {f"{name}_predicted": getattr(case.known, name) for name in ("gamma", "gradients", "nonlinearity")}
    return line | {"law": found.law, "kept": found.kept.value}


def chart(found: Measured) -> Chart:
    """γ and P − 1 of networks over γ in closed form; those at one γ stand side by side."""
    rows: list[dict[str, Any]] = []
    for case, one in found.values():
        aside = 1.1 ** (list(PARAMETERS).index(case.family) - 1.5) if case.family in PARAMETERS else 1.0
        for panel, value in (("γ", one.one_plus_gamma), ("P − 1", one.nonlinearity)):
            if case.known.gamma > 0.0:
                rows.append({"name": case.family, "at": aside * case.known.gamma, "panel": panel})
                rows[-1]["value"] = Number(value.value - 1.0, value.error)
    return lines(
        rows, "at", panel="panel", also={panel: [predicted_line("γ = P − 1", ENDS, ENDS)] for panel in ("γ", "P − 1")},
        title="Bias and nonlinearity of networks whose gradients are nearly constant",
        x_title="γ in closed form (logarithmic)", y_title="Measured", x_scale="log", y_scale="log", dodge=False,
        width=430, height=320,
    )  # fmt: skip


frontier = measured(
    "beyond/frontier", "Bias, gradients and nonlinearity before training", "theory.md §10", claims=("B4",),
    about="18 networks of width {width} (plain, norms, shallow, four knobs at γ = 0.1, 0.5 and 2; 20 layers), 20 "
    "outputs, {points} random points of that dimension, {inits} initializations each.",
    quick=dict(width=200, points=60, inits=30),
    full=dict(width=500, points=64, inits=40),
    seconds=(11, 150),
    quantities=_sampled,
    judge=lambda c: judged(c.networks),
    tables=lambda c: {"frontier": [_row(*one) for one in c.networks.values()]},
    charts=lambda c: {"frontier": chart(c.networks)},
    holds={"frontier": Holds("At constant gradients bias is nonlinearity: parameters put γ where it is wanted", (1,))},
    notes=["Gradients and P are by automatic differentiation of outputs; γ is that of output nodes."],
)  # fmt: skip
