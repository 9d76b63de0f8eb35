"""Beyond the papers: readings of real data, NORM's headline figure at its own size, how long bias lasts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

import firstguess as fg
from firstguess import FirstguessError, Network, figures
from firstguess.data import Data, two_blobs
from firstguess_papers.charts import DOTS, deep, largest, law_panel, lines, ratio, row, std
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import UNKNOWN, Array, Check, Number, Truth, above, all_of, check, claimed, same
from firstguess_papers.library import Tangent, absorption_of, scalar_tangent, steps_to
from firstguess_papers.measured import Cell, Found
from firstguess_papers.norm import DEPTHS, PLACES, network
from firstguess_papers.running import Missing, Run
from firstguess_papers.training_pieces import SEEDS, starts, trained

ROOM = 0.03  # of the standard deviation of G₀: the kernel is for infinite width
NETWORKS = {
    "ReLU, 1 layer": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU, 4 layers": deep("relu", 4),
    "tanh, 4 layers": deep("tanh", 4),
    "LayerNorm before ReLU, 4": deep("layernorm > relu", 4),
    "LayerNorm after ReLU, 4": deep("relu > layernorm", 4),
    "BatchNorm before ReLU, 4": deep("batchnorm > relu", 4),
}
SERIES = {
    "networks": "std", "kernel": "kernel", "closed form, mean and variance of the data": "closed_form",
    "closed form, random data": "random",
}  # fmt: skip
DATA = {"digits": "digits", "MNIST": "mnist:test", "CIFAR-10": "cifar10:test"}


def _cells(c: Found) -> dict[Any, Cell]:
    """The networks on those data sets that are there."""
    data: dict[str, Any] = {}
    notes: list[str] = []
    for name, spec in DATA.items():
        try:
            data[name] = c.run.data(spec, points=c.n)
        except Missing as missing:
            notes.append(f"without {name}: {missing}")
    if not data:
        raise Missing("; ".join(notes))
    c.known |= {"data": data, "notes": notes}
    return {(label, name): Cell(fg.Network.parse(text, classes=2), x)
            for name, x in data.items() for label, text in NETWORKS.items()}  # fmt: skip


def _read_three_ways(c: Found, label: str, name: str) -> dict[str, Number]:
    """std of G₀: measured, and by all three readings."""
    text, x = NETWORKS[label], c.data[name]
    net = fg.Network.parse(text, classes=2)

    kernel = c.run.keep(_by_kernel, label=f"kernel, {label}", network=net, x=x, draws=c.draws, seed=c.run.seed)
    return {
        "std": std(c[label, name]),
        "kernel": Number(kernel["std"], kernel["error"]),
        "closed_form": Number(fg.predict(net, inputs=fg.Inputs.of_data(x), points=c.n).guesses.std()),
        "random": Number(fg.predict(net, points=c.n).guesses.std()),
    }


def _by_kernel(network: Network, x: Data, draws: int, seed: int) -> dict[str, float]:
    law: Any = fg.predict(network, data=x, draws=draws, seed=seed).guesses
    return {"std": law.std(), "error": law.standard_error("std")}


def _judge_readings(c: Found) -> list[Entry]:
    def missed(words: str) -> Check:
        column = SERIES[words]
        off = sum(same(one["std"], one[column], room=ROOM) is False for one in c.readings.values())
        most = max(abs(one["std"].value - one[column].value) for one in c.readings.values())
        return Check(words, f"off by more than {ROOM} somewhere", bool(off), f"off in {off}, at most by {most:.3f}")

    _, _, of_data, random = SERIES
    return [claimed(
        "B1", f"std of G₀ of {len(c.readings)} networks and data sets",
        [*(check(f"{label.replace(',', '')}, {name}", one["std"], near=one["kernel"], room=ROOM,
                 than="the kernel's") for (label, name), one in c.readings.items()), missed(random)],
        within=[missed(of_data)],
        limit="the closed form is as good here, once it is told the mean and variance of the data",
        otherwise=f"not so at width {c.width}",
    )]  # fmt: skip


readings = Item(
    "beyond/readings", "Closed form, kernel and networks on digits, MNIST and CIFAR-10", "theory.md §6", claims=("B1",),
    needs=("digits", "mnist", "cifar10"),
    about="Six networks of width {width}, two classes, {n} points of each data set (those that are there), "
    "standardized; {inits} networks each, {draws} draws of the kernel's distribution.",
    quick=dict(width=300, n=200, inits=200, draws=5000),
    full=dict(width=1000, n=500, inits=400, draws=20_000),
    seconds=(12, 110), cells=_cells,
    quantities=lambda c: {"readings": {key: _read_three_ways(c, *key) for key in c.cells}}, judge=_judge_readings,
    table="readings",
    rows=lambda c, label, name: {"data": name, "width": c.width, "kernel": c.readings[label, name]["kernel"]} | {
        what: c.readings[label, name][what].value for what in ("closed_form", "random")
    },
    charts=lambda c: {"readings": fg.figures.dots_chart(
        {name: [fg.figures.Dot(label, words, *c.readings[label, name][column])
                for words, column in SERIES.items() for label in NETWORKS] for name in c.data},
        title="Spread of guesses on real data: networks, and three readings of them",
        subtitle=[DOTS],
        x_title="Standard deviation of a guess fraction", x_domain=(0.0, 0.5), width=300,
    )},
    holds={"readings": Holds("On real data the kernel reading is right where the distribution for random data is not")},
    notes=lambda c: c.known["notes"],
)  # fmt: skip


WIDTH, DIMENSION = 100, 1000
SIGMAS = 3.0  # that a panel may be off
FINITE, INFINITE = f"width {WIDTH}, dimension {DIMENSION}", "infinite width and dimension"


@dataclass(frozen=True)
class Panel:
    """One place of the norm at one depth: measured, and predicted twice; `why` there is no prediction at this size."""

    place: str
    depth: int
    measured: fg.Measurement
    infinite: fg.Prediction
    finite: fg.Prediction | None
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.place}, {self.depth} layer{'s' if self.depth > 1 else ''}"

    @property
    def known(self) -> Number:
        """The standard deviation that is predicted at this size, with the chain's error or what is left out."""
        if self.finite is None or self.finite.finite_size is None:
            return UNKNOWN
        size, law = self.finite.finite_size, self.finite.guesses
        own = math.hypot(size.error, size.next_order) * min(size.std / law.std(), 1.0)
        return Number(law.std(), math.hypot(own, _sampled(law, "std")))

    def z(self, predicted: Number) -> float:
        """(measured − predicted)/s.e. of the standard deviation of G₀."""
        rest = std(self.measured) - predicted
        return rest.value / rest.error

    @property
    def z_finite(self) -> float:
        return self.z(self.known)

    @property
    def z_infinite(self) -> float:
        return self.z(Number(self.infinite.guesses.std()))

    @property
    def z_largest(self) -> float:
        """The same of E max G at this size."""
        if self.finite is None:
            return math.nan
        law, share = self.finite.guesses, self.known.error / self.known.value
        error = math.hypot(share * (law.expected_max() - 1.0 / law.classes), _sampled(law, "expected_max"))
        rest = largest(self.measured) - Number(law.expected_max(), error)
        return rest.value / rest.error


