"""What an ensemble says about a network: class shares, γ and c by layer, with error bars, findings, and some logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from firstguess.base import checks, statistics
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Record, Shown, StoredRecord
from firstguess.base.statistics import FloatArray, guesses
from firstguess.base.text import elided, ends, interval, page, plain, with_error, with_old_names, without_middle
from firstguess.ensemble.higher_moments import LayerShape, table
from firstguess.ensemble.member_statistics import BETWEEN, DEAD, MEAN, SPREAD, Finding, ProbedLayer, merged
from firstguess.theory import prediction
from firstguess.theory.prediction import Word
from firstguess.theory.shares.base import OverInits, of_rows, support_at
from firstguess.theory.shares.empirical import EmpiricalGuesses

# The logits of one network over the data: where the cloud of points is, and how far from the boundary.
#
# Bias, seen: over the data the logits of one network are a cloud around the class centers. Arg-max cuts it along fixed
# boundaries (f_i = f_j), so a cloud whose center is far from them falls to one side. For two classes the margin f₁ − f₀
# is N(Δμ, 2σ_y²) over the data, and the favoured class gets Φ(|Δμ|/√(2σ_y²)) of it: theory.md §1, (6); IGB Figs 3, 4.

_TIES = 0x7135


@dataclass(frozen=True, eq=False, repr=False)
class Logits(Record, Shown):
    """One network's logits, (points, classes), and what they say about its guesses.

    `member` is the network's place in its ensemble. All numbers are of this network on these data: they have no error.

    >>> flat = Logits([[0.0, 2.0], [1.0, 2.5], [0.5, 1.0], [1.0, 0.0]])
    >>> flat.favoured, flat.shares.tolist(), flat.margin.tolist()
    (1, [0.25, 0.75], [2.0, 1.5, 0.5, -1.0])
    >>> print(f"{flat.offset:.2f} from the boundary, {flat.distance:.2f} spreads of the cloud")
    0.75 from the boundary, 0.57 spreads of the cloud
    """

    _also = (
        "points", "classes", "favoured", "shares", "centers", "spread", "offset", "margin_spread", "distance",
        "gaussian_share",
    )  # fmt: skip
    _apart = ("values",)

    values: FloatArray
    member: int = 0

    def __init__(self, values: ArrayLike, member: int = 0) -> None:
        given: Any = values
        array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given, dtype=np.float64)
        if array.ndim == 1:  # one logit, decided at 0
            array = np.stack([-array / 2, array / 2], axis=1)
        if array.ndim != 2 or array.shape[0] < 2 or array.shape[1] < 2:
            expected = "logits of shape (points, classes), at least 2 of both"
            raise InvalidInput(expected, got=f"shape {array.shape}", where="Logits")
        if not np.isfinite(array).all():
            raise InvalidInput("finite logits", got="NaN or Inf", where="Logits")
        array = array.copy()
        array.flags.writeable = False
        object.__setattr__(self, "values", array)
        object.__setattr__(self, "member", member)

    @property
    def points(self) -> int:
        """The number of data points."""
        return self.values.shape[0]

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.values.shape[1]

    @property
    def guesses(self) -> NDArray[np.int64]:
        """The class of each point, (points,); of classes that share the largest logit one, at random."""
        return guesses(self.values, np.random.default_rng([self.member, _TIES])).astype(np.int64)

    @property
    def shares(self) -> FloatArray:
        """The share of the points in each class, (classes,)."""
        return np.bincount(self.guesses, minlength=self.classes) / self.points

    @property
    def favoured(self) -> int:
        """The class with the largest share."""
        return int(self.shares.argmax())

    @property
    def rival(self) -> int:
        """The class that comes next: the largest share of the others or, where they get nothing, the highest center."""
        others = [c for c in range(self.classes) if c != self.favoured]
        return max(others, key=lambda c: (self.shares[c], self.centers[c]))

    @property
    def centers(self) -> FloatArray:
        """Each class's mean logit over the data, μ, (classes,)."""
        return self.values.mean(axis=0)

    @property
    def spread(self) -> FloatArray:
        """Each class's standard deviation over the data, σ_y, (classes,)."""
        return self.values.std(axis=0, ddof=1)

    @property
    def margin(self) -> FloatArray:
        """The favoured class's logit minus the largest other one, (points,): positive where that class is guessed."""
        return self.margin_of(self.favoured)

    def margin_of(self, which: int) -> FloatArray:
        """Another class's margin, its logit minus the largest other one, (points,)."""
        expected = f"a class from 0 to {self.classes - 1}"
        checks.within(which, expected, "margin_of", high=self.classes, closed=True)
        return self.values[:, which] - np.delete(self.values, which, axis=1).max(axis=1)

    @property
    def offset(self) -> float:
        """The mean margin (two classes: Δμ): how far the center is beyond the boundary, in units of the logits."""
        return float(self.margin.mean())

    @property
    def margin_spread(self) -> float:
        """Standard deviation of the margin over the data (two classes: √2·σ_y where logits are independent)."""
        return float(self.margin.std(ddof=1))

    @property
    def distance(self) -> float:
        """The offset in spreads of the margin: 0 is on the boundary, 2 is deep inside one class."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.divide(self.offset, self.margin_spread))

    @property
    def gaussian_share(self) -> float:
        """The favoured class's share if its margin were Gaussian, Φ(distance): `shares` has the true one."""
        return float(special.ndtr(self.distance))

    def alignment(self, labels: ArrayLike, which: int | None = None) -> float:
        """Correlation over the data of a class's margin (the favoured one's) with being of it: 0 knows nothing.

        It is the cosine of the angle between the two, as vectors over the points without their means: what turns in
        training, while `distance` is what shifts (NORM App. C.1).
        """
        y = np.asarray(labels)
        if y.shape != (self.points,):
            raise InvalidInput(f"a label for each of {self.points} points", got=f"shape {y.shape}", where="alignment")
        which = self.favoured if which is None else which
        own, margin = (y == which).astype(np.float64), self.margin_of(which)
        own, margin = own - own.mean(), margin - margin.mean()
        size = math.sqrt(float(own @ own) * float(margin @ margin))
        return float(own @ margin) / size if size > 0 else math.nan

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        share, f = self.shares[self.favoured], self.favoured
        rows = [("favoured class", f"{f}, {share:.1%} of {self.points} points (even split {1 / self.classes:.1%})")]
        if self.margin_spread > 0.0:
            apart = f"{self.offset:.3g}, {self.distance:.2f} spreads of the cloud"
            rows.append(("its center beyond the boundary", apart))
            rows.append(("share if the margin were Gaussian", f"{self.gaussian_share:.1%}"))
        else:
            told = f"{self.offset:.3g}, on every point" if self.offset else "0 on every point: all guesses are ties"
            rows.append(("its center beyond the boundary", told))
        if self.classes <= 10:
            rows.append(("class centers", ", ".join(f"{c:.3g}" for c in self.centers)))
            rows.append(("spread over the data", ", ".join(f"{s:.3g}" for s in self.spread)))
        return rows

    def __repr__(self) -> str:
        return f"Logits(network {self.member}, {self.points} points, {self.classes} classes)"

    def __str__(self) -> str:
        return page(f"Logits of network {self.member}", self.summary())


