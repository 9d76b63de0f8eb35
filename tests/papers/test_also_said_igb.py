"""What IGB also says at initialization: parts computed another way, and checks that can fail.

Random comparisons allow 6 standard errors: a false alarm below 2e-9 each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from firstguess_papers import igb_blocks, igb_guesses
from firstguess_papers.charts import beyond_flips, deep, gammas
from firstguess_papers.items import Item
from firstguess_papers.judging import Number
from firstguess_papers.measured import decided
from firstguess_papers.registry import items
from scipy import special

import firstguess as fg
from firstguess.ensemble.measurement import Measurement

ALARM = 6.0
SURE = 1e-4  # an error that decides


def _verdicts(item: Item, **known: Any) -> list[str]:
    return [entry.verdict for entry in decided(item, **known)]


def test_each_claim_said_at_initialization_has_an_item() -> None:
    answered = {claim for item in items().values() for claim in item.claims}
    assert answered >= {
        "I15",
        "I19",
        "I20",
        "I21",
        "I22",
        "I23",
        "I24",
        "I27",
        "N16",
        "N17",
        "N18",
        "N19",
        "M13",
        "M14",
    }


def test_a_hundred_classes_see_their_own_images() -> None:
    assert (items()["igb/fig12"].needs, items()["igb/fig12"].version) == (("cifar100",), 2)


# -- Shared


def test_gammas_are_those_of_hidden_layers_behind_a_block() -> None:
    m = fg.measure(deep("relu", 4), fg.data.blob(60, 40), inits=5, width=30, classes=3, probe="weights")
    assert [g.value for g in gammas(m)] == m.gamma[1:-1].tolist()
    assert len(gammas(m)) == 3


def test_even_guesses_are_nothing_beyond_coin_flips() -> None:
    drawn = np.random.default_rng(1).multinomial(200, [0.1] * 10, size=2000) / 200
    found = beyond_flips(Measurement(fg.EmpiricalGuesses(drawn, 200), layers=()))
    assert abs(found.value) < ALARM * found.error


# -- I19


def test_finite_sizes_give_the_numbers_of_theory() -> None:
    # theory.md (42): 600 points, rounded to four digits
    for sizes, value in {(20, 50, 200): 0.0901, (20, 100, 1000): 0.0613}.items():
        assert igb_blocks.finite_std(*sizes, 600) == pytest.approx(value, abs=6e-5)
    assert igb_blocks.finite_std(2, 100, 100, 600) == pytest.approx(0.03546410, abs=2e-8)


def _seen(found: float, *, sweep: str = igb_blocks.WIDTHS, theory: float = 0.228) -> dict[str, Any]:
    row = {"sweep": sweep, "series": "smaller size 40", "sizes": "d = 40", "std": Number(found, SURE)}
    return row | {"theory": theory, "finite_width": math.nan}


def test_an_order_that_matters_would_be_seen() -> None:
    fine, off = _seen(0.23), _seen(0.28)
    deep_fine, deep_off = (_seen(found, sweep=igb_blocks.DEPTH_LIMITS, theory=0.03) for found in (0.03, 0.08))
    for seen, verdict in (
        ([fine, deep_fine], "holds"), ([fine, deep_off], "holds with a limit"), ([off, deep_off], "does not hold"),
    ):  # fmt: skip
        assert _verdicts(igb_blocks.limits, seen=seen) == [verdict]


# -- I20


def _laws(**other: float) -> tuple[dict[tuple[str, int], Number], dict[str, Number]]:
    plain = {(law, w): Number(other.get(law, 0.32), SURE) for law in igb_blocks.LAWS for w in (40, 150)}
    cured = {law: Number(0.27 if law == igb_blocks.ENDLESS else 0.02, SURE) for law in igb_blocks.LAWS}
    return plain, cured


def test_a_law_of_weights_that_matters_would_be_seen() -> None:
    plain, cured = _laws()
    known = {"cured": cured, "theory": 0.322}
    assert _verdicts(igb_blocks.weight_laws, plain=plain, **known) == ["holds", "holds with a limit"]
    plain, _ = _laws(uniform=0.4)
    first = decided(igb_blocks.weight_laws, plain=plain, **known)[0]
    assert (first.verdict, first.why) == ("does not hold", "another law for: uniform")
    cured[igb_blocks.ENDLESS] = Number(0.01, SURE)
    assert _verdicts(igb_blocks.weight_laws, plain=plain, **known)[1] == "does not hold"


def test_networks_of_a_law_have_its_weights_everywhere() -> None:
    text = igb_blocks.network("student(3)", "relu > layernorm")
    assert str(fg.Network.parse(text)).count("init=student(3)") == 2  # the repeated layer and the output


# -- I21


def test_mean_of_pooled_nodes_by_drawing_them() -> None:
    z = np.tanh(math.sqrt(2) * np.random.default_rng(2).standard_normal((400_000, 2)).max(axis=1))
    assert abs(igb_blocks.pooled_mean("tanh", 2) - z.mean()) < ALARM * z.std() / math.sqrt(len(z))


def _blocks(tanh: float) -> list[dict[str, Any]]:
    def block(phi: str, pool: str, causes: bool, found: float) -> dict[str, Any]:
        return {"activation": phi, "pool": pool, "causes": causes, "gamma": Number(found, SURE), "theory": found}

    return [
        block("tanh", "no pool", False, 0.0), block("tanh", "average of 4", False, 0.0),
        block("tanh", "largest of 2", True, tanh), block(igb_blocks.SHIFTED_POOLING, "no pool", True, 0.3),
        block(igb_blocks.SHIFTED_POOLING, "largest of 2", False, 0.0),
    ]  # fmt: skip


def test_pools_without_bias_would_be_seen() -> None:
    assert _verdicts(igb_blocks.pooling, blocks=_blocks(0.48)) == ["holds", "holds"]
    assert _verdicts(igb_blocks.pooling, blocks=_blocks(-0.01)) == ["does not hold", "does not hold"]


# -- I22


def test_a_constant_without_effect_and_a_mean_that_stays_would_be_seen() -> None:
    theory = dict(zip(igb_blocks.CONSTANTS, (0.0, 0.12, 0.48, 1.9, 7.7), strict=True))
    rising = {a: Number(v, SURE) for a, v in theory.items()}
    falling = dict(zip(rising, list(rising.values())[::-1], strict=True))
    flat, grows = [Number(0.0, SURE)] * 3, [Number(v, SURE) for v in (0.5, 1.0, 2.0)]
    found = {igb_blocks.PLAIN: grows, igb_blocks.WHOLE: flat, igb_blocks.BATCHES: flat}
    left = {name: Number(0.5 if name == igb_blocks.PLAIN else 0.01, SURE) for name in igb_blocks.BLOCKS}

    def both(shifted: dict[float, Number] = rising, **other: list[Number]) -> list[str]:
        seen = found | {getattr(igb_blocks, name): values for name, values in other.items()}
        return _verdicts(igb_blocks.constants, shifted=shifted, theory=theory, found=seen, left=left)

    assert both() == ["holds", "holds"]
    assert both(falling) == ["does not hold", "holds"]
    assert both(BATCHES=grows) == ["holds", "holds with a limit"]
    assert both(WHOLE=grows) == ["holds", "does not hold"]
    left[igb_blocks.WHOLE] = Number(0.2, SURE)  # γ is 0 by construction; the guesses would tell
    assert both() == ["holds", "does not hold"]


# -- I23


def test_spread_of_the_kernel_without_draws_is_that_of_its_draws() -> None:
    x = fg.data.blob(40, 10, seed=3)
    p = fg.predict(deep("relu", 2), data=x, classes=2, draws=20_000, seed=1)
    assert p.covariance is not None
    drawn = p.guesses.std()
    # the error of a standard deviation of 20 000 values between 0 and 1 is below that of a Gaussian
    assert abs(igb_guesses.exact_std(np.asarray(p.covariance)) - drawn) < ALARM * drawn / math.sqrt(40_000)


def _structure(shallow: float, deeper: float, kernel: float = 0.0) -> list[str]:
    found: dict[tuple[str, str, int], Number] = {}
    for phi in igb_guesses.PHI:
        found |= {(igb_guesses.NOISE, phi, k): Number(0.2, SURE) for k in (1, 20)}
        found |= {("MNIST", phi, 1): Number(shallow, SURE), ("MNIST", phi, 20): Number(deeper, SURE)}
    known = {key: n.value + (kernel if key[0] == "MNIST" else 0.0) for key, n in found.items()}
    return _verdicts(igb_guesses.structure, found=found, kernel=known, worst=("MNIST", phi, 1))


def test_structure_that_does_not_amplify_would_be_seen() -> None:
    assert _structure(0.3, 0.3) == ["holds", "holds"]
    assert _structure(0.3, 0.1) == ["holds with a limit", "holds"]
    assert _structure(0.1, 0.3) == ["does not hold", "holds"]
    assert _structure(0.15, 0.15, kernel=0.1) == ["does not hold", "does not hold"]  # networks against the kernel


# -- I24


def _drawn(gamma: float, points: int = 200, inits: int = 600) -> tuple[np.ndarray, fg.EmpiricalGuesses]:
    fractions = fg.Guesses(gamma, 10, points).sample(inits, seed=4)
    return fractions, fg.EmpiricalGuesses(fractions, points)


def test_ranks_and_entropy_are_those_of_the_library() -> None:
    fractions, guesses = _drawn(1.0)
    law = {"means": [0.0] * 5, "medians": [0.3, 0.2, 0.1], "half": [0.5] * 3, "entropy": 0.0}
    found = igb_guesses.compare(1.0, fractions, law)
    for k, mean in zip(igb_guesses.SHOWN, found["means"], strict=True):
        theirs = guesses.kth_largest(k)
        assert mean.value == pytest.approx(theirs.mean)
        assert mean.error == pytest.approx(theirs.error)
    assert found["entropy"].value == pytest.approx(guesses.entropy().mean)
    assert found["below"][1].value == pytest.approx(np.mean([sorted(f)[-2] <= 0.2 + 1e-9 for f in fractions.tolist()]))


@pytest.mark.slow
def test_ranks_drawn_from_the_law_pass_and_others_do_not() -> None:
    law = igb_guesses.predict_ranks(1.0, 200)
    own = igb_guesses.compare(1.0, _drawn(1.0, inits=4000)[0], law)
    other = igb_guesses.compare(1.0, _drawn(6.0, inits=4000)[0], law)
    assert _verdicts(igb_guesses.ranked, found=[own]) == ["holds", "holds"]
    assert _verdicts(igb_guesses.ranked, found=[own, other]) == ["does not hold", "does not hold"]


def test_a_law_that_is_off_limits_the_averages() -> None:
    good = {"gamma": 1.0, "means": [Number(0.4, SURE)], "theory": [0.4], "below": [Number(0.5, SURE)], "half": [0.5]}
    good |= {"entropy": Number(1.0, SURE), "entropy_theory": 1.0}
    off = good | {"below": [Number(0.8, SURE)]}
    assert _verdicts(igb_guesses.ranked, found=[good, off]) == ["holds with a limit", "holds"]


# -- I27


def test_numbers_of_margins_by_a_plain_loop() -> None:
    margins = np.random.default_rng(5).standard_normal((3, 400)) * 2 + np.array([[0.1], [-3.0], [1.0]])
    found = igb_guesses.numbers(margins)
    for i, m in enumerate(margins.tolist()):
        mean, n = sum(m) / len(m), len(m)
        spread = math.sqrt(sum((v - mean) ** 2 for v in m) / (n - 1))
        share = max(sum(v > 0 for v in m), sum(v < 0 for v in m)) / n
        assert found["squares"][i] == pytest.approx((mean / spread) ** 2 - 1 / n)
        assert found["near"][i] == pytest.approx(sum(abs(v) < 0.5 * spread for v in m) / n)
        if i:  # the share is of the side where the centre is: in the first network that may be the smaller one
            assert found["gap"][i] == pytest.approx(abs(share - special.ndtr(abs(mean) / spread)))
        assert found["skewness"][i] == pytest.approx(sum(((v - mean) / spread) ** 3 for v in m) / n * np.sign(mean))


def _cloud(gamma: float, seed: int, skew: bool = False) -> dict[str, Any]:
    rng = np.random.default_rng([6, seed])
    y = rng.standard_normal((3000, 400))
    if skew:
        y = (rng.gamma(0.5, size=y.shape) - 0.5) / math.sqrt(0.5)
    return igb_guesses.cloud(gamma, igb_guesses.numbers(y + math.sqrt(gamma) * rng.standard_normal((3000, 1))))


def test_gaussian_clouds_pass_and_others_do_not() -> None:
    names = list(igb_guesses.NETWORKS)
    levels = dict(zip(names, (0.0, 0.467, 2.8, 18.4), strict=True))
    good = {name: _cloud(g, i) for i, (name, g) in enumerate(levels.items())}
    assert _verdicts(igb_guesses.logits, found=good) == ["holds", "holds", "holds"]
    skewed = good | {name: _cloud(levels[name], i, skew=True) for i, name in enumerate(names[1:3], start=1)}
    assert _verdicts(igb_guesses.logits, found=skewed)[2] == "does not hold"
    turned = dict(zip(names, list(good.values())[::-1], strict=True))
    assert _verdicts(igb_guesses.logits, found=turned)[:2] == ["does not hold", "does not hold"]