def judge(panels: Sequence[Panel]) -> Entry:
    """B9: every panel within 3 standard errors at its own size, and not all of them at infinite size."""
    known = [p for p in panels if p.finite]
    beyond = sum(abs(p.z_infinite) > SIGMAS for p in panels)
    close = f"within {SIGMAS:g} standard errors"
    at_this = f"width {WIDTH} and {DIMENSION} dimensions"
    return claimed(
        "B9", f"std of G₀ of the norm paper's ten panels and what theory says at {at_this}",
        [*(Check(p.name, close, abs(p.z_finite) <= SIGMAS, f"{std(p.measured)} against {p.known.value:.4f}, "
                 f"z = {p.z_finite:+.1f} (infinite size {p.infinite.guesses.std():.4f})") for p in known),
         Check("infinite size", f"beyond {SIGMAS:g} in at least one", beyond > 0, f"in {beyond} of {len(panels)}")],
        within=[*(Check(p.name, "covered", False, f"{std(p.measured)}, {p.why}") for p in panels if not p.finite),
                *(Check(f"E max G, {p.name}", close, abs(p.z_largest) <= SIGMAS, f"z = {p.z_largest:+.1f}")
                  for p in known)],
        headline=f"largest |z| {max((abs(p.z_finite) for p in known), default=math.nan):.1f}; at infinite size "
        f"{beyond} of {len(panels)} are beyond {SIGMAS:g}",
        limit="off" if len(known) == len(panels) else "not covered", otherwise="off",
    )  # fmt: skip


