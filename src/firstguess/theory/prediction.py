"""What a reading says about a network: γ, c and q through its layers, the distribution of class shares, a verdict."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from firstguess._version import __version__
from firstguess.base import checks, record
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.numerics import find_root
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import by_powers, four_digits, plain, with_old_names
from firstguess.network.inputs import Inputs
from firstguess.network.layer import LayerReading
from firstguess.network.network import Network
from firstguess.network.signal import exp
from firstguess.network.walk import needs_tokens
from firstguess.theory.shares.base import OverInits, predictive_support
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.mixture import MixedGuesses
from firstguess.theory.shares.token_counts import KAPPA

if TYPE_CHECKING:
    from firstguess.theory.training.absorption import Tangent
    from firstguess.theory.training.curves import Absorption

# The words for how uneven guesses are: even, leaning, biased, deeply biased; by γ, or by the guesses themselves.

Word = Literal["even", "leaning", "biased", "deeply biased"]
GradientWord = Literal["vanish", "shrink", "keep their size", "grow", "explode"]
WORDS: tuple[Word, ...] = ("even", "leaning", "biased", "deeply biased")

# γ at which the average two-class network gives 90 % of all points to one class: ½ + arctan(√γ)/π = 0.9.
DEEPLY_BIASED = math.tan(0.4 * math.pi) ** 2
EDGES = (0.05, 1.0, DEEPLY_BIASED)  # γ between one word and the next

_LEAST, _MOST = 1e-6, 1e9  # γ that are told from 0 and from ∞
_GRID = (0.0, 0.003, 0.015, *EDGES[:1], 0.2, *EDGES[1:])  # γ at which counting is drawn, for more than two classes
_DRAWN, _NETWORKS, _WORK = 30_000, 200, 400_000  # fractions that are drawn for it; networks at least, work at most


def word(gamma: float) -> Word:
    """The word for a drift ratio, theory.md §1.

    even: at most 0.05; leaning: below 1, one peak about the even split; biased: from 1 on, where the distribution of a
    two-class fraction has two peaks; deeply biased: from tan²(0.4π) ≈ 9.47 on, where one of two classes gets 90 % on
    average.

    >>> word(0.05), word(0.47), word(2.8), word(18.4)
    ('even', 'leaning', 'biased', 'deeply biased')
    """
    if gamma <= EDGES[0]:
        return "even"
    return "leaning" if gamma < EDGES[1] else "biased" if gamma < EDGES[2] else "deeply biased"


_SMALL = 2.0  # a change of gradients' mean square over the whole network that is worth a word
_LARGE = 1e4  # one that training suffers from: tests/diagnosis/test_words_and_training.py


def gradient_word(total: float) -> GradientWord:
    """What gradients do going back whose mean square changes by this factor over the network: one rule for all pages.

    >>> [gradient_word(total) for total in (1e-5, 0.1, 1.5, 6.8, 1e5)]
    ['vanish', 'shrink', 'keep their size', 'grow', 'explode']
    """
    if total < 1 / _SMALL:
        return "vanish" if total < 1 / _LARGE else "shrink"
    return "keep their size" if total <= _SMALL else "grow" if total <= _LARGE else "explode"


def word_with_gamma(verdict: str, gamma: float) -> str:
    """The verdict of a page, and what γ of the output next to it would be called if that is another word.

    >>> word_with_gamma("biased", 3.0), word_with_gamma("biased", 0.7)
    ('biased', 'biased, by the guesses (γ of the output alone would be called leaning)')
    """
    if verdict not in WORDS or math.isnan(gamma) or word(gamma) == verdict:
        return verdict
    return f"{verdict}, by the guesses (γ of the output alone would be called {word(gamma)})"


def largest_share(gamma: float, classes: int, points: int | None = None) -> float:
    """E max_c G_c by theory.md (6)-(8), as `Guesses.expected_max`, but a quick and smooth function of γ.

    For more than two classes, what counting `points` adds to it is interpolated between a few γ, the edges among them,
    where it is drawn (standard error 1e-4 for ten classes and 1000 points).
    """
    if points is None or gamma == math.inf:
        return Guesses(gamma, classes).expected_max()
    if classes == 2:
        return Guesses(gamma, 2, points).expected_max()
    added = float(np.interp(_place(gamma), *_added(classes, points)))
    return min(1.0, Guesses(gamma, classes).expected_max() + added)


@lru_cache(maxsize=32)
def _added(classes: int, points: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Places of some γ, and what counting adds to the largest fraction there; nothing at the last."""
    rows = max(_DRAWN // classes, min(_NETWORKS, _WORK // classes), 20)
    added: list[float] = []
    for gamma in _GRID:
        share = Guesses(gamma, classes).sample(rows, seed=1)
        counted = np.random.default_rng(2).multinomial(points, share) / points
        added.append(max(0.0, float((counted.max(axis=1) - share.max(axis=1)).mean())))
    return tuple(_place(gamma) for gamma in (*_GRID, _MOST)), (*added, 0.0)


def _place(gamma: float) -> float:
    return math.log1p(gamma / 0.01)


def edges_of_shares(classes: int, points: int | None = None) -> tuple[float, float, float]:
    """E max_c G_c at the γ that part the words."""
    first, second, third = (largest_share(edge, classes, points) for edge in EDGES)
    return first, second, third


def word_of_share(share: float, classes: int, points: int | None = None) -> Word:
    """The word for an average largest fraction: that of the γ whose distribution has it.

    >>> word_of_share(0.69, 2), word_of_share(0.92, 2), word_of_share(0.51, 2, points=1000)
    ('leaning', 'deeply biased', 'even')
    """
    first, second, third = edges_of_shares(classes, points)
    return WORDS[(share > first) + (share >= second) + (share >= third)]


def gamma_of_share(share: float, classes: int, points: int | None = None) -> float:
    """The γ whose distribution, theory.md (6)-(8), has this average largest fraction: 0 for none larger than chance, to
    ∞.

    >>> print(f"{gamma_of_share(0.75, 2):.6f} {gamma_of_share(0.5, 2)} {gamma_of_share(1.0, 2)}")
    1.000000 0.0 inf
    """
    if math.isnan(share):
        return math.nan

    def excess(log_gamma: float) -> float:
        return largest_share(math.exp(log_gamma), classes, points) - share

    low, high = math.log(_LEAST), math.log(_MOST)
    if excess(low) >= 0:
        return 0.0
    # From there on one class gets all but 1e-5 of infinitely many points: told apart by none of finitely many.
    if excess(high) <= 0:
        return math.inf
    return math.exp(find_root(excess, low, high, xtol=1e-4))


# Growth of gradients along a residual stream, from the factors of its layers.


def stream_growth(factors: Sequence[tuple[str, float | None]]) -> tuple[float, int] | None:
    """The factor a residual block, norms between them included, and how many blocks there are; of layers by text."""
    blocks = [i for i, (text, _) in enumerate(factors) if text.startswith("residual")]
    if len(blocks) < 2:
        return None
    between = [factor for _, factor in factors[blocks[0] + 1 : blocks[-1] + 1]]
    logs = [math.log(one) for one in between if one is not None and one > 0.0]
    return (exp(math.fsum(logs) / (len(blocks) - 1)), len(blocks)) if len(logs) == len(between) else None


Regime = Literal["neutral", "biased", "deeply biased"]
Reading = Literal["closed form", "kernel"]


def regime(gamma: float) -> Regime:
    """The regime of a drift ratio, as phases are named: neutral below γ = 1, deeply biased from tan²(0.4π) ≈ 9.47 on.

    γ = 1 is where the distribution of a share of two classes is uniform (theory.md §1). The papers call deep what
    happens as γ → ∞; for finite networks the line is drawn where the average largest share of two classes passes 90 %.
    What results print is `verdict`, which calls fewer networks even.

    >>> regime(0.47), regime(2.8), regime(18.4)
    ('neutral', 'biased', 'deeply biased')
    """
    if gamma < 1.0:
        return "neutral"
    return "biased" if gamma < DEEPLY_BIASED else "deeply biased"


@dataclass(frozen=True)
class Prediction(StoredRecord, Shown):
    """What a reading predicts for a network. Print it, plot it, or compare it with a measurement."""

    _also = ("verdict", "has_bias", "gamma", "correlation", "log_q")
    _apart = ("covariance", "tangent")
    _optional = ("finite_size", "own_guess", "own_shift", "support_steps", "by_position")

    network: Network
    reading: Reading
    layers: tuple[LayerReading, ...]
    guesses: Guesses | MixedGuesses | EmpiricalGuesses
    assumptions: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    # the kernel reading only:
    per_point: Array | None = field(default=None, compare=False, repr=False)  # agreement with the majority guess
    tangent: Array | None = field(default=None, compare=False, repr=False)  # Θ over the data, theory.md (12)
    covariance: Array | None = field(default=None, compare=False, repr=False)  # K of a class's logits, theory.md (11)
    finite_size: FiniteSize | None = None  # what finite width and dimension changed: theory.md §12
    own_guess: float | None = None  # of language models: how often a token guesses itself, theory.md (30)
    own_shift: float = 0.0  # standard deviations by which a tied head's own logit stands higher, (30)
    support_steps: tuple[tuple[str, float], ...] = ()  # of untied ones: why guesses spread over few tokens, §13
    by_position: tuple[float, ...] = ()  # of language models: mean square before the last norm, by position

    @cached_property
    def _weights(self) -> tuple[LayerReading, ...]:
        return tuple(layer for layer in self.layers if layer.weights)

    @property
    def gamma(self) -> Array:
        """γ of the pre-activations of every layer with weights, the output last: depth + 1 numbers."""
        return np.array([layer.gamma for layer in self._weights])

    @property
    def correlation(self) -> Array:
        """c = γ/(1+γ) next to γ."""
        return np.array([layer.correlation for layer in self._weights])

    @property
    def one_minus_c(self) -> Array:
        """1 − c, where c is too close to 1 to be subtracted."""
        return np.array([layer.one_minus_c for layer in self._weights])

    @property
    def log_q(self) -> Array:
        """log q_aa next to γ; finite where q itself leaves float64."""
        return np.array([layer.log_q for layer in self._weights])

    @property
    def q(self) -> Array:
        """q_aa, the mean square of the pre-activations."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(self.log_q)

    def predictive_support(self, temperature: float = 1.0) -> OverInits:
        """exp(H) of the probabilities at one point: how many classes they spread over, theory.md (53).

        Soft-max of Gaussian logits over the temperature, drawn; of a tied head the own token's stands higher, (30).
        The guesses of all points together: `guesses.effective_support()`.
        """
        checks.check_number(temperature, "temperature", "predictive_support", strict=True, hint="temperature=1.0")
        classes, shift = self.guesses.classes, self.own_shift  # the own logits are 1/classes of all squares
        width = getattr(self.network.layers[0], "width", None)
        kappa = KAPPA.get(str(getattr(self.network.layers[-1], "init", "normal")), 2.0)
        excess = 3.0 * (kappa - 2.0) / width if width and self.own_guess is not None else 0.0
        return predictive_support(float(self.q[-1]) / (1.0 + shift**2 / classes), classes, temperature, shift, excess)

    @property
    def regime(self) -> Regime:
        """neutral, biased or deeply biased: by γ of the output, as phases are named. For a word see `verdict`."""
        return regime(float(self.gamma[-1]))

    @property
    def verdict(self) -> Word:
        """even, leaning, biased or deeply biased (theory.md §1): by the distribution of class shares.

        In closed form this is the word for γ of the output; on data, and at finite width, it is that of the γ whose
        distribution has the same average largest share, which a kernel with clusters of points has more of than its γ
        says.
        """
        if self.reading == "closed form" and self.finite_size is None:
            return word(float(self.gamma[-1]))
        g = self.guesses
        return word_of_share(g.expected_max(), g.classes, g.points)

    @property
    def has_bias(self) -> bool:
        """Whether there is initial guessing bias at all: γ of the output is above 0 (IGB). On data, of these points."""
        return bool(self.gamma[-1] > 0)

    @property
    def _bias_words(self) -> str:
        n, gamma, size = self.guesses.points, float(self.gamma[-1]), self.finite_size
        if size is not None and 0 < size.std <= 3 * size.error:
            return f"none that {size.networks} sampled networks show"
        if self.reading == "closed form" or n is None:
            return "yes: γ > 0" if self.has_bias else "no: γ is not above 0"
        if 0 < gamma < 3 / n:  # an average over pairs of n points differs from the population's by up to about √2/n
            return f"γ > 0 on these points, but no more than the choice of {n} points explains"
        if not self.has_bias and self.verdict != "even":
            return "no: γ is not above 0 on these points; guesses are uneven because they come in clusters"
        return f"{'yes: γ > 0' if self.has_bias else 'no: γ is not above 0'}, on these points"

    @property
    def gradient_growth(self) -> Array:
        """χ̃ by which the mean square of gradients changes going back from each pre-activation to the one before.

        depth numbers, theory.md (10); NaN where it is not known in closed form.
        """
        growth: list[float] = []
        product: float | None = None
        for layer in self.layers:
            factor = math.nan if layer.gradient is None else layer.gradient
            if product is not None:
                product *= factor
            if layer.weights:
                if product is not None:
                    growth.append(product)
                product = 1.0
        return np.array(growth)

    def absorption(
        self,
        *,
        lr: float,
        level: float | None = None,
        dimension: int = 1000,
        width: int = 1000,
        points: int | None = None,
        prior: float = 0.5,
    ) -> Absorption:
        """Steps of full-batch descent until the largest share falls to `level`: theory.md (16), any number of classes.

        By default `level` is a fifth of the way from an even share to 1: 0.6 of two classes, 0.28 of ten. For i.i.d.
        inputs of `dimension` components and layers of `width`; the closed form only. Real data have a kernel:
        `fg.predict_training`. Labels are even; of two classes with others, `prior` is the share of either. A network
        that favours the larger class may then keep more than `level` until it learns: its steps are inf.

        >>> from firstguess.theory.predict import predict
        >>> p = predict("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
        >>> round(p.absorption(lr=1e-4, dimension=784).median)
        29
        """
        from firstguess.theory.training.absorption import absorption_of  # a cold prediction loads no training

        classes = self.network.classes
        if level is None:
            level = 1.0 / classes + 0.2 * (1.0 - 1.0 / classes)
        checks.within(lr, "a learning rate above 0", "absorption(lr)", "lr=1e-3")
        tangent = self._tangent(dimension, width)
        return absorption_of(tangent, lr=lr, level=level, points=points, classes=classes, prior=prior)

    @property
    def bias_to_signal(self) -> float:
        """λ_b/λ_sig of two blobs at ±1/√d, d = 1000, layers of width 1000 and infinitely many points: theory.md (15).

        Far above 1, the bias is absorbed long before anything is learned.
        """
        tangent = self._tangent(1000, 1000)
        return tangent.bias_mode() / tangent.signal_mode()

    def _tangent(self, dimension: int, width: int) -> Tangent:
        from firstguess.theory.training.absorption import scalar_tangent

        if self.reading != "closed form":
            hint = "fg.predict_training(net, data=(x, y))"
            raise NotCovered("the closed form, for i.i.d. inputs", got="the kernel reading", hint=hint)
        if "inputs" not in self.provenance:
            raise NotCovered("a tangent of vectors", got="a network of tokens", hint="a description without tokens")
        given = Inputs(**{k: v for k, v in self.provenance["inputs"].items() if k != "dimension"})
        return scalar_tangent(self.network, given, dimension=dimension, width=width)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `Prediction.from_dict` reads it back."""
        found = {
            "gradient_growth": [None if math.isnan(g) else g for g in self.gradient_growth.tolist()],
            "largest": self.guesses.expected_max(),
            "over_90": self.guesses.prob_max_above(0.9),
            "std": self.guesses.std(),
        }
        return super().to_dict() | plain(with_old_names(found))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prediction:
        """The inverse of `to_dict`."""
        guesses = data["guesses"]
        kind = MixedGuesses if "gammas" in guesses else EmpiricalGuesses if "fractions" in guesses else Guesses
        return record.from_dict(cls, data, guesses=kind.from_dict(guesses))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        g = self.guesses
        growth, data = self.gradient_growth, self.provenance.get("data", "")
        rows = [
            ("network", four_digits(self.network)),
            *([("data", f"{data}: {self.provenance['points']} points")] if data else []),
            ("verdict", word_with_gamma(self.verdict, float(self.gamma[-1]))),
            ("initial guessing bias?", self._bias_words),
            ("drift ratio γ of the output", f"{self.gamma[-1]:.6g}"),
            ("correlation c of two inputs' outputs", f"{self.correlation[-1]:.6g}"),
            ("average share of the largest class", f"{g.expected_max():.4f}  (even split {1 / g.classes:.4g})"),
            ("chance that one class gets over 90 %", f"{g.prob_max_above(0.9):.4g}"),
            ("standard deviation of a class's share", f"{g.std():.4g}"),
        ]
        if self.finite_size is not None:
            rows.append(("finite size", str(self.finite_size)))
        stream = stream_growth([(layer.layer, layer.gradient) for layer in self.layers])
        if needs_tokens(self.network.layers):
            if stream is not None:
                rows.append(("gradients along the stream", f"× {stream[0]:.4g} per block in mean square, going back"))
        elif growth.size and np.isfinite(growth[-1]):
            hidden = growth[:-1] if growth.size > 1 else growth
            total = math.prod(hidden.tolist())  # inf beyond float64, without a warning
            each = total ** (1 / hidden.size)
            said = f"× {each:.4g} per layer in mean square, × {by_powers(total)} in all: they {gradient_word(total)}"
            rows.append(("gradients, going back", said))
        if self.own_guess is not None:
            rows.append(("chance to guess the own input", f"{self.own_guess:.4g}"))
            rows.append(("tokens that are guessed", self.guesses.support_words()))
        return rows

    def __repr__(self) -> str:
        gamma = f"{self.gamma[-1]:.3g}" if len(self.gamma) else "–"
        return f"Prediction({self.reading}: {self.verdict}, γ = {gamma}, {self.network.classes} classes)"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        lines = [f"Prediction ({self.reading}, {self.network.classes} classes)"]
        lines += [f"  {label:<{width}}  {value}" for label, value in rows]
        lines += [f"  assumes: {a}" for a in self.assumptions]
        return "\n".join(lines)


# The record of what finite width and dimension changed in a prediction.


def provenance(network: Network, **more: Any) -> dict[str, Any]:
    """Where a result comes from: versions, the network, and `more`."""
    return {"firstguess": __version__, "python": sys.version.split()[0], "network": str(network), **more}


def missing(error: FirstguessError) -> str:
    """What an expansion or a chain lacked, for a remark on a page: no call of the reader's failed.

    >>> from firstguess.base.errors import NotCovered
    >>> missing(NotCovered("Gaussian weights, for an expansion in 1/width", got="init=uniform", where="layer 1"))
    'it needs Gaussian weights'
    """
    return f"it needs {error.expected.partition(', for an expansion')[0]}"


@dataclass(frozen=True)
class FiniteSize(StoredRecord, Shown):
    """What finite width and dimension changed, and how well that is known.

    `std` is the standard deviation of a class's share of infinitely many points, `infinite` the same for infinitely
    wide layers and infinitely many dimensions. `next_order` is an estimate of what the expansion leaves out of `std`,
    `error` the standard error of `std` where a chain was sampled (`networks` of them).
    """

    width: int | None
    dimension: int | None
    way: Literal["expansion", "chain"]
    std: float
    infinite: float
    next_order: float = 0.0
    error: float = 0.0
    networks: int = 0
    overlap: float = 0.0  # the mean overlap (cosine) of two points at the output, and its variance over pairs
    overlap_variance: float = 0.0
    remark: str = ""

    @classmethod
    def of_sample(
        cls, width: int, dimension: int | None, variance: float, error: float, infinite: float, **more: Any
    ) -> FiniteSize:
        """Make it from the variance of a class's share in networks that were drawn, and its standard error."""
        std = math.sqrt(max(variance, 0.0))
        error = min(error / (2.0 * std), math.sqrt(error)) if std > 0.0 else math.sqrt(error)
        return cls(width, dimension, "chain", std, infinite, error=error, **more)

    @property
    def added(self) -> float:
        """What finite size added to the standard deviation of a class's share."""
        return self.std - self.infinite

    def __repr__(self) -> str:
        return f"FiniteSize(width={self.width}, dimension={self.dimension}: std {self.infinite:.4g} → {self.std:.4g})"

    def __str__(self) -> str:
        sizes = [f"{name} {size}" for name, size in (("width", self.width), ("dimension", self.dimension)) if size]
        known = (
            f"expansion, next order about {self.next_order:.1g}"
            if self.way == "expansion"
            else f"{self.networks} networks drawn, ± {self.error:.1g}"
        )
        return f"{', '.join(sizes)}: std {self.std:.4g} instead of {self.infinite:.4g} at infinite size ({known})"
