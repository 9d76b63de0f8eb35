"""The items of MF: their simulations against exact values and against code that shares nothing with them.

Statistical checks allow 5.5 standard errors of at least 300 independent networks: a false alarm below 2e-7 each.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from firstguess_papers import mf
from firstguess_papers.claims import CLAIMS
from firstguess_papers.judging import Number, average, jackknife
from firstguess_papers.mf_gradients import growth, stored_gradients
from firstguess_papers.mf_phases import approach
from firstguess_papers.mf_vit import EXPECTED, vit
from firstguess_papers.models import VanillaViT, block_gradients
from firstguess_papers.registry import items
from firstguess_papers.running import Missing, Run

from firstguess.studies.store import Store

RELU = mf.Setting("ReLU", "relu", 2.0, 0.0)

ALL, FAVOURED, OTHERS = range(3)  # columns of `block_gradients`


def test_items_answer_every_claim_of_the_paper_before_training():
    claims = {claim for item in items().values() if item.paper == "mf" for claim in item.claims}
    assert claims >= {f"M{i}" for i in range(1, 10)}
    assert claims <= {name for name in CLAIMS if name.startswith("M")}


def test_settings_are_multiples_of_the_critical_weight_variance():
    # ReLU: 2 exactly; tanh at σb² = 0.1: theory.md §5
    by_name = {s.name: s.weight_var for s in mf.mf_settings()}
    assert by_name["ReLU, chaotic"] == 2.5
    assert by_name["tanh, edge"] == pytest.approx(1.986073, abs=1e-6)
    assert by_name["tanh, neutral chaos"] == pytest.approx(2.5 * 1.986073, abs=5e-6)


def test_a_member_does_not_depend_on_the_others():
    options = {"width": 20, "depth": 3, "seed": 5, "points": 6, "pairs": 2}
    every = mf.simulate([RELU], members=range(4), **options)
    assert np.array_equal(every[2:], mf.simulate([RELU], members=range(2, 4), **options))
    assert not np.array_equal(every[0], every[1])


@pytest.mark.parametrize("dimensions", [None, 50])
def test_both_orders_of_averaging_give_the_exact_first_layers(dimensions: int | None):
    # One hidden layer, q = σw² = 2 before it: E φ(u)² = 1 and (E φ(u))² = 1/π, at every width if inputs are
    # orthogonal. Blobs in 50 dimensions: q_aa is still exact.
    stats = mf.simulate(
        [RELU], width=30, depth=1, members=range(400), seed=1, points=8, pairs=4, dimensions=dimensions
    )[:, 0]
    expected = [[0.0, 2.0, 2.0, 0.0], [2 / math.pi, 2 - 2 / math.pi, 2.0, 2 / math.pi]]
    for layer, row in enumerate(expected):
        for k, value in enumerate(row):
            if dimensions is not None and layer == 1 and k != mf.Q_AA:
                continue
            number = average(stats[:, layer, k])
            assert abs(number.value - value) <= 5.5 * number.error, (layer, k, number)


def test_biases_are_shared_by_all_inputs_of_a_network():
    biased = mf.Setting("tanh", "tanh", 1.0, 0.3)
    stats = mf.simulate([biased], width=30, depth=0, members=range(400), seed=2, points=8, pairs=2)[:, 0, 0]
    for k, value in {mf.CENTER: 0.3, mf.SPREAD: 1.0, mf.Q_AA: 1.3, mf.Q_AB: 0.3}.items():
        number = average(stats[:, k])
        assert abs(number.value - value) <= 5.5 * number.error, (k, number)


def test_errors_from_leaving_one_out_are_those_of_known_laws():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000)
    assert jackknife(np.std, x).error == pytest.approx(1 / math.sqrt(2 * 4000), rel=0.15)
    ratio = mf.ratio(x + 10, np.full(4000, 2.0))
    assert ratio.error == pytest.approx(0.5 * x.std(ddof=1) / math.sqrt(4000), rel=1e-6)


def test_a_power_law_weighs_points_by_their_errors():
    x = [1.0, 10.0, 100.0]
    values = [Number(1.0, 1e-4), Number(0.1, 1e-5), Number(5.0, 4.0)]  # the last says nothing
    exponent, factor = mf.power_law(x, values)
    assert exponent.value == pytest.approx(-1.0, abs=1e-3)
    assert factor == pytest.approx(1.0, abs=1e-3)


def test_simulations_are_kept(tmp_path: Path):
    def stats() -> tuple[np.ndarray, Run]:
        run = Run(approach, quick=True, store=Store(tmp_path))
        return mf.stored(run, [RELU], width=10, depth=2, members=5, chunk=2, points=4, pairs=1), run

    first, run = stats()
    assert len(run.computed) == 3
    second, run = stats()
    assert (len(run.computed), len(run.reused)) == (0, 3)
    assert np.array_equal(first, second)
    assert first.shape == (5, 1, 3, 5)


def test_gradients_are_kept_with_their_growth(tmp_path: Path):
    import firstguess as fg

    run = Run(approach, quick=True, store=Store(tmp_path))
    x = fg.data.blob(20, 30)
    text = "6 x [dense(weight_var=1) > relu] > dense(weight_var=1)"
    one, two = (stored_gradients(run, text, x, label="test", inits=4, width=50) for _ in range(2))
    assert run.computed == ["gradients of test"]
    assert one == two
    found = growth(one)
    assert one.growth.low < found.value < one.growth.high
    assert 0.3 < found.value < 0.7  # σw²/2 = ½ in the wide limit


def _tiny(weight_var: float = EXPECTED, member: int = 0) -> VanillaViT:
    return VanillaViT(width=12, blocks=3, classes=4, weight_var=weight_var, seed=3, member=member).double()


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(10, 3, 32, 32, generator=generator, dtype=torch.float64)
    return images, torch.arange(10) % 4


def test_block_gradients_are_those_of_the_cross_entropy():
    images, labels = _images()
    found = block_gradients(_tiny(), images, labels)
    *tokens, logits = _tiny().states(images)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    gradients = torch.autograd.grad(loss, tokens)
    favoured = labels == torch.bincount(logits.argmax(1), minlength=4).argmax()
    for row, g in zip(found, gradients, strict=True):
        squares = (g**2).mean(dim=(1, 2))
        assert row[ALL] == pytest.approx(float(squares.mean()), rel=1e-9)
        assert row[FAVOURED] == pytest.approx(float(squares[favoured].mean()), rel=1e-9)
        assert row[OTHERS] == pytest.approx(float(squares[~favoured].mean()), rel=1e-9)


def test_transformers_of_one_member_differ_by_scale_only():
    one, four = _tiny(1.0), _tiny(4.0)
    for a, b in zip(one.parameters(), four.parameters(), strict=True):
        assert torch.allclose(2 * a, b, rtol=1e-6)  # drawn in float32
    assert not torch.equal(next(_tiny(member=1).parameters()), next(one.parameters()))


def test_patches_see_their_own_pixels():
    images, _ = _images()
    changed = images.clone()
    changed[:, :, :4, 4:8] += 1.0  # the second patch
    one, two = (torch.nn.functional.unfold(x, 4, stride=4).transpose(1, 2) for x in (images, changed))
    assert (one != two).any(dim=2).all(dim=0).nonzero().flatten().tolist() == [1]


def test_the_transformer_is_skipped_without_images(tmp_path: Path):
    run = Run(vit, quick=True, store=Store(tmp_path), data_dir=tmp_path)
    with pytest.raises(Missing):
        vit.outcome(run)


@pytest.mark.slow
def test_an_item_runs_and_judges(tmp_path: Path):
    outcome = approach.outcome(Run(approach, quick=True, store=Store(tmp_path)))
    assert [e.verdict for e in outcome.entries] == ["holds with a limit"]