def typical(logits: Sequence[NDArray[Any]], largest: FloatArray) -> int:
    """Which of the kept members is like most: its largest share is nearest the median of the ensemble's, `largest`.

    >>> typical([np.eye(2), np.array([[0.0, 1.0], [0.0, 1.0]])], np.array([0.5, 1.0, 0.9, 0.97]))
    1
    """
    kept = largest[: len(logits)]
    return int(np.abs(kept - np.median(largest)).argmin())


# Is there initial guessing bias at all? A test of γ = 0 that knows what the luck of the data points can do.

LEVEL = 0.01


@dataclass(frozen=True)
class BiasTest(Record):
    """Whether γ of the output is above 0: the one-sided p-value, and the level at which `found` says yes.

    `p_value` is NaN, and `found` None, where it cannot be tested: one initialization, no γ. `uneven`: guesses are
    clearly not even all the same, which needs no γ > 0 where points come in clusters that are guessed together.
    """

    _also = ("found",)

    p_value: float
    level: float = LEVEL
    uneven: bool = False

    @property
    def found(self) -> bool | None:
        return None if math.isnan(self.p_value) else self.p_value < self.level

    @property
    def words(self) -> str:
        """The answer in words."""
        if self.found is None:
            return "not tested: that needs several initializations and a γ of the output"
        shown = "p < 1e-12" if self.p_value < 1e-12 else f"p = {self.p_value:.2g}"
        if self.found:
            return f"yes ({shown})"
        none = f"no: γ is not above 0 at the {self.level:.0%} level ({shown})".replace("%", " %")
        return f"{none}; guesses are uneven nevertheless, as with points that form clusters" if self.uneven else none


