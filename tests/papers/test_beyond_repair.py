"""beyond/repair: arms that are what they say, members that are shared, and checks that can fail.

Nothing here is random but for seeds that are arbitrary: numbers are compared with the same numbers got another way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers import beyond_repair as arms
from firstguess_papers import beyond_repair as item
from firstguess_papers.beyond_repair import HEAD, INSIDE, LEAKY, NAMES, PLAIN, RESIDUAL, SHALLOW, Setting
from firstguess_papers.claims import CLAIMS
from firstguess_papers.registry import items
from firstguess_papers.training_pieces import Arm, draws_of

from firstguess.data import Data
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_module import build
from firstguess.ensemble.seeds import member_seeds
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.training.curves import Accuracy, Curve, Curves

STEPS = np.array([0, 5, 10, 30, 100, 300])
FAST = {"rise": 10.0, "worst": 0.3, "end": 0.8}
SLOW = {"rise": 150.0, "worst": 0.0, "end": 0.7}


def _arm(*, rise: float, worst: float, end: float, networks: int = 10, noise: float = 0.004) -> Arm:
    """Held-out accuracy that is at 60 % at about step `rise`; the worst class has `worst` from step 10 on."""
    each = noise * np.sin(np.arange(networks))[:, None]
    score = np.minimum(end, 0.6 * STEPS / rise) + each
    low = np.where(STEPS >= 10, worst, 0.0) + np.abs(each)
    groups: dict[str | int, Any] = {"favoured": score, "others": score, 0: score, 1: low}
    curves = Curves(Curve(STEPS, score), Accuracy(STEPS, score, groups), Curve(STEPS, 1 - score))
    return Arm("made up", STEPS, draws_of(curves) | draws_of(curves, "test "), 0.5)


def _setting(changes: Mapping[str, Mapping[str, float]] | None = None, networks: int = 10) -> Setting:
    """Tuned arms as the shallow one, all others slow; `changes` by arm."""
    given: dict[str, dict[str, float]] = {name: dict(SLOW) for name in NAMES}
    given |= {name: dict(FAST) for name in (LEAKY, RESIDUAL, INSIDE, SHALLOW)}
    given[INSIDE]["worst"] = 0.5
    for name, change in (changes or {}).items():
        given[name] |= change
    made = {name: _arm(**values, networks=networks) for name, values in given.items()}
    return Setting("made up", "sgd", 0.6, made, dict.fromkeys(NAMES, 0.01), {})


def _verdicts(setting: Setting) -> list[str]:
    return [entry.verdict for entry in item.judged([setting], arms.stands(arms.networks(20)))]


def test_the_items_answer_their_claims() -> None:
    found = {name: items()[f"beyond/{name}"].claims for name in ("repair", "frontier", "imbalance", "absorption")}
    assert found == {"repair": ("B5", "B8"), "frontier": ("B4",), "imbalance": ("B8",), "absorption": ("B6",)}
    assert {claim for claims in found.values() for claim in claims} <= set(CLAIMS)


# -- Arms


def test_arms_stand_where_the_theory_puts_them() -> None:
    networks = arms.networks(20)
    assert list(networks) == list(NAMES)
    found = arms.stands(networks)
    for name in (LEAKY, RESIDUAL):  # theory.md §10: golden numbers of slope and branch scale
        assert found[name].gamma == pytest.approx(0.5, rel=1e-6)
        assert found[name].nonlinearity == pytest.approx(1.5, rel=1e-6)
    assert "leaky_relu(slope=0.679312" in str(networks[LEAKY])
    assert "residual(scale=0.26526" in str(networks[RESIDUAL])
    gain = math.pi / (math.pi - 1)
    assert found[SHALLOW].nonlinearity == pytest.approx(gain, rel=1e-9)
    assert found[arms.AFTER].nonlinearity == pytest.approx(gain**20, rel=1e-3)
    beta = 0.26526998
    assert found[INSIDE].nonlinearity == pytest.approx((1 + beta**2 * (gain - 1)) ** 20, rel=1e-4)
    assert found[HEAD].gamma == 0.0
    assert found[HEAD].nonlinearity == found[PLAIN].nonlinearity


def test_biases_are_there_to_be_trained_and_start_at_nothing() -> None:
    for network in arms.networks(3).values():
        own = arms.with_biases(network)
        assert sum(layer.weighted and not layer.paths for layer in every(own.layers)) >= 2
        model, bare = build(own, 7, width=6, seed=3), build(network, 7, width=6, seed=3)
        biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
        assert len(biases) == sum(p.ndim == 2 for p in model.parameters())
        assert max(float(b.detach().abs().max()) for b in biases) < 1e-5
        assert not any(name.endswith("bias") for name, _ in bare.named_parameters())


def test_a_centred_head_is_the_descriptions_member_with_its_mean_logits_taken_off() -> None:
    rng = np.random.default_rng(5)
    x = Data(rng.standard_normal((40, 1, 3, 4)).astype(np.float32), np.arange(40) % 10)
    network = arms.with_biases(Network.parse("2 x [dense(weight_var=2) > relu] > dense", classes=10))
    make = arms.centred_head(network, x, width=9)
    with IsolatedRandomness(int(member_seeds(11, 4, 5)[0])):
        model = make()
    plain = build(network, x.x.shape[1:], width=9, seed=11, member=4)
    points = torch.from_numpy(np.array(x.x))
    with torch.no_grad():
        moved, before = model(points), plain(points)
    rows = before - before.mean(1, keepdim=True)  # what all classes share is left: guesses do not see it
    centre = rows.mean(0)
    chance = float(rows.var(0).mean()) / 40  # what 40 points add to a squared center: γ is 0 there
    part = 1 - math.sqrt(chance / float(centre.square().mean()))
    torch.testing.assert_close(moved, before - part * centre, atol=1e-5, rtol=1e-5)


def test_parts_of_data_do_not_overlap() -> None:
    data = Data(np.arange(60, dtype=np.float32).reshape(30, 2), np.arange(30) % 3)
    parts = arms.split(data, (12, 8, 10), 2, 0x5917)
    assert [part.n for part in parts] == [12, 8, 10]
    rows = [tuple(row) for part in parts for row in part.x]
    assert len(set(rows)) == 30


def test_a_rate_is_picked_by_all_looks_and_a_network_that_diverged_counts() -> None:
    fine = _arm(rise=10.0, worst=0.3, end=0.8, noise=0.0)
    assert arms.merit(fine, (10, 30)) == pytest.approx((0.6 + 0.8) / 2)
    score = fine.curve("test accuracy").draws
    score[:5, 3:] = math.nan
    assert arms.merit(fine, (10, 30)) == pytest.approx((0.6 + (0.8 + 0.5) / 2) / 2)  # one of two classes
    with pytest.raises(ValueError, match="a merit for every rate"):
        arms.picked([0.1], [math.nan])


# -- Checks


def test_numbers_of_a_setting() -> None:
    setting = _setting()
    expected = math.log10(1 + 10.0)
    assert setting.times(SHALLOW).mean() == pytest.approx(expected, abs=0.01)
    assert setting.reaching(SHALLOW) == 1.0
    assert setting.early(INSIDE).mean() == pytest.approx(0.5, abs=0.01)
    more = replace(setting, first={INSIDE: _arm(rise=10, worst=0.1, end=0.8, networks=30)})
    assert len(more.early(INSIDE)) == 40
    assert more.early(INSIDE).mean() == pytest.approx((0.5 + 3 * 0.1) / 4, abs=0.01)
    lost = _setting()
    lost.arms[PLAIN].draws["test class 1"][:, 2:] = math.nan
    assert (lost.early(PLAIN) == 0.0).all()


def test_the_claims_hold_where_they_should() -> None:
    assert _verdicts(_setting({INSIDE: {"worst": 0.31}})) == ["holds"] * 8


@pytest.mark.parametrize(
    ("changes", "which", "verdict"),
    [
        ({RESIDUAL: {"rise": 25.0}}, 0, "does not hold"),
        ({LEAKY: {"rise": 25.0}}, 1, "does not hold"),
        ({RESIDUAL: {"rise": 4.0}}, 2, "does not hold"),
        ({RESIDUAL: {"end": 0.95}}, 2, "does not hold"),
        ({PLAIN: {"rise": 9.0}}, 3, "does not hold"),
        ({PLAIN: {"end": 0.9}}, 3, "holds with a limit"),
        ({RESIDUAL: {"worst": 0.6}}, 4, "does not hold"),
        ({SHALLOW: {"worst": 0.6}}, 4, "holds"),
        ({INSIDE: {"worst": 0.5}}, 5, "does not hold"),
        ({PLAIN: {"rise": 8.0}}, 6, "does not hold"),
        ({HEAD: {"end": 0.6}}, 7, "does not hold"),
        ({HEAD: {"worst": 0.2}}, 7, "holds with a limit"),
    ],
)
def test_the_claims_fall_where_they_should(changes: dict[str, Any], which: int, verdict: str) -> None:
    assert _verdicts(_setting(changes))[which] == verdict


def test_a_setting_in_which_nothing_learns_decides_nothing_of_speed() -> None:
    found = _verdicts(_setting({SHALLOW: {"end": 0.5}}))
    assert [found[k] for k in (0, 1, 2, 3, 6)] == ["not tested"] * 5
    assert set(_verdicts(_setting(networks=9))) == {"not tested"}  # nor do nine networks


def test_charts_and_rows() -> None:
    setting = _setting()
    charts = item.charts([setting])
    assert "Deep networks, repaired in six ways" in str(charts["arms"].to_dict())
    assert "with and without a centred head" in str(charts["head"].to_dict())
    lines = item.rows(setting, arms.stands(arms.networks(20)))
    assert [line["arm"] for line in lines] == list(NAMES)
    assert lines[-1]["worst_30"].value == pytest.approx(0.3, abs=0.01)