def _charts(c: Found) -> dict[str, Any]:
    known = [p for p in c.panels if p.finite]
    here, far = sum(abs(p.z_finite) <= SIGMAS for p in known), sum(abs(p.z_infinite) <= SIGMAS for p in known)

    def dots(p: Panel) -> list[fg.figures.Dot]:
        at_this = [fg.figures.Dot(p.place, FINITE, p.known.value)] if p.finite else []
        seen = fg.figures.Dot(p.place, "networks", *std(p.measured))
        return [seen, *at_this, fg.figures.Dot(p.place, INFINITE, p.infinite.guesses.std())]

    series = ["networks", FINITE, INFINITE]
    return {
        "laws": figures.panels_chart(
            [law_panel(p.name, p.measured, theory={INFINITE: p.infinite} | ({FINITE: p.finite} if p.finite else {}),
                       note=f"std {std(p.measured)}" + (f", z = {p.z_finite:+.1f}" if p.finite else ", not covered"))
             for p in c.panels],
            title=f"At width {WIDTH} the theory has {here} of {len(known)} panels right, at infinite width {far}",
            subtitle=[f"Bars: networks. Right: std of the share of a class within {SIGMAS:g} standard errors."],
            columns=len(PLACES), width=200,
        ),
        "spreads": fg.figures.dots_chart(
            {f"{depth} hidden layer{'s' if depth > 1 else ''}": sorted(
                (dot for p in c.panels if p.depth == depth for dot in dots(p)), key=lambda dot: series.index(dot.series)
            ) for depth in DEPTHS},
            title="The spread of guesses: networks, and theory at two sizes",
            subtitle=[DOTS],
            x_title="Standard deviation of the share of a class", x_domain=(0.0, 0.5), width=380,
        ),
    }  # fmt: skip


def _sampled(law: Any, what: Literal["std", "expected_max"]) -> float:
    """The standard error of a law that is drawn itself."""
    from firstguess import EmpiricalGuesses

    return law.standard_error(what) if isinstance(law, EmpiricalGuesses) else 0.0


def _panel(c: Found, place: str, depth: int) -> Panel:
    """Networks on some blobs (the theory is for random ones), and both predictions."""
    text = network(place, depth)
    found = [c[place, depth, k] for k in range(c.blobs)]
    fractions = np.concatenate([m.guesses.fractions for m in found])
    pooled = replace(found[0], guesses=fg.EmpiricalGuesses(fractions, c.n, c.run.seed))

    finite, why = None, ""
    try:
        label = f"theory, {place}, {depth} layers"
        kept = c.run.keep(_at_this_size, label=label, network=text, points=c.n, seed=c.run.seed)
        finite = fg.Prediction.from_dict(json.loads(kept["prediction"]))
    except FirstguessError as error:
        why = str(error)
    return Panel(place, depth, pooled, fg.predict(text, points=c.n), finite, why)


def _at_this_size(network: str, points: int, seed: int) -> dict[str, str]:
    p = fg.predict(network, width=WIDTH, inputs=fg.Inputs(dimension=DIMENSION), points=points, seed=seed)
    return {"prediction": json.dumps(replace(p, seconds=0.0).to_dict())}


def _row(p: Panel) -> dict[str, Any]:
    size = None if p.finite is None else p.finite.finite_size
    more: dict[str, Any] = {"infinite": p.infinite.guesses.std(), "z_infinite": p.z_infinite}
    if p.finite is not None and size is not None:
        more |= {"finite": p.known.value, "finite_error": p.known.error, "z_finite": p.z_finite, "way": size.way}
        more |= {"finite_largest": p.finite.guesses.expected_max(), "z_largest": p.z_largest}
    return row(p.place, p.measured, depth=p.depth, **more)


finite_size = Item(
    "beyond/finite-size", "The norm paper's headline figure, with the theory at its own width and dimension",
    "theory.md §12", claims=("B9",),
    about="No norm, BatchNorm and LayerNorm before and after ReLU, 1 and 20 hidden layers of 100, Kaiming; blobs "
    "({blobs}) of {n} points in 1000 dimensions, one batch; {inits} networks a panel and blob.",
    quick=dict(n=300, blobs=1, inits=200),
    full=dict(n=1000, blobs=4, inits=300),
    seconds=(40, 260), measure={"width": WIDTH, "classes": 2},
    cells=lambda c: {
        (place, depth, k): Cell(network(place, depth), fg.data.blob(c.n, DIMENSION, seed=c.run.seed + k),
                                {"seed": c.run.seed + k})
        for depth in DEPTHS for place in PLACES for k in range(c.blobs)
    },
    quantities=lambda c: {"panels": [_panel(c, place, depth) for depth in DEPTHS for place in PLACES]},
    judge=lambda c: [judge(c.panels)], table="", tables=lambda c: {"panels": [_row(p) for p in c.panels]},
    charts=_charts,
    holds={"spreads": Holds("What infinite width misses, finite width and dimension give")},
    notes=lambda c: [f"{p.name} has no prediction at this size: {p.why}" for p in c.panels if not p.finite],
)  # fmt: skip


