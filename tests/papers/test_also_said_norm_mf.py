"""What NORM and MF also say at initialization: parts computed another way, checks that can fail, items that run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import igb_blocks, mf_gradients, mf_phases, norm_variants
from firstguess_papers.items import VERDICTS, Item
from firstguess_papers.judging import Number
from firstguess_papers.measured import decided
from firstguess_papers.running import Run

import firstguess as fg
from firstguess.studies.store import Store

SURE = 1e-4  # an error that decides


def _verdicts(item: Item, **known: Any) -> list[str]:
    return [entry.verdict for entry in decided(item, **known)]


def numbers(*values: float) -> list[Number]:
    return [Number(v, SURE) for v in values]


# -- N16


def _norms() -> tuple[dict[tuple[str, str], list[Number]], dict[tuple[str, str], Number]]:
    found: dict[tuple[str, str], list[Number]] = {}
    for phi in norm_variants.PHI:
        bias = 0.0 if phi in norm_variants.ODD else 1.0
        grows = numbers(0.5 * bias, 3.0 * bias)
        found |= {(phi, norm_variants.NONE): grows, (phi, norm_variants.LN_BEFORE): grows}
        found[phi, norm_variants.BN_BEFORE] = numbers(0.5 * bias, 0.5 * bias)
        found |= {(phi, place): numbers(0.0, 0.01) for place in (norm_variants.BN_AFTER, norm_variants.LN_AFTER)}
    return found, {key: Number(0.01, SURE) for key in found}


def test_a_theorem_that_fails_for_an_activation_would_be_seen() -> None:
    found, left = _norms()
    assert _verdicts(norm_variants.activations, found=found, left=left) == ["holds", "holds"]
    for place, values in {
        norm_variants.BN_BEFORE: (0.5, 2.0), norm_variants.BN_AFTER: (0.0, 0.5),
        norm_variants.LN_AFTER: (0.0, 0.5), norm_variants.LN_BEFORE: (3.0, 0.5),
    }.items():  # fmt: skip
        entry = decided(norm_variants.activations, found=found | {("GELU", place): numbers(*values)}, left=left)[0]
        assert (entry.verdict, "GELU" in entry.why) == ("does not hold", True)
    uneven = left | {("SiLU", norm_variants.BN_AFTER): Number(0.3, SURE)}
    assert _verdicts(norm_variants.activations, found=found, left=uneven)[0] == "does not hold"
    unlike = found | {("GELU", norm_variants.LN_BEFORE): numbers(0.5, 1.0)}
    assert _verdicts(norm_variants.activations, found=unlike, left=left) == ["holds", "does not hold"]


def test_correlation_carries_its_error() -> None:
    found = norm_variants.correlation(Number(3.0, 1e-3))
    assert found.value == pytest.approx(0.75)
    assert found.error == pytest.approx(3.001 / 4.001 - 0.75, rel=1e-3)


# -- N17


def _grown() -> dict[tuple[str, str], list[Number]]:
    return {(name, place): numbers(0.5, 3.0) if place == "before" else numbers(0.0, 0.0)
            for name in norm_variants.GROUPS for place in ("before", "after")}  # fmt: skip


def _images() -> dict[tuple[str, str], list[Number]]:
    found = {(name, "after"): numbers(0.0, 0.0) for name in norm_variants.IMAGE}
    found |= {(norm_variants.LAYER, "before"): numbers(0.5, 1.5), (norm_variants.BATCH, "before"): numbers(0.5, 0.5)}
    return found | {(norm_variants.INSTANCE, "before"): numbers(0.5, 1.5)}


def test_groups_that_are_no_layernorm_would_be_seen() -> None:
    for key, values, verdict in (
        (("groups of 8", "before"), (0.5, 3.0), "holds"),
        (("groups of 2", "before"), (1.0, 3.5), "holds with a limit"),
        (("groups of 8", "before"), (3.0, 0.5), "does not hold"),
        (("groups of 8", "after"), (0.0, 1.0), "does not hold"),
    ):
        found = _grown() | {key: numbers(*values)}
        assert _verdicts(norm_variants.groups, found=found, seen=_images())[0] == verdict


def test_instancenorm_is_compared_with_both_norms() -> None:
    for last, verdict, as_batch in ((1.5, "holds", False), (0.5, "does not hold", True), (1.0, "does not hold", False)):
        seen = _images() | {(norm_variants.INSTANCE, "before"): numbers(0.5, last)}
        found = decided(norm_variants.groups, found=_grown(), seen=seen)[1]
        assert (found.verdict, "as BatchNorm" in found.why) == (verdict, as_batch)


# -- N18


def test_pools_and_inputs_that_matter_would_be_seen() -> None:
    normed, plain = norm_variants.NORMED, norm_variants.PLAIN
    flat = {(normed, pool): numbers(1.0, 1.0) for pool in norm_variants.POOLS}
    flat[plain, "no pool"] = numbers(0.5, 3.0)
    theory = {key: [1.0] for key in flat}
    even = {key: numbers(0.0, 0.0) for key in norm_variants.INPUTS}
    left = {key: Number(0.0, SURE) for key in norm_variants.INPUTS}
    known: dict[str, Any] = {"found": flat, "theory": theory, "after": even, "left": left}
    assert _verdicts(norm_variants.pooling, **known) == ["holds", "holds"]
    other = {"theory": theory | {(normed, "no pool"): [2.0]}}
    assert _verdicts(norm_variants.pooling, **known | other)[0] == "holds with a limit"
    other = {"found": flat | {(normed, "largest of 2"): numbers(1.0, 2.0)}}
    assert _verdicts(norm_variants.pooling, **known | other)[0] == "does not hold"
    off = decided(norm_variants.pooling, **known | {"left": left | {(3.0, 1.0): Number(0.2, SURE)}})[1]
    assert (off.verdict, off.why) == ("does not hold", "not even: mean 3, spread 1")


# -- N19


def _shapes(kurtosis: float, skewness: float = 0.1) -> list[norm_variants.Shape]:
    return [{"skewness": Number(skewness, SURE), "kurtosis": Number(kurtosis, SURE)}] * 2


def test_nodes_that_are_not_gaussian_would_be_seen() -> None:
    found = {(name, width): _shapes(0.7 if width == 20 else 0.6) for name in norm_variants.DATA for width in (20, 320)}
    found |= {(norm_variants.BLOB, 320): _shapes(0.1)}
    heavy, cured = (
        found | {(norm_variants.DIGITS, 320): _shapes(-1.5)},
        found | {(norm_variants.SPARSE, 320): _shapes(0.0)},
    )
    bad = [found | {(norm_variants.BLOB, 320): one} for one in (_shapes(1.5), _shapes(0.1, skewness=0.5))]
    for seen, index, verdict in (
        (found, 0, "holds"), (found, 1, "holds"), (heavy, 0, "holds with a limit"), (bad[0], 0, "does not hold"),
        (bad[1], 0, "does not hold"), (cured, 1, "does not hold"),
    ):  # fmt: skip
        assert _verdicts(norm_variants.gaussian, found=seen, widths=(20, 320))[index] == verdict


def test_shapes_are_those_of_the_nodes() -> None:
    """The first layer: kurtosis of w·x over the data is that of its own sum, node by node (unbiased, as G₂)."""
    x = np.random.default_rng(7).exponential(size=(300, 8)).astype(np.float32) - 1
    m = fg.measure("dense > relu > dense", x, inits=200, width=40, probe="weights", moments=4)
    found = norm_variants.shapes(m)
    assert len(found) == 1
    w = np.random.default_rng(8).standard_normal((8, 8000))
    u = x @ w
    u = (u - u.mean(axis=0)) / u.std(axis=0)
    mine = (u**4).mean(axis=0) - 3
    error = math.hypot(found[0]["kurtosis"].error, float(mine.std() / math.sqrt(8000)))
    bias = 10 / 300  # of the plain estimate: its terms are of order (κ + 6)/n, κ up to 6 here
    assert abs(found[0]["kurtosis"].value - float(mine.mean())) < 6 * error + bias


# -- M13, M14


def test_the_edge_as_largest_would_be_seen() -> None:
    def judged(order: Any) -> list[str]:
        found = {
            (phi, m, k): Number(order(m), SURE) for phi in mf_phases.PHI for m in mf_phases.MULTIPLES for k in (5, 40)
        }
        limits = {(phi, m): (math.inf if m <= 1 else 0.5, m) for phi in mf_phases.PHI for m in mf_phases.MULTIPLES}
        return [e.verdict for e in mf_phases.judge(found, limits)]

    assert judged(lambda m: -abs(m - 1)) == ["holds", "holds"]
    assert judged(lambda m: -m) == ["does not hold", "holds"]
    assert judged(lambda m: m) == ["does not hold", "does not hold"]


def test_logarithms_carry_their_error() -> None:
    found = mf_phases.log10(Number(1000.0, 1.0))
    assert found.value == pytest.approx(3.0)
    assert found.error == pytest.approx(math.log10(1001) - 3.0, rel=1e-3)
    assert math.isnan(mf_phases.log10(Number(-1.0, 1.0)).value)


def test_variances_of_other_phases_would_be_seen() -> None:
    good = {mf_gradients.ORDERED: (1.0, 0.01), mf_gradients.EDGE: (1.5, 0.5), mf_gradients.CHAOTIC: (80.0, 40.0)}
    whole = {mf_gradients.ORDERED: Number(1e-5, 1e-6), mf_gradients.EDGE: Number(0.1, 0.01)}

    def judged(**other: tuple[float, float]) -> str:
        late = {name: (Number(a, SURE), Number(b, SURE)) for name, (a, b) in (good | other).items()}
        return mf_gradients.judge_variances(late, whole).verdict

    assert judged() == "holds"
    assert judged(**{mf_gradients.ORDERED: (2.0, 0.01)}) == "does not hold"
    assert judged(**{mf_gradients.CHAOTIC: (80.0, 0.5)}) == "does not hold"


def test_boundaries_that_stay_would_be_seen() -> None:
    edges: dict[str, float | None] = {name: 2.0 if name == mf_gradients.PLAIN else None for name in mf_gradients.BLOCKS}
    theory = {name: [0.7, 0.9, 1.0, 1.2, 1.3] for name in mf_gradients.BLOCKS}
    found = {name: numbers(*values) for name, values in theory.items()}
    assert mf_gradients.judge_boundaries(edges, found, theory).verdict == "holds"
    stays = mf_gradients.judge_boundaries(edges | {"LayerNorm after": 2.02}, found, theory)
    assert (stays.verdict, "LayerNorm after" in stays.why) == ("does not hold", True)
    off = found | {"skip connection": numbers(1.0, 1.0, 1.0, 1.0, 1.0)}
    assert mf_gradients.judge_boundaries(edges, off, theory).verdict == "does not hold"


def test_growth_in_closed_form_is_1_at_the_edge_and_the_weights_of_linear_networks() -> None:
    edge = mf_gradients.edge_of("tanh")
    assert edge is not None
    # 300 layers deep the variance has settled for nearly all of them
    text = mf_gradients.network("tanh", edge, 300)
    assert mf_gradients.mean_growth(text, 300) == pytest.approx(1.0, abs=0.01)
    linear = "30 x [dense(weight_var=1.3) > linear] > dense(weight_var=1.3)"
    assert mf_gradients.mean_growth(linear, 30) == pytest.approx(1.3)
    assert mf_gradients.edge_of("batchnorm > tanh") is None


# -- Items run


class Tiny(Run):
    """Six networks of a few nodes: whether an item runs, not what it finds."""

    def measure(self, what: Any, data: Any, **options: Any) -> Any:
        options |= {"inits": 6, "points": min(data.n, 48)}
        if options.get("width", 0) > 32:
            options["width"] = 32
        return super().measure(what, data, **options)


@pytest.mark.parametrize(
    "item",
    [
        igb_blocks.constants, igb_blocks.pooling, igb_blocks.weight_laws, norm_variants.activations,
        norm_variants.groups, norm_variants.pooling, norm_variants.gaussian,
        pytest.param(igb_blocks.limits, marks=pytest.mark.slow),
    ],
    ids=lambda i: i.id,
)  # fmt: skip
def test_items_run_and_say_what_they_found(item: Item, tmp_path: Path) -> None:
    outcome = item.outcome(Tiny(item, quick=True, store=Store(tmp_path)))
    assert {entry.claim for entry in outcome.entries} == set(item.claims)
    assert all(entry.verdict in VERDICTS and entry.measured for entry in outcome.entries)
    assert outcome.charts
    for table in outcome.tables.values():
        assert len({len(column) for column in table.values()}) == 1