def bias_test(output: LayerMeasurement | None, inits: int, points: int) -> BiasTest:
    """Test γ = 0 of an output layer, against γ > 0, at a false-alarm rate of at most about 1 %.

    Two things move γ about 0. Weights: over R initializations and k = units − 1 free outputs, γ̂ + 1/n is 1/n times the
    mean of ν = R·k/(1 + r) squared Gaussians; r is the relative variance of members' spreads, by which they count.
    Points: γ̂ is an average of the overlaps c_ab of different points, which is not 0 on a finite sample although it
    is on average; its variance is 2·E c²/n(n − 1), and no number of initializations lowers it. E c² shows in how much
    the spread, a mean square over the points, differs between outputs: r·k/2 = 1/n + E c² for Gaussian outputs (more
    in narrow networks, which errs on the safe side). The sum of both is taken as a shifted gamma distribution of its
    variance and skewness.
    """
    if output is None or inits < 2 or points < 2 or math.isnan(output.gamma):
        return BiasTest(math.nan)
    if not output.spread > 0:  # every point gets the same logits
        return BiasTest(0.0 if output.gamma > 0 else math.nan)
    if not math.isfinite(output.spread_se):
        return BiasTest(math.nan)
    free = max(1, output.nodes - 1)
    differs = inits * (output.spread_se / output.spread) ** 2
    most = differs * (1 + 2 * math.sqrt(2 / (inits - 1)))  # two standard errors more
    overlap = min(1.0, max(0.0, 0.5 * free * most - 1 / points))
    degrees = inits * free / (1 + differs)
    weights, luck = 2 / degrees / points**2, 2 * overlap / (points * (points - 1))
    error = math.sqrt(weights + luck)
    skew = (math.sqrt(8 / degrees) * weights**1.5 + math.sqrt(8 * overlap) * luck**1.5) / error**3
    shape = 4 / skew**2
    at = shape + output.gamma / error * math.sqrt(shape)
    return BiasTest(float(special.gammaincc(shape, at)) if at > 0 else 1.0)


TIED = 0.5  # share of tied guesses from which the head decides, not γ


@dataclass(frozen=True)
class LayerMeasurement:
    """One probed layer: averages over initializations, each with its standard error.

    `center` = E_nodes[(E_data x)²] and `spread` = E_nodes[Var_data x] (theory.md (2)), both free of the bias of finite
    data; `gamma` = center/spread and `correlation` = center/(center + spread) are ratios of averages, not averages
    of ratios. Near γ = 0 the unbiased center, and with it γ, can come out below 0. `low`, `high`: the 95 % interval of
    γ; below 0 only where γ is. `dead`: the share of units that have one value on all points.
    """

    name: str
    kind: str
    nodes: int
    weights: bool  # a pre-activation: what a prediction's gamma lists
    center: float
    center_se: float
    spread: float
    spread_se: float
    gamma: float
    gamma_se: float
    low: float
    high: float
    skew: float  # skewness of the members' influences on γ: what its p-values need
    correlation: float
    correlation_se: float
    dead: float
    dead_se: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ends that there are not are None."""
        return asdict(self) | ({"low": None, "high": None} if ends(self.low, self.high) is None else {})

    @property
    def correlation_interval(self) -> tuple[float, float]:
        """95 % interval of c = γ/(1+γ), which grows with γ: the ends of γ's, carried over."""
        return (_correlation(self.low), _correlation(self.high))