PHASES = {"ordered": 1.59, "edge of chaos": 1.99}  # weight variances of tanh with biases of variance 0.1: MF's
TANH_DEPTHS = (20, 40, 60, 80, 100)
LEVEL = 0.6  # of the largest share: where bias counts as absorbed
RATE = 0.2  # ηλ_b of the trainings
_WIDE = 1000  # width and dimension of the closed form over depth
_STEADY = 0.1  # of 1: by how much steps a layer may differ from depth to depth
_VANISHING = 0.3  # what 20 more layers leave of a signal that vanishes, at most
_ROUGH, _CLOSE = 0.5, 0.2  # of 1: measured over predicted times, required and without a limit
_LOOKS = (*range(41), *range(43, 121, 3))


def _tanh(variance: float, depth: int) -> str:
    return deep("tanh", depth, f"dense(weight_var={variance}, bias_var=0.1)")


CASES = {
    "ReLU, 1 layer": "dense(weight_var=2) > relu > dense(weight_var=2)",
    "ReLU, 3 layers": "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "LayerNorm before ReLU, 3": "3 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)",
    "tanh, edge, 10": _tanh(PHASES["edge of chaos"], 10),
    "tanh, ordered, 10": _tanh(PHASES["ordered"], 10),
    "tanh, ordered, 20": _tanh(PHASES["ordered"], 20),
}


@dataclass(frozen=True)
class Times:
    """Steps of every network until the largest share is at 0.6: measured, and by the closed form from its own start."""

    measured: Array
    predicted: Array
    reached: float  # the share of networks that get there

    @property
    def over(self) -> Number:
        """Mean measured time over mean predicted time."""
        return ratio(self.measured, self.predicted)


def over_depth(variance: float) -> list[Tangent]:
    """Tangents of tanh networks of this weight variance, by depth, on random data."""
    return [
        scalar_tangent(Network.parse(_tanh(variance, depth), classes=2), dimension=_WIDE, width=_WIDE)
        for depth in TANH_DEPTHS
    ]


def scaled_time(tangent: Tangent) -> float:
    """ηλ_b·t in the median over initializations, for small steps: theory.md (16)."""
    small = 1e-6
    return small * absorption_of(tangent, lr=small / tangent.bias_mode(), level=LEVEL).median


def times_of(run: Run, name: str, text: str, x: Data, width: int, inits: int, parts: int = 1) -> Times:
    """Of `parts` times `inits` networks, each part with a seed of its own."""
    network, looks = Network.parse(text, classes=2), list(_LOOKS)
    tangent = scalar_tangent(network, dimension=int(np.prod(x.x.shape[1:])), width=width)
    how: dict[str, Any] = {"optimizer": "gd", "lr": RATE / tangent.bias_mode(x.n), "steps": looks, "inits": inits}
    arm = trained(run, network, x, label=name, width=width, parts=parts, **how)
    steps = arm.reached("largest", LEVEL)
    logits = np.concatenate([
        starts(run, network, x.x, width, range(inits), label=name, seed=run.seed + SEEDS * part)
        for part in range(parts)
    ])  # fmt: skip
    spread = float(np.sqrt(max(2.0 * (tangent.q - tangent.q_ab), 0.0)))
    known = steps_to(LEVEL, (logits[..., 1] - logits[..., 0]).mean(axis=1), spread, RATE)
    return Times(np.minimum(steps, float(looks[-1])), known, float(np.isfinite(steps).mean()))


def between(number: Number, room: float) -> Truth:
    """Whether a ratio is within `room` of 1, by 4 standard errors on either side."""
    return all_of([above(Number(1.0 + room), number), above(number, 1.0 - room)])


def linear(tangents: Sequence[Tangent]) -> float:
    """By how much of their mean the times that layers add from 40 on differ from it, at most; ∞ where one adds none."""
    added = np.diff([scaled_time(t) for t in tangents])[1:]
    return float(np.abs(added / added.mean() - 1.0).max()) if added.min() > 0 else math.inf


