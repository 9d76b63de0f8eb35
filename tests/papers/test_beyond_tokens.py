"""The ledger's items on tokens: parts computed another way, checks that can fail, items that run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers import beyond_tokens as drawing
from firstguess_papers import beyond_tokens as shared
from firstguess_papers import beyond_tokens as tokens
from firstguess_papers.items import VERDICTS, Item
from firstguess_papers.judging import Number
from firstguess_papers.running import Run

from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.studies.store import Store
from firstguess.theory.tokens import token_covariances

pytestmark = pytest.mark.usefixtures("one_thread")
SURE = 1e-4  # an error that decides


def numbers(*values: float) -> list[Number]:
    return [Number(v, SURE) for v in values]


# -- Parts


@pytest.mark.parametrize("read_out", ["token", "mean", "first", "last"])
def test_sums_of_nodes_are_those_of_their_covariance(read_out: Any) -> None:
    nodes = np.random.default_rng(1).standard_normal((5, 4, 30)) + 0.3
    flat = nodes.reshape(20, 30)
    c, s, k = drawing.covariance_of(flat @ flat.T / 30, 5, read_out)
    assert drawing.pair_sums(nodes, read_out) == pytest.approx((c, s))
    place = {"token": -1, "last": -1, "first": 0}.get(read_out)
    features = nodes.mean(axis=1) if place is None else nodes[:, place]
    assert k == pytest.approx(features @ features.T / 30)
    if read_out != "token":
        own = [float(f @ f) / 30 for f in features]
        pairs = [float(f @ g) / 30 for i, f in enumerate(features) for j, g in enumerate(features) if i != j]
        assert (c, s) == pytest.approx((np.mean(pairs), np.mean(own)))


@pytest.mark.parametrize("place", ["before", "after"])
def test_blocks_of_a_deep_network_are_those_of_a_shallow_one(place: Any, tmp_path: Path) -> None:
    """Behind one of two blocks stands what a network of one block with the same draws has."""
    x = drawing.different_tokens(4, 3)
    design = drawing.Design("toy", place, "layernorm")
    run = Run(tokens.tokens_depth, quick=True, store=Store(tmp_path))
    deep = drawing.drawn(
        run, "deep", design.network(2, 16), x, width=16, inits=3, behind=[design.ends(1)], normed=place == "before"
    )
    shallow = drawing.drawn(run, "shallow", design.network(1, 16), x, width=16, inits=3)
    assert deep.c == pytest.approx(shallow.c, rel=1e-5)
    assert deep.s == pytest.approx(shallow.s, rel=1e-5)
    whole = Network.parse(f"{design.network(1, 16)} > pool_tokens(mean) > dense", classes=10)
    with torch.inference_mode():
        y: Any = torch.from_numpy(x)
        for module in list(build(whole, x, width=16, seed=0, member=2))[:-2]:
            y = module(y)
    last = y.numpy().astype(float)
    pairs = [last[a, t] @ last[b, t] / 16 for t in range(3) for a in range(4) for b in range(4) if a != b]
    assert shallow.c[2, 0] == pytest.approx(np.mean(pairs), rel=1e-5)


def test_the_two_norms_stand_on_the_same_weights() -> None:
    x = drawing.different_tokens(3, 3)
    weights: list[Any] = []
    for norm in ("layernorm", "rmsnorm"):
        text = f"{drawing.Design('toy', 'before', norm).network(1, 16)} > pool_tokens(mean) > dense"  # type: ignore[arg-type]
        weights.append([p.detach() for p in build(Network.parse(text, classes=10), x, width=16).parameters()])
    assert len(weights[0]) > 5
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_a_ratio_of_equal_networks_has_no_error() -> None:
    rng = np.random.default_rng(0)
    c = rng.uniform(0.1, 0.3, (9, 1))
    one = drawing.Drawn(c, np.ones_like(c), c)
    twice = drawing.Drawn(2 * c / (1 + c), np.ones_like(c), c)  # γ of a network of S = 1: c/(1 − c), doubled
    assert drawing.gamma_ratio(one, one) == pytest.approx((1.0, 0.0))
    assert drawing.gamma_ratio(twice, one).value == pytest.approx(2.0, rel=0.03)  # of averages, not of each network


def test_what_sequences_share_is_gone() -> None:
    import firstguess as fg

    styles: tuple[Any, ...] = ("gpt2", "bert", "vit")
    for style in styles:
        text = str(shared.bare(fg.transformer(style, depth=1, width=16, heads=4)))
        assert not any(word in text for word in ("positions", "cls(", "types"))
    x = drawing.different_tokens(3, 4)
    bert = fg.transformer("bert", depth=1, width=16, heads=4)
    bare = shared.bare(Network(bert.layers[:-2], 10))
    front = Network(bare.layers[:2], 10)
    assert token_covariances(front, x, width=16).k == pytest.approx(np.eye(12), abs=1e-6)


@pytest.mark.parametrize("part", shared.PARTS)
def test_networks_of_b3_have_one_shift(part: float) -> None:
    """z² = D·v_e/q with q before the last norm, whatever is shared."""
    net = shared.own_network(part, 64, 50)
    body = Network(net.layers[:-2], 50)
    k = token_covariances(body, drawing.different_tokens(2, 4), width=64).k
    assert k.diagonal() == pytest.approx(np.full(8, 64 / 3.5**2), rel=1e-9)
    rest = 64 / 3.5**2 - 1.0
    if part in (0.0, 1.0):  # nothing in common, or all but the own vector
        assert k[0, 1:] == pytest.approx(np.full(7, part * rest), abs=1e-9)


# -- Checks


def test_norms_that_differ_would_be_seen() -> None:
    like, even = {"post": numbers(1.0, 1.01)}, {"gated": numbers(0.0, 0.01)}
    apart = {"post": numbers(0.001, -0.002)}
    assert tokens.judge_norm((1, 2), like, even, apart).verdict == "holds"
    assert tokens.judge_norm((1, 2), {"post": numbers(1.0, 1.2)}, even, apart).verdict == "does not hold"
    assert tokens.judge_norm((1, 2), like, {"gated": numbers(0.0, 0.2)}, apart).verdict == "does not hold"
    assert tokens.judge_norm((1, 2), like, even, {"post": numbers(0.0, 0.05)}).verdict == "does not hold"
    vague = {"post": [Number(1.0, 0.1), Number(1.0, 0.1)]}
    assert tokens.judge_norm((1, 2), vague, even, apart).verdict == "not tested"


def _designs() -> dict[str, list[float]]:
    return {
        tokens.TRANSFORMER: [0.06, 0.5, 1.6],
        tokens.GPT2: [0.05, 0.25, 0.7],
        tokens.RMS: [0.05, 0.25, 0.7],
        tokens.LLAMA: [0.0, 0.0, 0.01],
    }


def test_designs_in_another_order_would_be_seen() -> None:
    theory = _designs()

    def judged(**other: list[float]) -> list[str]:
        given = theory | {getattr(tokens, name): values for name, values in other.items()}
        return [
            e.verdict
            for e in tokens.judge_depth((1, 4, 16), {name: numbers(*values) for name, values in given.items()}, theory)
        ]

    assert judged() == ["holds", "holds"]
    assert judged(TRANSFORMER=[0.05, 0.2, 0.5]) == ["does not hold", "holds"]
    assert judged(TRANSFORMER=[0.06, 0.5, 0.9]) == ["does not hold", "holds"]  # larger, not increasingly
    assert judged(RMS=[0.05, 0.25, 0.9]) == ["holds with a limit", "holds"]
    assert judged(LLAMA=[0.0, 0.0, 0.2]) == ["holds", "does not hold"]


def test_bias_without_anything_shared_would_be_seen() -> None:
    good = {name: (Number(1.0, SURE), Number(0.1, SURE)) for _, name in shared.STYLES.values()}
    bad = dict(list(good.items())[:-1]) | {shared.STYLES["vit"][1]: (Number(1.0, SURE), Number(0.8, SURE))}
    assert shared.judge_shared(good, good).verdict == "holds"
    limited = shared.judge_shared(good, bad)
    assert (limited.verdict, limited.why[-3:]) == ("holds with a limit", "ViT")
    assert shared.judge_shared(bad, good).verdict == "does not hold"


def test_guesses_of_the_own_input_that_depend_on_gamma_would_be_seen() -> None:
    def judged(last: float, gamma: float = 20.0) -> str:
        found = [(0.0, Number(0.0, SURE), Number(0.5, SURE)), (1.0, Number(gamma, SURE), Number(last, SURE))]
        return shared.judge_own(found, 0.5).verdict

    assert judged(0.51) == "holds"
    assert judged(0.4) == "does not hold"
    assert judged(0.5, gamma=1.0) == "does not hold"  # a range of γ that shows nothing


# -- Items run


TINY = dict(width=16, depth=4, n=4, length=8, inits=3, vocabulary=40, tokens=16)  # whether an item runs, no more


@pytest.mark.parametrize(
    "item", [tokens.tokens_norm, tokens.tokens_depth, shared.tokens_shared, shared.tokens_own], ids=lambda i: i.id
)
def test_items_run_and_say_what_they_found(item: Item, tmp_path: Path) -> None:
    sizes = {name: size for name, size in TINY.items() if name in item.sizes(quick=True)[0]}
    outcome = item.outcome(Run(item, quick=True, store=Store(tmp_path), changed=sizes))
    assert {entry.claim for entry in outcome.entries} == set(item.claims)
    assert all(entry.verdict in VERDICTS and entry.measured for entry in outcome.entries)
    assert outcome.charts
    for table in outcome.tables.values():
        assert len({len(column) for column in table.values()}) == 1
