"""Writes moments.json: moments of every registered activation from mpmath, by methods the package does not use.

The package conditions on a node's center μ. Here (u, v), the pre-activations of one node at two data points, are:

- piecewise polynomials and exponentials: E[φ(v) | u] in closed form (truncated normal moments), then Gauss-Legendre
  over u with panels split at every kink;
- analytic functions: u = s + d, v = s − d with s and d independent, the trapezoid rule in both on one common lattice,
  in fixed-point integers of 320 bits. It converges exponentially, and is repeated with another step: both must agree.

    between' = E φ(u)φ(v) − (E φ)²,    spread' = E φ(u)² − E φ(u)φ(v),    and E φ'(u)², E φ'(u)φ'(v)

Run it with `python tests/golden/make_moments.py`; one core, a few minutes.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

DPS = 80
BITS = 320
QS = ("1e-6", "1", "100")
ONE_MINUS_CS = ("1", "0.7", "1e-6")
REACH = 16  # exp(−16²/2) = 3e-56: E sin·sin at q = 100, c = 0.3 is 4e-31, and still needs its digits

Term = tuple[Any, int, int]  # coefficient, power, rate: coefficient · x^power · e^{rate·x}
Piece = tuple[Any, Any, list[Term]]  # from, to, sum of terms

# --- piecewise polynomials and exponentials ---------------------------------------------------------------------------

mp.mp.dps = DPS
INF = mp.inf
ALPHA = mp.mpf("1.6732632423543772848170429916717")
SCALE = mp.mpf("1.0507009873554804934193349852946")


def two(left: Any, right: Any) -> list[Piece]:
    return [(-INF, mp.mpf(0), [(mp.mpf(left), 1, 0)]), (mp.mpf(0), INF, [(mp.mpf(right), 1, 0)])]


def exponential(scale: Any, alpha: Any) -> list[Piece]:
    below = [(scale * alpha, 0, 1), (-scale * alpha, 0, 0)]
    return [(-INF, mp.mpf(0), below), (mp.mpf(0), INF, [(scale, 1, 0)])]


ONE, THREE, SIX = mp.mpf(1), mp.mpf(3), mp.mpf(6)
PIECEWISE: dict[str, list[Piece]] = {
    "linear": [(-INF, INF, [(ONE, 1, 0)])],
    "relu": two(0, 1),
    "leaky_relu": two(mp.mpf(0.2), 1),  # the float 0.2, as the package gets it
    "prelu": two("0.25", 1),
    "abs": two(-1, 1),
    "elu": exponential(ONE, ONE),
    "selu": exponential(SCALE, ALPHA),
    "hardtanh": [(-INF, -ONE, [(-ONE, 0, 0)]), (-ONE, ONE, [(ONE, 1, 0)]), (ONE, INF, [(ONE, 0, 0)])],
    "relu6": [(-INF, mp.mpf(0), []), (mp.mpf(0), SIX, [(ONE, 1, 0)]), (SIX, INF, [(SIX, 0, 0)])],
    "hardswish": [(-INF, -THREE, []), (-THREE, THREE, [(ONE / 6, 2, 0), (ONE / 2, 1, 0)]), (THREE, INF, [(ONE, 1, 0)])],
    "square": [(-INF, INF, [(ONE, 2, 0)])],
    "sign": [(-INF, mp.mpf(0), [(-ONE, 0, 0)]), (mp.mpf(0), INF, [(ONE, 0, 0)])],
}


def slope_of(pieces: list[Piece]) -> list[Piece]:
    def differentiate(terms: list[Term]) -> list[Term]:
        out: list[Term] = []
        for coefficient, power, rate in terms:
            if power:
                out.append((coefficient * power, power - 1, rate))
            if rate:
                out.append((coefficient * rate, power, rate))
        return out

    return [(lo, hi, differentiate(terms)) for lo, hi, terms in pieces]


def product(pieces: list[Piece]) -> list[Piece]:
    return [(lo, hi, [(a * b, m + n, s + t) for a, m, s in terms for b, n, t in terms]) for lo, hi, terms in pieces]


def truncated(center: Any, variance: Any, lo: Any, hi: Any, power: int) -> Any:
    """E w^power 1(lo < w < hi), w ~ N(center, variance), by recursion in the power."""
    sd = mp.sqrt(variance)

    def mass_above(x: Any) -> Any:
        return mp.erfc((x - center) / sd / mp.sqrt(2)) / 2

    def edge(x: Any, n: int) -> Any:
        return mp.mpf(0) if mp.isinf(x) else x**n * mp.npdf((x - center) / sd)

    if lo > center:  # both in the upper tail, else both measured from below: no cancellation
        values = [mass_above(lo) - (0 if mp.isinf(hi) else mass_above(hi))]
    else:
        below = mp.mpf(1) if mp.isinf(hi) else mp.erfc((center - hi) / sd / mp.sqrt(2)) / 2
        values = [below - (0 if mp.isinf(lo) else mp.erfc((center - lo) / sd / mp.sqrt(2)) / 2)]
    for n in range(1, power + 1):
        before = values[n - 2] if n > 1 else mp.mpf(0)
        values.append(center * values[n - 1] + (n - 1) * variance * before - sd * (edge(hi, n - 1) - edge(lo, n - 1)))
    return values[power]


def conditional(pieces: list[Piece], center: Any, variance: Any) -> Any:
    """E f(w), w ~ N(center, variance): completing the square turns e^{rate·w} into a shift of the center."""
    total = mp.mpf(0)
    for lo, hi, terms in pieces:
        for coefficient, power, rate in terms:
            tilt = mp.exp(rate * center + rate * rate * variance / 2) if rate else 1
            total += coefficient * tilt * truncated(center + rate * variance, variance, lo, hi, power)
    return total


def value(terms: list[Term], x: Any) -> Any:
    return mp.fsum(a * x**n * (mp.exp(r * x) if r else 1) for a, n, r in terms)


def pair_piecewise(pieces: list[Piece], q: Any, gap: Any) -> Any:
    """E f(u)f(v) with Var = q and correlation 1 − gap."""
    c = 1 - gap
    if c == 0:
        return conditional(pieces, mp.mpf(0), q) ** 2
    sd, rest = mp.sqrt(q), q * gap * (1 + c)
    kinks = [lo for lo, _, _ in pieces if not mp.isinf(lo)]
    reach = REACH * sd
    edges = {sd * k for k in range(-REACH, REACH + 1)}
    for kink in kinks:
        edges.add(kink)
        for k in range(-10, 11):  # E[f(v)|u] bends around kink/c, over √(q(1−c²))/c
            edges.add(kink / c + 2 * k * mp.sqrt(rest) / c)
        step = 20 * mp.sqrt(rest) / c
        while step < reach:
            edges.update((kink / c - step, kink / c + step))
            step *= 2
    grid = sorted(e for e in edges if -reach <= e <= reach)
    total = mp.mpf(0)
    for lo, hi in itertools.pairwise(grid):
        terms = next(t for a, b, t in pieces if a <= (lo + hi) / 2 < b)
        if terms:
            half, middle = (hi - lo) / 2, (hi + lo) / 2
            for x, w in NODES:
                u = middle + half * x
                density = mp.exp(-u * u / (2 * q)) / mp.sqrt(2 * mp.pi * q)
                total += half * w * density * value(terms, u) * conditional(pieces, c * u, rest)
    return total


def gauss_legendre(n: int) -> list[tuple[Any, Any]]:
    out: list[tuple[Any, Any]] = []
    for guess in np.polynomial.legendre.leggauss(n)[0]:
        x = mp.mpf(float(guess))
        for _ in range(5):  # Newton doubles the digits: 16 → 500
            p, before = mp.mpf(1), mp.mpf(0)
            for k in range(1, n + 1):
                p, before = ((2 * k - 1) * x * p - (k - 1) * before) / k, p
            slope = n * (x * p - before) / (x * x - 1)
            x -= p / slope
        out.append((x, 2 / ((1 - x * x) * slope**2)))
    return out


NODES: list[tuple[Any, Any]] = []


def piecewise_row(name: str, q: Any, gap: Any) -> dict[str, Any]:
    pieces = PIECEWISE[name]
    slope = slope_of(pieces)
    zero = mp.mpf(0)
    mean = conditional(pieces, zero, q)
    square = conditional(product(pieces), zero, q)
    pair = pair_piecewise(pieces, q, gap)
    row = {"mean": mean, "between": pair - mean**2, "spread": square - pair}
    if name == "sign":  # φ' = 2δ: E φ'φ' is four times the density of (u, v) at the origin
        row["mean_square_slope"] = mp.inf
        row["slope_kernel"] = 4 / (2 * mp.pi * q * mp.sqrt(gap * (2 - gap)))
    else:
        row["mean_square_slope"] = conditional(product(slope), zero, q)
        row["slope_kernel"] = pair_piecewise(slope, q, gap)
    return row


# --- analytic functions -----------------------------------------------------------------------------------------------


def logistic(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def normal_cdf(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def gelu_tanh(x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)))


def gelu_tanh_slope(x: Any) -> Any:
    k, a = mp.sqrt(2 / mp.pi), mp.mpf(0.044715)
    inner = k * (x + a * x**3)
    return (1 + mp.tanh(inner)) / 2 + x / 2 * mp.sech(inner) ** 2 * k * (1 + 3 * a * x * x)


def mish(x: Any) -> Any:
    e = (1 + mp.exp(x)) ** 2
    return x * (e - 1) / (e + 1)


def mish_slope(x: Any) -> Any:
    grow = mp.exp(x)
    e = (1 + grow) ** 2
    return (e - 1) / (e + 1) + x * 4 * grow * (1 + grow) / (e + 1) ** 2


SMOOTH: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (mp.tanh, lambda x: mp.sech(x) ** 2),
    "erf": (mp.erf, lambda x: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
    "gelu": (lambda x: x * normal_cdf(x), lambda x: normal_cdf(x) + x * mp.npdf(x)),
    "gelu_tanh": (gelu_tanh, gelu_tanh_slope),
    "silu": (lambda x: x * logistic(x), lambda x: logistic(x) * (1 + x * logistic(-x))),
    "mish": (mish, mish_slope),
    "softplus": (lambda x: mp.log1p(mp.exp(x)), logistic),
    "sigmoid": (logistic, lambda x: logistic(x) * logistic(-x)),
    "sin": (mp.sin, mp.cos),
}


def fixed(x: Any) -> int:
    return int(mp.nint(mp.ldexp(x, BITS)))


def lattice(fn: Callable[[Any], Any], q: Any, gap: Any, finest: Any) -> dict[str, Any]:
    """E f(u), E f(u)² − E f(u)f(v) and E f(u)f(v) by the trapezoid rule over s = (u+v)/2 and d = (u−v)/2."""
    sd_s, sd_d = mp.sqrt(q * (2 - gap) / 2), mp.sqrt(q * gap / 2)
    step = min(finest, mp.mpf("0.4") * sd_d)
    stride = max(1, int(min(finest, mp.mpf("0.4") * sd_s) / step))
    half_s = int(mp.ceil(REACH * sd_s / (stride * step)))
    half_d = int(mp.ceil(REACH * sd_d / step))
    known: dict[int, int] = {}

    def at(i: int) -> int:
        if i not in known:
            known[i] = fixed(fn(i * step))
        return known[i]

    ws = [mp.exp(-((i * stride * step / sd_s) ** 2) / 2) for i in range(-half_s, half_s + 1)]
    wd = [mp.exp(-((j * step / sd_d) ** 2) / 2) * (2 if j else 1) for j in range(half_d + 1)]
    sum_s, sum_d = mp.fsum(ws), mp.fsum(wd)
    weights_d = np.array([fixed(w / sum_d) for w in wd], dtype=object)
    mean = pair = difference = 0
    for i, w in zip(range(-half_s, half_s + 1), ws, strict=True):
        weight = fixed(w / sum_s)
        plus = np.array([at(i * stride + j) for j in range(half_d + 1)], dtype=object)
        minus = np.array([at(i * stride - j) for j in range(half_d + 1)], dtype=object)
        mean += weight * (int(np.dot(weights_d, plus + minus)) >> BITS)
        pair += weight * (int(np.dot(weights_d, plus * minus)) >> (2 * BITS))
        difference += weight * (int(np.dot(weights_d, (plus - minus) ** 2)) >> (2 * BITS))

    def real(x: int, halvings: int) -> Any:
        return mp.ldexp(mp.mpf(x), -2 * BITS - halvings)

    return {"mean": real(mean, 1), "pair": real(pair, 0), "spread": real(difference, 1)}


def smooth_row(name: str, q: Any, gap: Any) -> dict[str, Any]:
    fn, slope = SMOOTH[name]
    rows: list[dict[str, Any]] = []
    # Poles are at least π/2 from the real line: the error is e^{−2π·(π/2)/0.15} = 3e-29, and less for the finer step.
    for finest in (mp.mpf("0.15"), mp.mpf("0.11")):
        if gap == 1:  # independent: one-dimensional sums are enough
            sd = mp.sqrt(q)
            step = min(finest, mp.mpf("0.4") * sd)
            points = [i * step for i in range(-int(REACH * sd / step) - 1, int(REACH * sd / step) + 2)]
            weights = [mp.exp(-x * x / (2 * q)) for x in points]
            norm = mp.fsum(weights)
            mean, square, slope_mean, slope_square = (
                mp.fsum(w * g(x) for w, x in zip(weights, points, strict=True)) / norm
                for g in (fn, lambda x: fn(x) ** 2, slope, lambda x: slope(x) ** 2)
            )
            row = {"mean": mean, "between": mp.mpf(0), "spread": square - mean**2}
            row |= {"mean_square_slope": slope_square, "slope_kernel": slope_mean**2}
        else:
            own, derived = lattice(fn, q, gap, finest), lattice(slope, q, gap, finest)
            row = {"mean": own["mean"], "between": own["pair"] - own["mean"] ** 2, "spread": own["spread"]}
            row |= {"mean_square_slope": derived["pair"] + derived["spread"], "slope_kernel": derived["pair"]}
        rows.append(row)
    coarse, fine = rows
    for key, x in fine.items():
        scale = mp.sqrt(fine["spread"]) if key == "mean" else 0
        assert abs(coarse[key] - x) <= mp.mpf("1e-22") * (abs(x) + scale), (name, q, gap, key, coarse[key], x)
    return fine


def main() -> None:
    NODES.extend(gauss_legendre(40))
    rows: list[dict[str, str]] = []
    for name in (*PIECEWISE, *SMOOTH):
        start = time.time()
        for q in QS:
            for gap in ONE_MINUS_CS:
                row = (piecewise_row if name in PIECEWISE else smooth_row)(name, mp.mpf(q), mp.mpf(gap))
                tiny = mp.mpf("1e-40") if name != "sin" else mp.mpf("1e-60")  # what exact zeros leave behind
                text = {k: "0" if abs(v) < tiny else mp.nstr(v, 20) for k, v in row.items()}
                rows.append({"activation": name, "q": q, "one_minus_c": gap, **text})
        print(f"{name}: {time.time() - start:.1f} s", flush=True)
    text = ",\n".join("  " + json.dumps(row) for row in rows)
    Path(__file__).with_name("moments.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
