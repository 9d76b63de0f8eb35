"""NORM's items on training: verdicts follow from curves, and opposite curves get the opposite verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import norm_large, norm_starts
from firstguess_papers.image_models import Model
from firstguess_papers.items import Entry, Outcome
from firstguess_papers.judging import UNDECIDED
from firstguess_papers.measured import decided
from firstguess_papers.norm import PLACES
from firstguess_papers.norm_large import AFTER, BEFORE
from firstguess_papers.norm_starts import NEUTRAL, NORMS, PREJUDICED
from firstguess_papers.registry import items
from firstguess_papers.running import Missing, Run
from firstguess_papers.training_pieces import Arm, draws_of

from firstguess.studies.store import Store
from firstguess.theory.training.curves import Accuracy, Curve, Curves

STEPS = np.array([0, 1, 3, 10, 32, 100])
ITEMS = {
    "N12": ("norm/fig2", "norm/fig2-size", "norm/fig-g3", "norm/fig-g5-starts"),
    "N13": ("norm/fig4", "norm/fig-g1", "norm/fig-g5-training"),
    "N14": ("norm/fig-g7",),
    "N15": ("norm/fig5", "norm/fig-g10"),
}


def made(speed: float, gap: float = 0.0, *, share: float = 0.5, floor: float = 0.5, real: bool = True) -> Arm:
    """Accuracy that rises as steps · speed from 0.5 to 1, classes `gap` apart at all steps but the first, which has it
    in full; the largest share falls from `share` to `floor` by the speed. Networks differ by some thousandths."""
    rng, networks = np.random.default_rng(7), 20
    paces = speed * (1 + 0.005 * rng.standard_normal((networks, 1)))
    learnt = 1 - np.exp(-paces * STEPS)
    accuracy = 0.5 + 0.5 * learnt
    largest = floor + (share - floor) * (1 - learnt)
    apart = np.full_like(accuracy, gap) + 0.001 * rng.standard_normal(accuracy.shape)
    first, rest = accuracy + apart / 2, accuracy - apart / 2
    groups: dict[str | int, Any] = {"favoured": first, "others": rest, 0: first, 1: rest}
    curves = Curves(Curve(STEPS, largest), Accuracy(STEPS, accuracy, groups), Curve(STEPS, 1 - accuracy))
    about = {"bias": 0.0 if share == 0.5 else 30.0, "signal": 1.0, "overshoot": 0.1}
    draws = draws_of(curves) | draws_of(curves, "test ")
    return Arm("made", STEPS, draws, 0.6, real, drawn=networks, about=about)


def _both(neutral: float, prejudiced: float, gap: float, *, predicted: float | None = None) -> dict[str, Any]:
    arms = {NEUTRAL: made(neutral), PREJUDICED: made(prejudiced, gap, share=0.97)}
    known = {NEUTRAL: made(neutral, real=False), PREJUDICED: made(predicted or prejudiced, real=False)}
    return norm_starts.compared(arms, known)


def _optimizers(adam: dict[str, Any], descent: dict[str, Any]) -> list[Entry]:
    return decided(norm_starts.fig2, found={"Adam": adam, norm_starts.DESCENT: descent})


def _verdicts(entries: Any) -> list[str]:
    return [entry.verdict for entry in entries]


def test_claims_on_training_have_their_items() -> None:
    for claim, ids in ITEMS.items():
        for name in ids:
            assert items()[name].claims == (claim,)


def test_an_optimizer_effect_is_seen_as_one() -> None:
    adam, descent = _both(0.05, 0.03, 0.3), _both(0.05, 0.05, 0.0)
    assert _verdicts(_optimizers(adam, descent)) == ["holds with a limit"] * 2 + ["holds"] * 2
    assert _optimizers(adam, descent)[0].why == "not so: gradient descent"
    unknown = _optimizers(adam, _both(0.05, 1e-4, 0.0))[0]  # prejudiced starts never learn
    assert (unknown.verdict, unknown.why) == ("holds with a limit", f"{UNDECIDED}: gradient descent")


def test_the_claim_holds_where_both_optimizers_agree() -> None:
    both = _both(0.05, 0.03, 0.3)
    assert _verdicts(_optimizers(both, both)) == ["holds", "holds", "does not hold", "holds"]


def test_opposite_starts_do_not_hold() -> None:
    adam = _both(0.03, 0.05, -0.2, predicted=0.01)
    assert _verdicts(_optimizers(adam, _both(0.05, 0.05, 0.0))) == ["does not hold"] * 4


def test_starts_that_never_learn_are_not_tested() -> None:
    never = _both(0.05, 1e-4, 0.3)
    assert _verdicts(_optimizers(never, never)) == ["not tested"] * 4


def _placed(*, before: float, after: float, batch: float = 0.05, layer: float = 0.05) -> dict[str, Any]:
    """Shares at the start before and after; paces of BatchNorm and LayerNorm before."""
    arms = {"no norm": made(0.05, 0.6, share=before)}
    for norm, pace in zip(NORMS, (batch, layer), strict=True):
        arms[f"{norm} before"] = made(pace, 2 * before - 1, share=before)
        arms[f"{norm} after"] = made(0.05, 2 * after - 1, share=after)
    return norm_starts.placed(*({place: arms[place] for place in PLACES} for _ in range(2)))


def _places(*found: dict[str, Any]) -> list[Entry]:
    return decided(norm_starts.fig4, by_depth=dict(zip((1, 5), found, strict=False)))


def test_norms_after_behave_as_neutral_and_layernorm_gains_most() -> None:
    found = _placed(before=0.8, after=0.5, layer=0.03), _placed(before=0.9, after=0.5, layer=0.02)
    assert _verdicts(_places(*found)) == ["holds"] * 4


def test_batchnorm_that_gains_more_contradicts_it() -> None:
    third = _places(_placed(before=0.8, after=0.5, batch=0.02))[2]
    assert third.verdict == "does not hold"
    assert "no bias mode" in third.why


def test_norms_the_wrong_way_round_do_not_hold() -> None:
    assert _verdicts(_places(_placed(before=0.5, after=0.8)))[:2] == ["does not hold", "does not hold"]


def _points(*found: tuple[float, float]) -> list[str]:
    """Verdicts of 4000 and of 400 points: paces of prejudiced starts, and gaps between classes."""
    arms = {
        n: {NEUTRAL: made(0.05), PREJUDICED: made(prejudiced, gap, share=0.99)}
        for n, (prejudiced, gap) in zip((4000, 400), found, strict=True)
    }
    return _verdicts(decided(norm_starts.fig_g7, by_points=arms, counts=(4000, 400), depth=20))


def test_overlap_with_many_points_only_is_a_limit() -> None:
    assert _points((0.05, 0.5), (0.02, 0.5)) == ["holds", "holds with a limit"]


def test_curves_together_and_accuracies_apart_contradict_it() -> None:
    assert _points((0.02, 0.0), (0.05, 0.0)) == ["does not hold", "does not hold"]


def _setting(before: float, after: float, *, shares: tuple[float, float] = (0.9, 0.5)) -> dict[str, Arm]:
    return {BEFORE: made(before, share=shares[0], floor=0.1), AFTER: made(after, share=shares[1], floor=0.1)}


def test_large_models_that_are_faster_with_the_norm_after() -> None:
    base, wide = _setting(0.01, 0.02), _setting(0.02, 0.04)
    assert _verdicts(norm_large.judged("Mixer", base, wide, AFTER)) == ["holds", "holds", "holds"]
    slow = _setting(0.02, 0.01, shares=(0.5, 0.9))
    assert _verdicts(norm_large.judged("Mixer", slow, wide, AFTER)) == ["does not hold"] * 3
    assert _verdicts(norm_large.judged("Mixer", base, slow, AFTER)) == ["holds with a limit"] * 3


def test_shifted_data_slow_both_and_part_the_places() -> None:
    none, most = _setting(0.03, 0.04), _setting(0.005, 0.02)
    assert _verdicts(norm_large.shifted({0.0: none, 6.0: most})) == ["holds", "holds"]
    assert _verdicts(norm_large.shifted({0.0: most, 6.0: none})) == ["does not hold", "does not hold"]


def test_looks_have_half_and_end() -> None:
    for steps in (6, 10, 64, 160):
        found = norm_large.looks(steps)
        assert {0, 1, steps // 2, steps} <= set(found)
        assert found == sorted(set(found))


def test_patches_change_a_mixers_tokens_and_its_name() -> None:
    torch = pytest.importorskip("torch")
    usual, coarse = (Model("Mixer", "Mixer", (8,), (1,), 10, patch=patch) for patch in (4, 8))
    assert "patches" not in usual.name("before")  # stored pieces keep their address
    assert coarse.name("before").endswith("patches of 8")
    for model in (usual, coarse):
        assert model.factory("after")()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def _run(name: str, folder: Path) -> Run:
    return Run(items()[name], True, Store(folder / "pieces"), data_dir=folder)


@pytest.mark.parametrize("name", ["norm/fig-g3", "norm/fig-g5-starts", "norm/fig-g1", "norm/fig-g5-training"])
def test_items_are_skipped_without_images(name: str, tmp_path: Path) -> None:
    with pytest.raises(Missing):
        items()[name].outcome(_run(name, tmp_path))


def _tiny(name: str, folder: Path, **sizes: Any) -> Outcome:
    """A quick run of an item at sizes of a test."""
    return items()[name].outcome(Run(items()[name], True, Store(folder / "pieces"), changed=sizes))


def test_a_tiny_item_runs_from_data_to_figure(tmp_path: Path) -> None:
    found = _tiny("norm/fig2", tmp_path, points=20, d=10, inits=2, draws=4, adam=1e-3, batch=16, steps=5, gd_steps=5)
    assert _verdicts(found.entries) == ["not tested"] * 4  # two networks decide nothing
    assert {"trained", "predicted"} == set(found.tables["curves"]["source"])
    shares = found.tables["curves"]
    starts = [
        mean
        for arm, curve, step, mean in zip(*(shares[k] for k in ("arm", "curve", "step", "mean")), strict=True)
        if "prejudiced" in arm and curve == "largest" and step == 0
    ]
    assert len(starts) == 4
    assert min(starts) >= 0.9
    assert "starts" in found.charts


def test_tiny_places_run_from_data_to_figure(tmp_path: Path) -> None:
    found = _tiny("norm/fig4", tmp_path, n=20, d=10, lr=1e-3, steps=4, inits=2, draws=4, deep=2, width=8)
    assert set(_verdicts(found.entries)) == {"not tested"}
    assert set(found.tables["curves"]["place"]) == set(PLACES)