def judged(found: Mapping[str, Times], tangents: Mapping[str, Sequence[Tangent]]) -> list[Entry]:
    """B6: the closed form against networks; ordered networks over depth, beside the edge."""
    ordered, edge = tangents["ordered"], tangents["edge of chaos"]
    signal = np.array([t.signal for t in ordered])

    def within(room: float) -> list[Check]:
        asked = f"within {room:.0%} of 1"
        return [Check(name, asked, between(t.over, room), str(t.over)) for name, t in found.items()]

    return [
        claimed(
            "B6", f"mean time to a largest share of {LEVEL}, measured over the closed form's",
            within(_ROUGH), within=within(_CLOSE), limit="not that close",
            also="; ".join(
                f"{name} {t.measured.mean():.1f} steps"
                + ("" if t.reached == 1 else f", {1 - t.reached:.0%} not within {_LOOKS[-1]}")
                for name, t in found.items()
            ),
            headline="measured over predicted time: " + ", ".join(f"{name} {t.over}" for name, t in found.items()),
        ),
        claimed(
            "B6", "ordered tanh networks in closed form: from 40 layers on every layer adds the same time (in units of "
            "the bias mode's rate), and the signal vanishes; at the edge it stays from 20 to 100 layers",
            [check("times of layers apart", Number(linear(ordered)), below=_STEADY),
             check("signal that 20 layers leave", Number(float((signal[2:] / signal[1:-1]).max())),
                   below=_VANISHING),
             check("signal left at the edge", Number(edge[-1].signal / edge[0].signal), above=0.5)],
            also=f"at {', '.join(str(d) for d in TANH_DEPTHS)} layers: " + "; ".join(
                f"{phase}: ηλt = {', '.join(f'{scaled_time(t):.3g}' for t in by)}, signal "
                f"{', '.join(f'{t.signal / _WIDE:.2g}' for t in by)}" for phase, by in tangents.items()
            ),
            headline=f"ordered, 20 → 100 layers: ηλt {scaled_time(ordered[0]):.3g} → {scaled_time(ordered[-1]):.3g}, "
            f"signal {ordered[0].signal / _WIDE:.2g} → {ordered[-1].signal / _WIDE:.2g}",
        ),
    ]  # fmt: skip


_LOOK: dict[str, Any] = {"by": "phase", "theory": "", "dodge": False, "width": 560, "height": 280}


def _times(c: Found) -> dict[str, Any]:
    x = two_blobs(c.points // 2, c.width, seed=c.run.seed)
    found = {
        name: times_of(c.run, name, text, x, c.width, c.inits, c.parts * (c.more if "ReLU" in name else 1))
        for name, text in list(CASES.items())[: c.known["cases"]]
    }
    tangents = {phase: over_depth(variance) for phase, variance in PHASES.items()}
    depths = [
        {"phase": phase, "depth": depth, "time": scaled_time(t), "signal": t.signal / _WIDE}
        for phase, by in tangents.items() for depth, t in zip(TANH_DEPTHS, by, strict=True)
    ]  # fmt: skip
    return {"times": found, "tangents": tangents, "depths": depths}


absorption = Item(
    "beyond/absorption", "How long bias lasts, in closed form and in networks", "theory.md §7", claims=("B6",),
    about="Closed form: tanh, ordered and at the edge, 20 to 100 layers. Trainings: {cases} networks of width {width}, "
    "{points} points of two blobs of that dimension, all of them at every step, ηλ = 0.2, {networks} networks each, of "
    "ReLU networks {more} times as many.",
    quick=dict(cases=3, width=100, points=60, inits=10, parts=1, more=1),
    full=dict(cases=6, width=300, points=100, inits=24, parts=1, more=4),
    seconds=(6, 120), quantities=_times, judge=lambda c: judged(c.times, c.tangents),
    tables=lambda c: {"depths": c.depths, "times": [
        {"network": name, "measured": float(t.measured.mean()), "predicted": float(t.predicted.mean()), "over": t.over,
         "reached": t.reached, "networks": len(t.measured)} for name, t in c.times.items()
    ]},
    charts=lambda c: {
        "depths": lines(
            c.depths, "depth", "time", title="Time to absorb bias, over depth", y_domain=(0.0, 15.0),
            y_title="ηλt to a largest share of 0.6 (median)", **_LOOK,
        ),
        "signal": lines(
            c.depths, "depth", "signal", title="The signal, over depth", y_scale="log",
            y_title="Derivative of the tangent kernel θ′/N (logarithmic)", **_LOOK,
        ),
    },
    holds={
        "depths": Holds("Ordered networks absorb bias in a time linear in depth", entries=(1,)),
        "signal": Holds("What vanishes in ordered networks is the signal", entries=(1,)),
    },
    notes=["Times by the closed form are from the networks' own mean logits at the start; no number of it is free."],
)  # fmt: skip
