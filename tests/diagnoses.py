"""Diagnoses made by hand, from numbers that tests choose: quick, and with every part that one can have."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import firstguess as fg
from firstguess.diagnosis import Advice, Cause, Diagnosis, Expected, Trainability, Verdict
from firstguess.diagnosis.compare import compare
from firstguess.diagnosis.faults import Fault
from firstguess.ensemble.gradient_statistics import GradientLayer, Gradients, Growth, Level
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.ensemble.member_statistics import Finding
from firstguess.modules.read.result import Part, Structure, Unread
from firstguess.network.layer import Variances
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

NASTY = "<img src=x onerror='window.hacked=1'></script><script>window.hacked=1</script>&amp;\"'γ"


def layer(name: str, kind: str, gamma: float, error: float = 0.05, **other: Any) -> LayerMeasurement:
    numbers: dict[str, Any] = {
        "name": name, "kind": kind, "nodes": 100, "weights": kind == "Linear", "center": gamma, "center_se": error,
        "spread": 1.0, "spread_se": error, "gamma": gamma, "gamma_se": error, "low": gamma - 2 * error,
        "high": gamma + 2 * error, "skew": 0.0, "correlation": gamma / (1 + gamma),
        "correlation_se": error / (1 + gamma) ** 2, "dead": 0.01, "dead_se": 0.0,
    }  # fmt: skip
    return LayerMeasurement(**{**numbers, **other})


def measurement(classes: int = 2, *, gamma: float = 3.0, inits: int = 80, points: int = 200) -> Measurement:
    """Three Linear layers with ReLU between them; guesses from the distribution of `gamma`."""
    path = [("0", "Linear", 0.02), ("1", "ReLU", 0.5), ("2", "Linear", 0.6), ("3", "ReLU", 1.5), ("4", "Linear", gamma)]
    law = Guesses(gamma, classes, points).sample(inits, seed=1)
    return Measurement(EmpiricalGuesses(law, points), tuple(layer(*one) for one in path))


def gradients(depth: int = 3, *, factor: float = 0.5) -> Gradients:
    """Mean squares that change by `factor` per layer going back; a tenth of it for the favoured class."""

    def level(k: int, size: float) -> Level:
        return Level(math.log10(size) + (depth - k) * math.log10(factor), 0.03, 8)

    layers = tuple(
        GradientLayer(str(2 * k), "Linear", 100, level(k, 1.0), level(k, 0.1), level(k, 1.2), level(k, 0.01))
        for k in range(1, depth + 1)
    )
    growth = Growth(factor, 0.9 * factor, 1.1 * factor, 8, factor ** (depth - 1))
    return Gradients(layers, growth, growth, growth, 0.8, 8, 200, 2)


CAUSES = (
    Cause("1 … 3", "ReLU", 0.02, 0.6, 0.535, 0.014, ("1", "3"), 0.83, 0.56, 0.02, 3.0, 0.1, 20, 200),
    Cause("1", "ReLU", 0.02, 0.33, 0.31, 0.01, ("1",), 0.83, 0.7, 0.02, 3.0, 1.1, 20, 200),
    Cause("3", "ReLU", 0.375, 0.6, 0.225, 0.01, ("3",), 0.83, 0.74, 0.02, 3.0, 1.4, 20, 200),
    Cause(
        "code before 4", "code: add > relu", 0.6, 0.7, 0.1, 0.01, ("code before 4",), 0.83, 0.8, 0.01, 3.0, 2, 20, 200
    ),
    Cause("(data)", "data", 0.0, 0.02, 0.02, 0.0, ("(data)",), 0.83, 0.825, 0.002, 3.0, 2.8, 20, 200),
    Cause("2", "LayerNorm", 0.33, 0.2, -0.13, 0.01, ("2",), 0.83, 0.9, 0.02, 3.0, 9.0, 20, 200),
)
ADVICE = (
    Advice(
        "norm after the activation",
        "nn.ReLU(), nn.LayerNorm(100)",
        "measured",
        3.0,
        0.0,
        0.83,
        0.55,
        0.01,
        0.5,
        0.9,
        nonlinearity_before=2.5,
        nonlinearity_after=3.2,
        absorption_before=40.0,
        absorption_after=12.0,
        code="from torch import nn\n\nmodel = nn.Sequential(nn.ReLU(), nn.LayerNorm(100))  # a < b & c\n",
        price="gradients grow going back",
    ),
    Advice("weights at the edge of chaos", "", "predicted", 3.0, math.inf, 0.83, 0.99, 0.0, note="keeps gradients"),
)


def sample(classes: int = 2, *, name: str = "A small MLP") -> Diagnosis:
    """Every part that a diagnosis can have."""
    net = fg.Network.parse("2 x [dense(weight_var=2) > relu] > dense(weight_var=2)", classes=classes)
    seen, prediction = measurement(classes), fg.predict(net, classes=classes)
    read = (Part("0", "Linear", "dense(weight_var=2)", Variances(2.0, 0.01, 0.0, 0.0, "Kaiming", 20)),)
    return Diagnosis(
        Verdict("biased", 0.97, 3.0, 2.9, 3.1, "it prefers one class", 3.2, 2.4, 4.3, (0.0, 0.0, 0.97, 0.03)),
        CAUSES,
        Expected(prediction, compare(prediction, seen)),
        Trainability("ordered", 0.5, 0.45, 0.55, 0.4, 0.5, 0.1, 1.44, 3, "gradients vanish going back", gradients()),
        ADVICE,
        "It depends.",
        name,
        seen,
        Structure(net, read, (Unread("5", "Custom", "control flow"),), ("a note on structure",)),
        (Finding("dead units", "a tenth of them", "3"),),
        ("a note on the work",),
        {"firstguess": "0", "seed": 0, "data": {"name": "digits"}},
        1.5,
    )


def nasty(classes: int = 2) -> Diagnosis:
    """Users' texts that are markup, everywhere."""
    whole = sample(classes, name=NASTY)
    assert whole.measurement is not None
    assert whole.structure is not None
    layers = tuple(replace(one, name=NASTY + one.name, kind=NASTY) for one in whole.measurement.layers)
    return replace(
        whole,
        verdict=replace(whole.verdict, why=NASTY),
        causes=tuple(replace(c, name=NASTY + c.name, kind=c.kind if c.kind == "data" else NASTY) for c in whole.causes),
        advice=tuple(replace(a, title=NASTY, edit=NASTY, note=NASTY, code=NASTY, price=NASTY) for a in whole.advice),
        case=NASTY,
        measurement=replace(whole.measurement, layers=layers),
        structure=replace(whole.structure, unread=(Unread(NASTY, NASTY, NASTY),), notes=(NASTY,)),
        findings=(Finding(NASTY, NASTY, NASTY),),
        notes=(NASTY,),
        provenance={NASTY: NASTY},
    )


def broken() -> Diagnosis:
    """Nothing could be measured."""
    verdict = Verdict("broken", 1.0, math.nan, math.nan, math.nan, "NaN first at layer 3")
    finding = Finding("not finite", "NaN in the outputs", "3")
    return Diagnosis(verdict, (), Expected(None, None, "no guesses"), None, (), "", "Broken", None, None, (finding,))


def bare(classes: int = 10) -> Diagnosis:
    """Guesses, and nothing else."""
    whole = sample(classes)
    assert whole.measurement is not None
    return replace(
        whole,
        verdict=Verdict("even", math.nan, math.nan, math.nan, math.nan),
        causes=(),
        expected=Expected(None, None, "a layer could not be read"),
        trainability=None,
        advice=(),
        case="",
        measurement=replace(whole.measurement, layers=()),
        structure=None,
        findings=(),
        notes=(),
        provenance={},
        seconds=0.0,
    )


def fault(name: str) -> Fault:
    """A fault of this name."""
    return Fault(name, "something is wrong in the model", fix="change it")
