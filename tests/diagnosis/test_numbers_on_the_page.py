"""Every number on a page of a diagnosis, computed another way: by plain loops over the same networks, by formulas, by
networks that the library never saw, by trainings. A number for which no second computation is written fails."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn
from tuned import digits

import firstguess as fg
from firstguess.data import collect
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.sources import source_of

pytestmark = pytest.mark.usefixtures("one_thread")

N, WIDTH, DEPTH, CLASSES, INITS, TRIED, COPIES, STEPS, RATE = 300, 40, 3, 10, 64, 20, 8, 64, 0.1
ACTIVATIONS: dict[str, Any] = {"ReLU": nn.ReLU, "Tanh": nn.Tanh}
NUMBER = r"[0-9][0-9 ]*(?:\.[0-9]+)?|∞"


def mlp(activation: str, width: int = WIDTH) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(DEPTH):
        layers += [nn.Linear(64 if i == 0 else width, width), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def share(logits: torch.Tensor) -> float:
    return float(torch.bincount(logits.argmax(1), minlength=CLASSES).max()) / len(logits)


def residual(line: Any, x: Any, y: Any) -> float:
    """The standard error of the middle of a straight line."""
    return float(np.sqrt(np.square(y - line.intercept - line.slope * x).sum() / (len(x) - 2) / len(x)))


class Hand:
    """A model's initializations by plain matrix products, and all that a page says of them."""

    def __init__(self, activation: str) -> None:
        x, y = digits()
        self.x, self.y, self.kind = x[:N], y[:N], activation
        self.f = torch.relu if activation == "ReLU" else torch.tanh
        torch.manual_seed(0)
        self.model = mlp(activation)
        source = source_of(self.model, collect((self.x, self.y), batch_size=N))
        self.weights: list[list[torch.Tensor]] = []
        for k in range(INITS):
            with source.member(int(member_seeds(0, k, k + 1)[0])) as drawn:
                self.weights.append([p.detach().clone() for p in drawn.parameters()])
        self.logits = torch.stack([self.forward(w) for w in self.weights]).double()
        self.shares = np.array([share(logits) for logits in self.logits])
        self.mean, self.se = float(self.shares.mean()), float(self.shares.std(ddof=1)) / math.sqrt(INITS)
        self._trained: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        self._fresh: np.ndarray[Any, Any] | None = None

    def forward(
        self, weights: list[torch.Tensor], *, without: tuple[int, ...] = (), centred: bool = False
    ) -> torch.Tensor:
        """`without` the bias parameters of these layers, or without what all inputs have in common."""
        h = self.x - self.x.mean(0) if centred else self.x
        for i in range(DEPTH + 1):
            h = h @ weights[2 * i].T + (0 if i in without else weights[2 * i + 1])
            h = self.f(h) if i < DEPTH else h
        return h

    # γ of the output: theory.md (2), and of networks of that γ by drawing them.

    def gammas(self, rows: Any = slice(None)) -> float:
        seen = self.logits[rows] - self.logits[rows].mean(2, keepdim=True)  # what arg-max sees
        m, v = seen.mean(1), seen.var(1)
        return float((m.square() - v / N).mean() / v.mean())

    def resampled(self) -> tuple[float, float]:
        stream = np.random.default_rng(0)
        found = [self.gammas(torch.tensor(stream.integers(INITS, size=INITS))) for _ in range(400)]
        return float(np.quantile(found, 0.025)), float(np.quantile(found, 0.975))

    @staticmethod
    def of_gamma(gamma: float, draws: int = 1500) -> float:
        """The average largest share of networks whose logits are Gaussian with this drift ratio."""
        stream = torch.Generator().manual_seed(1)
        between = torch.randn(draws, 1, CLASSES, generator=stream)
        within = torch.randn(draws, 100, CLASSES, generator=stream)
        found = (math.sqrt(gamma) * between + within).argmax(2)
        return float(nn.functional.one_hot(found, CLASSES).double().mean(1).amax(1).mean())

    def implied(self, largest: float) -> float:
        found: Any = optimize.brentq(lambda g: self.of_gamma(math.exp(g)) - largest, -3, 6, xtol=1e-2)
        return float(found)

    # Training

    def trained(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Accuracies by class (classes, copies, steps), and what is left of the starting bias, by a loop."""
        if self._trained is not None:
            return self._trained
        by_class = np.empty((CLASSES, COPIES, 100))
        for k in range(COPIES):
            weights = [w.clone().requires_grad_() for w in self.weights[k]]
            for step in range(by_class.shape[2]):
                h = self.forward(weights)
                loss = (h.logsumexp(1) - h[torch.arange(N), self.y]).mean()
                right = (h.argmax(1) == self.y).double()
                by_class[:, k, step] = [right[self.y == c].mean().item() for c in range(CLASSES)]
                for w, g in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                    w.data.sub_(RATE * g)
        apart = by_class - by_class.mean(1, keepdims=True)
        first = apart[:, :, :1]
        self._trained = by_class, (apart * first).sum((0, 1)) / np.square(first).sum()
        return self._trained

    def gone(self) -> float:
        left = np.abs(self.trained()[1][: STEPS + 1])
        return float(np.flatnonzero(left > 0.25)[-1] + 1)

    def accuracy(self, step: int) -> float:
        return float(self.trained()[0][:, :, step].mean())

    def fresh(self) -> np.ndarray[Any, Any]:
        """Largest shares of networks that PyTorch draws."""
        if self._fresh is None:
            torch.manual_seed(5)
            with torch.no_grad():
                self._fresh = np.array([share(mlp(self.kind)(self.x)) for _ in range(400)])
        return self._fresh

    def backward(self) -> float:
        """The factor on the size of gradients from the third hidden layer to the second."""
        sizes = np.zeros(2)
        for weights in self.weights:
            h, seen = self.x, []
            for i in range(DEPTH + 1):
                h = h @ weights[2 * i].T + weights[2 * i + 1]
                seen.append(h.requires_grad_() if i == 1 else h)
                h = self.f(h) if i < DEPTH else h
            loss = nn.functional.cross_entropy(h, self.y, reduction="sum")
            deltas = torch.autograd.grad(loss, seen[1:3])
            sizes += [math.log(float(d.square().mean())) / INITS for d in deltas]
        return math.exp(0.5 * (sizes[0] - sizes[1]))

    def faster(self) -> float:
        """Bias to signal (theory.md (15)) by the derivatives of networks that PyTorch draws."""
        torch.manual_seed(3)
        k = torch.zeros(N, N, dtype=torch.double)
        for _ in range(16):
            model = mlp(self.kind)
            names = dict(model.named_parameters())

            def one(x: torch.Tensor, model: nn.Module = model, names: Any = names) -> Any:
                return torch.func.grad(lambda p: torch.func.functional_call(model, p, (x[None],))[0, 0])(names)

            rows = torch.func.vmap(one)(self.x)
            j = torch.cat([g.detach().flatten(1) for g in rows.values()], 1).double()
            k += j @ j.T
        targets = nn.functional.one_hot(self.y, CLASSES).double()
        signal = targets - targets.mean(0)
        each = (signal * (k @ signal)).sum(0) / signal.square().sum(0)
        return float(k.sum() / N / each.mean())


def near(value: float, text: str, *, rel: float = 0.0, by: float = 0.0) -> None:
    """A printed number, within its rounding and a tolerance."""
    digits_ = text.replace(" ", "").replace("\N{NO-BREAK SPACE}", "")
    shown = float(digits_.replace("∞", "inf"))
    decimals = len(digits_.partition(".")[2])
    assert abs(shown - value) <= 0.51 * 10.0**-decimals + by + rel * abs(value), (value, text)


P = rf"({NUMBER}) %"


def rules(hand: Hand) -> list[tuple[str, Callable[..., object]]]:
    """What a page may say with numbers in it, and the other computation of each."""
    ends = (100 * (hand.mean - 1.96 * hand.se), 100 * (hand.mean + 1.96 * hand.se))
    often = float((hand.shares > 0.9).mean())
    tried = hand.shares[:TRIED]

    def sizes(inits: str, points: str, classes: str = str(CLASSES)) -> None:
        assert (inits, points, classes) == (str(INITS), str(N), str(CLASSES))

    def cause(before: str, after: str, error: str, layers: tuple[int, ...] = (), *, centred: bool = False) -> None:
        """The change is seen on 20 of them; a straight line through these says what it is where shares are those of all
        64. (The page has seven points fewer.)"""
        changed = [hand.forward(w, without=layers, centred=centred) for w in hand.weights[:TRIED]]
        without = np.array([share(logits) for logits in changed])
        line: Any = stats.linregress(tried, without)
        near(100 * hand.mean, before)
        near(100 * (line.intercept + line.slope * hand.mean), after, by=2.5)
        assert float(error) < 150 * (tried - without).std(ddof=1) / math.sqrt(TRIED) + 0.5
        near(100 * math.hypot(residual(line, tried, without), (1 - line.slope) * hand.se), error, rel=0.4)

    def single(before: str, after: str, error: str, layer: str) -> None:
        cause(before, after, error, (int(layer) // 2,))

    def count(steps: str, rel: float = 0.0) -> None:
        near(hand.gone(), steps, by=3.0 if not rel else 5.0, rel=rel)

    def interval(low: str, high: str, expected: tuple[float, float], rel: float) -> None:
        near(expected[0], low, rel=rel)
        near(expected[1], high, rel=rel)

    def span_of_often(part: str, low: str, high: str) -> None:
        near(100 * often, part)
        found = stats.binomtest(round(INITS * often), INITS).proportion_ci(method="wilson")
        interval(low, high, (100 * found.low, 100 * found.high), 0.02)

    def start(part: str, low: str, high: str, even: str) -> None:
        near(100 * hand.mean, part)
        near(ends[0], low, by=1.5)  # theirs need not be symmetric
        near(ends[1], high, by=1.5)
        near(100 / CLASSES, even)

    def gamma(value: str, low: str, high: str) -> None:
        near(hand.gammas(), value, rel=1e-3)
        interval(low, high, hand.resampled(), 0.1)

    def implied(value: str, low: str, high: str) -> None:
        near(math.exp(hand.implied(hand.mean)), value, rel=0.12)
        interval(low, high, (math.exp(hand.implied(ends[0] / 100)), math.exp(hand.implied(ends[1] / 100))), 0.3)

    def sure(percent: str) -> None:
        """That the share is on this side of the words' limits, γ = 1 and 9.47."""
        z = min(abs(hand.mean - hand.of_gamma(g)) / hand.se for g in (1.0, 9.47))
        assert stats.norm.cdf(z) > float(percent) / 100 - 0.03

    def theory(percent: str) -> None:
        fresh = hand.fresh()
        near(100 * fresh.mean(), percent, by=500 * fresh.std() / math.sqrt(len(fresh)))  # 5 s.e.: 6e-7

    def expected(width: str, percent: str, p: str) -> None:
        assert width == str(WIDTH)
        theory(percent)
        z = (hand.mean - float(percent) / 100) / hand.se
        assert float(p) >= 2 * stats.norm.sf(abs(z) + 0.5)  # of several numbers: not below that of this one

    def learns(before: str, after: str, steps: str, lr: str) -> None:
        assert (steps, lr) == (str(STEPS), str(RATE))
        near(100 * hand.accuracy(0), before)
        near(100 * hand.accuracy(STEPS), after, by=0.5)

    def factor(text: str) -> float:
        return float(text[2:]) if text.startswith("×") else 1 + float(text.replace("−", "-").rstrip(" %")) / 100

    def gradients(size: str, low: str, high: str, fitted: str, hidden: str, scale: str) -> None:
        assert (fitted, hidden) == (str(DEPTH - 1), str(DEPTH))
        found = hand.backward()
        assert factor(low) - 0.03 < found < factor(high) + 0.03
        assert abs(factor(size) - found) < 0.03
        near(-0.5 / math.log(found), scale, rel=0.1)

    def predicted(lr: str, steps: str, then: str, begin: str, ratio: str, again: str, points: str, inits: str) -> None:
        assert (lr, steps, points) == (str(RATE), again, str(N))
        assert 1 <= int(inits) <= INITS
        assert hand.gone() / 2 <= float(steps) <= 2 * hand.gone()  # what a page calls agreement
        near(100 * hand.accuracy(0), begin, by=3.0)
        near(100 * hand.accuracy(int(steps)), then, by=15.0)  # lazy training is a prediction: 8 copies at width 40
        near(hand.faster(), ratio, rel=0.25)  # 16 networks

    size = r"(× [0-9.]+|−[0-9]+ %)"
    return [
        (rf"{P} of inputs start in one class", lambda a: near(100 * hand.mean, a)),
        (rf"three quarters of that are gone after about ({NUMBER}) steps", count),
        (rf"\(predicted ({NUMBER}), seen ({NUMBER}) on copies\)", lambda a, b: (count(a, rel=1.0), count(b))),
        (
            rf"bias parameters of the 4 Linear layers: without them the largest share falls from {P} to {P} \(± {P}\)",
            lambda a, b, c: cause(a, b, c, tuple(range(DEPTH + 1))),
        ),
        (rf"Expected for this architecture \(theory: {P}\)", theory),
        (
            rf"with a chance of > {P}, from ({NUMBER}) initializations on ({NUMBER}) points",
            lambda a, b, c: (sure(a), sizes(b, c)),
        ),
        (rf"a run of ({NUMBER}) steps", lambda a: near(100.0, a)),
        (rf"before step ({NUMBER}) show the initialization", count),
        (
            rf"Sequential, ({NUMBER}) layers, ({NUMBER}) k parameters",
            lambda a, b: (
                near(DEPTH + 1, a),
                near((64 * WIDTH + 2 * WIDTH**2 + 3 * WIDTH + CLASSES * (WIDTH + 1)) / 1000, b),
            ),
        ),
        (rf"BIASED \(> {P}\)", sure),
        (rf"its favourite gets {P} of the data \(95 %: {P} to {P}\), where an even split would be {P}", start),
        (rf"{P} of all initializations put over 90 % of the data in one class \(95 %: {P} to {P}\)", span_of_often),
        (rf"γ of the output ({NUMBER}) \(95 %: ({NUMBER}) to ({NUMBER})\)", gamma),
        (rf"γ implied by the guesses ({NUMBER}) \(95 %: ({NUMBER}) to ({NUMBER})\)", implied),
        (
            r"yes \(p < 1e-12\)",
            lambda: (z := hand.mean - hand.of_gamma(1e-9)) / hand.se > stats.norm.isf(1e-12) or pytest.fail(str(z)),
        ),
        (rf"measured on ({NUMBER}) initializations, ({NUMBER}) points, ({NUMBER}) classes", sizes),
        (
            rf"\(measured: ({NUMBER}) initializations, ({NUMBER}) points\)",
            lambda a, b: (near(TRIED, a), near(N, b, by=10.0)),
        ),
        (
            rf"[1-9]\. {P} → {P} ± ({NUMBER}) bias parameters of the 4 Linear layers",
            lambda a, b, c: cause(a, b, c, tuple(range(DEPTH + 1))),
        ),
        (rf"[1-9]\. {P} → {P} ± ({NUMBER}) bias parameters of the Linear layer \(`([0-9])`\)", single),
        (rf"[1-9]\. {P} → {P} ± ({NUMBER}) the data themselves", partial(cause, centred=True)),
        (
            rf"predicted on your data at width ({NUMBER}), the largest share is {P} on average: as "
            rf"measured \(p = ({NUMBER})\)",
            expected,
        ),
        (rf"balanced accuracy goes from {P} to {P} in ({NUMBER}) steps with SGD at lr ({NUMBER})", learns),
        (
            rf"change by {size} per layer towards the input \(95 %: {size} to {size}\), over the last ({NUMBER}) of "
            rf"({NUMBER}) hidden layers: they shrink, their mean square by a factor e every ({NUMBER}) layers",
            gradients,
        ),
        (
            rf"Seen on ({NUMBER}) copies trained for ({NUMBER}) steps with SGD at lr ({NUMBER}): 75 % of the starting "
            rf"bias is gone after about ({NUMBER}) steps",
            lambda a, b, c, d: (near(COPIES, a), near(STEPS, b), near(RATE, c), count(d)),
        ),
        (
            rf"at lr ({NUMBER}) 75 % of the starting bias is gone after about ({NUMBER}) steps \(accuracy is {P} by "
            rf"then, {P} at the start; the bias moves ({NUMBER}) × faster than the labels' signal\)\. Scores by class "
            rf"before step ({NUMBER}) still show the start's bias\. Predicted from ({NUMBER}) points and ({NUMBER}) "
            "initializations",
            predicted,
        ),
        (
            r"σw² = 1/3 and σb² = 1/\(3 fan-in\)",
            lambda: near(float(cast(nn.Linear, mlp("Tanh", 400)[2]).weight.detach().var() * 400), "0.33", by=0.01),
        ),
        (
            "correlations go to 1 and gradients shrink",
            lambda: hand.backward() < 1 or pytest.fail("they do not shrink"),  # χ below 1
        ),
    ]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_number_is_computed_another_way(activation: str) -> None:
    hand = Hand(activation)
    optimizer = torch.optim.SGD(hand.model.parameters(), RATE)
    d = fg.diagnose(
        hand.model, (hand.x, hand.y), optimizer=optimizer, batch_size=N, seconds=600, advice=False, progress=False
    )
    page = " ".join(str(d).split())
    left = page
    for pattern, check in rules(hand):
        for found in re.finditer(pattern, page, flags=re.IGNORECASE):
            check(*found.groups())
        left = re.sub(pattern, "…", left, flags=re.IGNORECASE)
    assert not re.findall(r".{0,40}[0-9].{0,40}", left)
    assert page.count("…") == 0
    assert left.count("…") >= 18


def test_a_number_without_a_second_computation_would_be_found() -> None:
    left = "HARMLESS … and a new number, 17.3 of them"
    assert re.findall(r"[0-9.]*[0-9]", left) == ["17.3"]


def test_numbers_of_a_centred_head_are_computed_another_way() -> None:
    """What stands first under "What to change": shares of the same networks without their mean logits."""
    hand = Hand("ReLU")
    optimizer = torch.optim.SGD(hand.model.parameters(), RATE)
    d = fg.diagnose(hand.model, (hand.x, hand.y), optimizer=optimizer, batch_size=N, seconds=600, progress=False)
    found = re.search(
        rf"centre the head \(fg\.repair\) \(measured: ({NUMBER}) and ({NUMBER}) initializations\) largest share {P} "
        rf"→ {P}, γ ({NUMBER}) → ({NUMBER}), gradients",
        " ".join(str(d).split()),
    )
    assert found is not None
    before, count, start, end, gamma, zero = found.groups()
    centred = np.array([share(logits - logits.mean(0)) for logits in hand.logits[: int(count)]])
    assert (before, zero) == (str(INITS), "0")
    near(100 * hand.mean, start)
    near(100 * centred.mean(), end)
    near(hand.gammas(), gamma, rel=1e-3)


def gamma_of(units: torch.Tensor) -> float:
    """γ of (initializations, points, units)."""
    mean, spread = units.mean(1), units.var(1)
    return float((mean.square() - spread / units.shape[1]).mean() / spread.mean())


def wide(hand: Hand, weight_var: float, bias_vars: tuple[float, ...], x: torch.Tensor) -> tuple[Any, float]:
    """Largest shares and γ of wide networks with weights of these variances."""
    stream, outputs = torch.Generator().manual_seed(9), []
    for _ in range(120):
        h = x
        for i, bias_var in enumerate(bias_vars):
            shape = (h.shape[1], 400 if i < DEPTH else CLASSES)
            h = h @ torch.randn(shape, generator=stream).mul(math.sqrt(weight_var / shape[0]))
            h = h + torch.randn(shape[1], generator=stream) * math.sqrt(bias_var)
            h = hand.f(h) if i < DEPTH else h
        outputs.append(h.double())
    logits = torch.stack(outputs)
    return np.array([share(one) for one in logits]), gamma_of(logits - logits.mean(2, keepdim=True))


def edge_of_tanh(bias_var: float) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()

    def excess(weight_var: float) -> float:
        q = 1.0
        for _ in range(3000):
            q = weight_var * float(weights @ np.tanh(math.sqrt(q) * nodes) ** 2) + bias_var
        return weight_var * float(weights @ (1 - np.tanh(math.sqrt(q) * nodes) ** 2) ** 2) - 1

    return float(cast(float, optimize.brentq(excess, 1.0, 2.0, xtol=1e-5)))


def test_numbers_of_a_report_are_computed_another_way(tmp_path: Path) -> None:
    """What the page of a terminal has not: charts' titles, tables, changes that were tried. By plain products of the
    same networks, by trainings, by wide networks of the changed variances, by quadrature."""
    hand = Hand("Tanh")
    optimizer = torch.optim.SGD(hand.model.parameters(), RATE)
    d = fg.diagnose(hand.model, (hand.x, hand.y), optimizer=optimizer, batch_size=N, seconds=600, progress=False)
    source = d.save(tmp_path / "report.html").read_text("utf-8")
    text = re.sub(r"<(script|style|svg).*?</\1>", "", source, flags=re.DOTALL)
    text = " ".join(html.unescape(re.sub(r"</?(code|abbr)[^>]*>", "", text)).replace("<", " <").split())
    text = " ".join(re.sub(r"<[^>]*>", " ", text).split())

    def said(pattern: str) -> tuple[str, ...]:
        found = re.search(pattern, text)
        assert found is not None, pattern
        return found.groups()

    x, tried = hand.x.double(), slice(0, TRIED)
    counts = torch.stack([torch.bincount(one.argmax(1), minlength=CLASSES) for one in hand.logits])
    guesses = counts.double() / N

    def alike(gamma: float) -> float:
        return gamma / (1 + gamma)

    near(100 * hand.se, *said(rf"standard error of that average: {P}"))
    near(100 * float(np.median(hand.shares)), *said(rf"In half of the initializations one class gets at least {P}"))
    label, part = said(rf"Favoured most often: class ({NUMBER}), in {P} of them")
    favoured = np.bincount(guesses.argmax(1).numpy(), minlength=CLASSES)
    assert int(label) == favoured.argmax()
    near(100 * favoured.max() / INITS, part)

    apart = x.var(0, correction=0).sum()
    given = x @ x.T
    before = float((given.sum() - given.trace()) / (N - 1) / given.trace())
    first, last = said(rf"c goes from ({NUMBER}) to ({NUMBER})")
    near(before, first)
    near(alike(hand.gammas()), last)
    near(before, *said(rf"the data themselves 0\.000 → ({NUMBER})"), by=0.005)  # seven points fewer
    hidden = []
    for weights in hand.weights[tried]:
        h = hand.x
        for i in range(DEPTH):
            h = hand.f(h @ weights[2 * i].T + weights[2 * i + 1])
        hidden.append(h.double())
    first, last = said(rf"bias parameters of the Linear layer \(6\) ({NUMBER}) → ({NUMBER})")
    near(alike(gamma_of(torch.stack(hidden))), first, by=0.005)
    near(alike(hand.gammas(tried)), last, by=0.005)

    spread, error = said(rf"\(standard deviation\) (?:{NUMBER}) ({NUMBER}) ± ({NUMBER})")
    near(float((guesses - 1 / CLASSES).square().mean().sqrt()), spread)
    stream = np.random.default_rng(2)
    squares = (guesses - 1 / CLASSES).square().mean(1).numpy()
    again = [math.sqrt(squares[stream.integers(INITS, size=INITS)].mean()) for _ in range(400)]
    near(float(np.std(again)), error, rel=0.25)
    largest, error = said(rf"largest share, average (?:{NUMBER}) ({NUMBER}) ± ({NUMBER})")
    near(hand.mean, largest)
    near(hand.se, error, rel=0.02)
    near(float((hand.shares > 0.9).mean()), said(rf"one class gets over 90 % (?:{NUMBER}) ({NUMBER}) ±")[0])

    share_of_these, ratio = said(rf"puts most of these points in \({P}\).*? mean square is × ({NUMBER}) that of the")
    near(100 * float(hand.shares[tried].mean()), share_of_these, by=3.0)  # 256 of the points
    logs = []
    for logits in hand.logits[tried]:
        deltas = (logits.softmax(1) - nn.functional.one_hot(hand.y, CLASSES)).square().mean(1)
        own = hand.y == logits.argmax(1).bincount().argmax()
        logs.append(float((deltas[own].mean() / deltas[~own].mean()).log()))
    near(math.exp(float(np.mean(logs))), ratio, by=0.01)

    left = np.abs(hand.trained()[1])
    half, quarter = said(rf"at most half of the starting bias is left ({NUMBER}) at most a quarter ({NUMBER})")
    for shown, level in ((half, 0.5), (quarter, 0.25)):
        seen = np.flatnonzero(left > level)[-1] + 1
        assert seen / 2 <= float(shown) <= 2 * seen  # a prediction: what a page calls agreement
    near(100 * float(torch.bincount(hand.y).max()) / N, *said(rf"the labels' own largest share {P}"))

    bias_vars = (1 / (3 * 64), *(1 / (3 * WIDTH),) * DEPTH)
    start, edge = said(rf"edge of chaos \(σw² ({NUMBER}) → ({NUMBER})\)")
    near(1 / 3, start)
    near(edge_of_tanh(bias_vars[1]), edge)
    drawn = {
        "Weights at the edge of chaos": wide(hand, float(edge), (bias_vars[1],) * (DEPTH + 1), hand.x),
        "Centre the data": wide(hand, 1 / 3, bias_vars, hand.x - hand.x.mean(0)),
    }
    unchanged = wide(hand, 1 / 3, bias_vars, hand.x)
    for change, found in drawn.items():
        row = said(rf"{change}(?: \([^)]*\))? {P} → {P} ({NUMBER}) → ({NUMBER})")
        for (shares, gamma), percent, value in ((unchanged, row[0], row[2]), (found, row[1], row[3])):
            near(100 * shares.mean(), percent, by=500 * shares.std() / math.sqrt(len(shares)))  # 5 s.e.: 6e-7
            near(gamma, value, rel=5 * math.sqrt(2 / (len(shares) * (CLASSES - 1))))
    near(float(x.mean(0).square().sum() / apart), *said(rf"a drift ratio γ₀ = ({NUMBER})"))