def layer_measurements(layers: Sequence[ProbedLayer], stats: FloatArray, seed: int) -> tuple[LayerMeasurement, ...]:
    """Averages of the members' numbers, (inits, layers, 4) as in `Members`.

    The center of a member is MEAN² + BETWEEN: the mean over units of m_k² − V_k/n, without bias for every layer. For a
    layer with weights the mean over units is 0 in theory, but only on average: BETWEEN alone would be too small by one
    part in `nodes`, and an output layer often has two.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        center = np.square(stats[..., MEAN]) + stats[..., BETWEEN]
    spread = stats[..., SPREAD]
    gamma = statistics.ratios(center, spread, seed=seed)
    plain = [statistics.means(x, level=None) for x in (center, spread, stats[..., DEAD])]
    found: list[LayerMeasurement] = []
    for i, layer in enumerate(layers):
        value, error, low = float(gamma.value[i]), float(gamma.error[i]), float(gamma.low[i])
        centers, spreads, dead = ((float(one.value[i]), float(one.error[i])) for one in plain)
        found.append(
            LayerMeasurement(
                layer.name,
                layer.kind,
                layer.nodes,
                layer.weights,
                *centers,
                *spreads,
                gamma=value,
                gamma_se=error,
                low=float(np.maximum(low, 0.0)) if value >= 0 else low,  # the true γ is; NaN stays
                high=float(gamma.high[i]),
                skew=float(gamma.skew[i]),
                correlation=_correlation(value),
                correlation_se=error / (1 + value) ** 2 if math.isfinite(value) else error,  # dc = dγ/(1+γ)²
                dead=dead[0],
                dead_se=dead[1],
            )
        )
    return tuple(found)


def without_errors(layers: Sequence[LayerMeasurement], stats: FloatArray) -> tuple[LayerMeasurement, ...]:
    """Layers that are the same in every member, because their weights are kept, have no error that could be seen."""
    none = dict.fromkeys(("center_se", "spread_se", "gamma_se", "low", "high", "correlation_se", "dead_se"), math.nan)
    scale = np.abs(stats).max(axis=(0, 2), keepdims=True)
    same = (np.abs(stats - stats[:1]) <= 1e-5 * scale).all(axis=(0, 2))
    return tuple(replace(layer, **none) if same[i] else layer for i, layer in enumerate(layers))


def _correlation(gamma: float) -> float:
    return 1.0 if gamma == math.inf else gamma / (1 + gamma) if gamma > -1 else math.nan


@dataclass(frozen=True, eq=False, repr=False)
class Measurement(StoredRecord, Shown):
    """What an ensemble of untrained networks shows. Print it, or compare it with a prediction: `fg.compare(p, m)`.

    `findings` are what a user should know (ties, NaN, parameters not drawn again); `notes` say how the work was
    done (exact reductions). `ties` is the share of all guesses whose largest logit was shared, broken at random.
    """

    _also = ("inits", "points", "classes", "verdict", "bias_test", "gamma", "gamma_se", "correlation")
    _apart = ("kept_logits",)
    _optional = ("shapes", "own_guess", "by_position")

    guesses: EmpiricalGuesses
    layers: tuple[LayerMeasurement, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    ties: float = 0.0
    seed: int = 0
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    shapes: tuple[LayerShape, ...] = ()  # with `moments=4`: how Gaussian the layers with weights are
    kept_logits: tuple[NDArray[np.float32], ...] = ()  # (points, classes) of the first members; not in `to_dict`
    own_guess: tuple[float, float] | None = None  # of language models: how often a token guesses itself, and its s.e.
    by_position: tuple[tuple[float, float], ...] = ()  # of described ones: mean square before the last norm, and s.e.

    @property
    def inits(self) -> int:
        """The number of initializations."""
        return self.guesses.inits

    @property
    def _inits(self) -> str:
        return f"{self.inits} initialization{'s' * (self.inits > 1)}"

    @property
    def points(self) -> int:
        """The number of data points each of them guessed."""
        return self.guesses.points

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.guesses.classes

    @property
    def weights_layers(self) -> tuple[LayerMeasurement, ...]:
        """The layers with weights, in call order, and the output: those that a prediction's `gamma` lists.

        An output that is made of a head's by code or an activation stands for that head, whose place it takes.
        """
        weighted = [layer for layer in self.layers if layer.weights]
        for output in self.layers[-1:]:
            if not output.weights:
                weighted[-1:] = [*(layer for layer in weighted[-1:] if layer.nodes != output.nodes), output]
        return tuple(weighted)

    @property
    def gamma(self) -> FloatArray:
        """γ of the pre-activations of every layer with weights, the output last."""
        return np.array([layer.gamma for layer in self.weights_layers])

    @property
    def gamma_se(self) -> FloatArray:
        """Standard errors of `gamma`."""
        return np.array([layer.gamma_se for layer in self.weights_layers])

    @property
    def gamma_interval(self) -> FloatArray:
        """95 % intervals of `gamma`, (layers, 2)."""
        return np.array([(layer.low, layer.high) for layer in self.weights_layers]).reshape(-1, 2)

    @property
    def correlation(self) -> FloatArray:
        """c, for the same layer as γ."""
        return np.array([layer.correlation for layer in self.weights_layers])

    @property
    def correlation_se(self) -> FloatArray:
        """Standard errors of `correlation`."""
        return np.array([layer.correlation_se for layer in self.weights_layers])

    @property
    def regime(self) -> prediction.Regime:
        """neutral, biased or deeply biased: by γ of the output, as phases are named. For a word see `verdict`.

        Where no γ of an output was measured, by `guess_gamma`.
        """
        gamma = self.gamma
        return prediction.regime(float(gamma[-1]) if gamma.size and not math.isnan(gamma[-1]) else self.guess_gamma)

    @property
    def verdict(self) -> Word | Literal["degenerate head"]:
        """even, leaning, biased or deeply biased (theory.md §1): by the guesses, the word for `guess_gamma`.

        "degenerate head" where at least half of all guesses are ties, which are broken at random.
        """
        if self.ties >= TIED:
            return "degenerate head"
        return prediction.word_of_share(self.guesses.expected_max(), self.classes, self.points)

    @property
    def guess_gamma(self) -> float:
        """The γ whose distribution, theory.md (6)-(8) for these classes and points, has the largest share seen."""
        return prediction.gamma_of_share(self.guesses.expected_max(), self.classes, self.points)

    @property
    def logits(self) -> Logits:
        """The logits of a typical network: of the few that are kept, the one whose largest share is nearest the median.

        `fg.figures.logits_chart` draws them. `logits_of(member)` gives those of another.
        """
        if not self.kept_logits:
            return self.logits_of(0)
        return self.logits_of(typical(self.kept_logits, self.guesses.fractions.max(axis=1)))

    def logits_of(self, member: int) -> Logits:
        """The logits of one of the first networks, (points, classes): row `member` of `guesses.fractions`."""
        if not 0 <= member < len(self.kept_logits):
            few = f"the first {len(self.kept_logits)} networks"
            expected = f"a network whose logits are kept: {few if self.kept_logits else 'none here'}"
            hint = "fewer points or classes" if not self.kept_logits else "logits_of(0)"
            raise InvalidInput(expected, got=f"network {member}", where="logits", hint=hint)
        return Logits(self.kept_logits[member], member)

    def predictive_support(self, temperature: float = 1.0) -> OverInits:
        """exp(H) of the probabilities at one point, on average over points: how many classes they spread over.

        Soft-max of logits over the temperature, in the networks whose logits are kept; theory.md (53). The guesses of
        all points together: `guesses.effective_support()`.
        """
        checks.check_number(temperature, "temperature", "predictive_support", strict=True, hint="temperature=1.0")
        if not self.kept_logits:
            self.logits_of(0)  # says that there are none
        return of_rows(np.array([support_at(one.astype(np.float64) / temperature).mean() for one in self.kept_logits]))

    @property
    def bias_test(self) -> BiasTest:
        """Whether there is initial guessing bias at all, that is γ > 0 of the output: a test at the 1 % level."""
        found = bias_test(self.layers[-1] if self.layers and self.ties < TIED else None, self.inits, self.points)
        even = prediction.largest_share(prediction.EDGES[0], self.classes, self.points)
        clearly = self.guesses.interval("expected_max")[0] > even
        return replace(found, uneven=clearly and self.ties < TIED)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with NaN and ∞ as text; `Measurement.from_dict` reads it back."""
        found = {
            "std": self.guesses.std(),
            "largest": self.guesses.expected_max(),
            "over_90": self.guesses.prob_max_above(0.9),
            "gamma_interval": [ends(*each) for each in self.gamma_interval.tolist()],
            "correlation_se": [layer.correlation_se for layer in self.weights_layers],
            "std_interval": ends(*self.guesses.interval("std")),
            "largest_interval": ends(*self.guesses.interval("expected_max")),
            "over_90_interval": ends(*self.guesses.interval(("prob_max_above", 0.9))),
        }
        return super().to_dict() | plain(with_old_names(found))

    @property
    def data(self) -> str:
        """The name of the data and how they were prepared; empty for arrays and loaders, which have no name."""
        return str(cast("dict[str, Any]", self.provenance.get("data", {})).get("prepared", ""))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number, with 95 % intervals."""
        g = self.guesses

        def with_interval(value: float, low: float, high: float) -> str:
            return f"{value:.4g}  {interval(low, high, self.inits)}"

        largest = with_interval(g.expected_max(), *g.interval("expected_max"))
        often = with_interval(g.prob_max_above(0.9), *g.interval(("prob_max_above", 0.9)))
        rows = [("network", str(self.provenance["network"]))] if "network" in self.provenance else []
        rows += [("data", self.data)] if self.data else []
        gamma = self.weights_layers[-1].gamma if self.weights_layers else math.nan
        rows.append(("verdict", prediction.word_with_gamma(self.verdict, gamma)))
        if (test := self.bias_test).found is not None:
            rows.append(("bias detectable?", test.words))
        if self.weights_layers:
            last = self.weights_layers[-1]
            zero = "; read it as 0, around which estimates scatter" if last.gamma < 0 else ""
            rows.append(("drift ratio γ of the output", with_interval(last.gamma, last.low, last.high) + zero))
        rows += [
            ("average share of the largest class", f"{largest}, even split {1 / g.classes:.4g}"),
            ("chance that one class gets over 90 %", often),
        ]
        if self.inits > 1:
            rows.append(("standard deviation of a class's share", with_interval(g.std(), *g.interval("std"))))
        if self.own_guess is not None:
            rows.append(("chance to guess the own input", with_error(*self.own_guess)))
            rows.append(("tokens that are guessed", g.support_words()))
        return rows

    def __repr__(self) -> str:
        return f"Measurement({self._inits}, {self.classes} classes, {self.points} points, {self.verdict})"

    def __str__(self) -> str:
        size = f"{self._inits}, {self.points} points, {self.classes} classes"
        told = [note for note in self.notes if not note.startswith("members run")]  # that is for who looks at speed
        remarks = [*(str(finding) for finding in merged(self.findings)), *(f"note: {note}" for note in told)]
        return page(f"Measurement ({size}, seed {self.seed})", self.summary(), table=self._table(), remarks=remarks)

    def _table(self) -> list[str]:
        if not self.layers:
            return []
        width = min(30, max(5, *(len(layer.name) for layer in self.layers)))
        lines = [f"  {'':>4} {'layer':<{width}} {'kind':<12} {'γ ± s.e.':>21} {'c':>7} {'dead':>6}"]
        rows: list[str] = []
        for i, layer in enumerate(self.layers, start=1):
            name, kind = elided(layer.name, width), elided(layer.kind, 12)
            gamma = with_error(layer.gamma, layer.gamma_se)
            numbers = f"{gamma:>21} {layer.correlation:>7.4f} {layer.dead:>6.1%}"
            rows.append(f"  {i:>4} {name:<{width}} {kind:<12} {numbers}")
        return lines + without_middle(rows, f"  {'':>4} … {{}} more") + table(self.shapes, width)
