"""Items of NORM: their arithmetic (both BatchNorm estimators, paired errors), the moved norms, items without data.

Random checks have a false-alarm rate below 1e-6 each: 5.2 standard errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import norm, norm_depth, norm_large
from firstguess_papers.execute import run_item
from firstguess_papers.image_models import Model, Place
from firstguess_papers.items import Item
from firstguess_papers.judging import Number
from firstguess_papers.mf import power_law
from firstguess_papers.registry import items
from scipy import stats

import firstguess as fg
from firstguess.ensemble.measurement import Measurement

ALARM = 5.2


def test_every_claim_of_the_paper_has_an_item() -> None:
    answered = {claim for item in items().values() if item.paper == "norm" for claim in item.claims}
    assert answered == {f"N{k}" for k in range(1, 22)}


def test_leaving_out_by_arithmetic_is_leaving_out() -> None:
    rng = np.random.default_rng(1)
    u = rng.standard_normal((3, 7, 4)) * 2.0 + 1.0
    usual, other = norm.normalized(u)
    for batch in range(3):
        for point in range(7):
            rest = np.delete(u[batch], point, axis=0)
            expected = (u[batch, point] - rest.mean(axis=0)) / rest.std(axis=0, ddof=1)
            np.testing.assert_allclose(other[batch, point], expected, rtol=1e-10)
    np.testing.assert_allclose(usual.mean(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.square(usual).mean(axis=1), 1.0, rtol=1e-12)


def test_law_behind_batches_of_four_is_uniform() -> None:
    t = np.array([0.0, 0.5, 1.0, 1.7, 2.0])
    # û²/3 ~ Beta(½, 1): û is uniform on [−√3, √3]
    np.testing.assert_allclose(norm.beyond("usual", 4, t), np.maximum(1 - t / np.sqrt(3), 0.0), atol=1e-12)


def test_law_of_large_batches_is_gaussian() -> None:
    for kind in norm.KINDS:
        assert float(norm.beyond(kind, 20_000, 2.0)) == pytest.approx(2 * stats.norm.sf(2.0), rel=1e-3)


@pytest.mark.parametrize("kind", norm.KINDS)
@pytest.mark.parametrize("batch", [5, 16])
def test_exact_laws_are_those_of_gaussian_batches(kind: str, batch: int) -> None:
    u = np.random.default_rng(batch).standard_normal((20_000, batch, 1))
    values = norm.normalized(u)[norm.KINDS.index(kind)][:, 0, 0]  # one a batch: independent
    for t in (0.5, 1.5, 1.9):
        p = float(norm.beyond(kind, batch, t))
        seen = float((np.abs(values) > t).mean())
        assert abs(seen - p) < ALARM * np.sqrt(p * (1 - p) / len(values))


def test_bins_of_the_exact_laws_hold_all_mass_within_reach() -> None:
    for kind in norm.KINDS:
        inside = float((norm.in_bins(kind, 16) * np.diff(norm.EDGES)).sum())
        assert inside == pytest.approx(1 - float(norm.beyond(kind, 16, 4.0)), abs=1e-12)


def _measured(first: np.ndarray[Any, Any], points: int) -> Measurement:
    return Measurement(fg.EmpiricalGuesses(np.stack([first, 1 - first], axis=1), points), layers=())


def test_paired_difference_is_the_jackknife() -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 101, 40) / 100
    b = np.clip(a + rng.integers(-5, 6, 40) / 100, 0, 1)
    found = norm.paired(_measured(a, 100), _measured(b, 100))
    left = np.array([np.delete(a, i).std(ddof=1) - np.delete(b, i).std(ddof=1) for i in range(40)])
    assert found.value == pytest.approx(a.std(ddof=1) - b.std(ddof=1))
    assert found.error == pytest.approx(np.sqrt(39 / 40 * np.square(left - left.mean()).sum()))


def test_beyond_even_takes_the_noise_of_few_points_off() -> None:
    for points in (50, 1000):
        drawn = fg.EmpiricalGuesses(fg.Guesses(0.466942, 2, points).sample(4000, seed=3), points)
        found = norm.beyond_even(Measurement(drawn, layers=()))
        # Var Ĝ = Var G (1 − 1/n) + 1/4n, so what is left is √(Var G (1 − 1/n))
        assert abs(found.value - norm.ONE_LAYER * np.sqrt(1 - 1 / points)) < ALARM * found.error
    even = fg.EmpiricalGuesses(fg.Guesses(0.0, 2, 100).sample(4000, seed=4), 100)
    assert norm.beyond_even(Measurement(even, layers=())).value < norm.NEUTRAL / 3
    assert fg.predict(norm.network("no norm", 1)).guesses.std() == pytest.approx(norm.ONE_LAYER, abs=1e-6)


def test_exponent_of_a_power_law() -> None:
    found, _ = power_law((3.0, 48.0), (Number(2.0, 0.02), Number(0.5, 0.005)))
    assert found.value == pytest.approx(-0.5)
    assert found.error == pytest.approx(0.01 * np.sqrt(2) / np.log(16))


def _models() -> list[tuple[Model, Place]]:
    resnet = Model("ResNet", "ResNet", (8, 8, 8, 16), (1, 1, 1, 1), 7)
    basic = Model("ResNet", "ResNet", (8, 8), (1, 1), 7, "basic")
    swin, mixer = Model("Swin", "Swin", (8,), (1, 1), 7), Model("Mixer", "Mixer", (8,), (2,), 7)
    both: list[tuple[Model, Place]] = [(m, "after") for m in (resnet, basic, swin, mixer)]
    return [*both, (resnet, norm_large.EVERYWHERE), (basic, norm_large.EVERYWHERE)]


@pytest.mark.parametrize(("model", "place"), _models(), ids=lambda x: x if isinstance(x, str) else x.kind)
def test_moving_norms_keeps_weights_and_shapes(model: Model, place: Place) -> None:
    pytest.importorskip("transformers")
    import torch
    from torch import nn

    made: list[nn.Module] = []
    for where in ("before", place):
        with torch.random.fork_rng():
            torch.manual_seed(5)
            made.append(model.factory(where)().eval())  # type: ignore[arg-type]
    weights = [[m.weight for m in net.modules() if isinstance(m, (nn.Linear, nn.Conv2d))] for net in made]
    assert len(weights[0]) == len(weights[1])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        for net in made:
            out: Any = net(x)
            assert getattr(out, "logits", out).shape == (3, 7)


def test_moved_batchnorms_follow_the_activation() -> None:
    pytest.importorskip("transformers")
    import torch

    resnet = Model("ResNet", "ResNet", (8, 16), (1, 1), 5)
    for place, behind_sums in (("after", False), (norm_large.EVERYWHERE, True)):
        net: Any = resnet.factory(place)().train()  # type: ignore[arg-type]
        means: dict[str, float] = {}
        for name, module in net.named_modules():
            if type(module).__name__ in ("ResNetConvLayer", "ResNetBottleNeckLayer"):
                module.register_forward_hook(
                    lambda _m, _i, out, name=name, means=means: means.__setitem__(
                        name, float(out.mean(dim=(0, 2, 3)).abs().max())
                    )
                )
        with torch.no_grad():
            net(torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(7)))
        blocks = [m for name, m in means.items() if name.endswith("layers.0")]
        inside = [m for name, m in means.items() if name.endswith(("layer.0", "layer.1", "embedder"))]
        assert max(inside) < 1e-5  # every channel has mean 0 over the batch: the norm came last
        assert (max(blocks) < 1e-5) is behind_sums


@pytest.mark.parametrize("item", [norm.fig3_cifar10, norm.fig_g5, norm_large.shift], ids=lambda i: i.id)
def test_without_data_items_are_skipped_with_a_reason(item: Item, tmp_path: Path) -> None:
    record = run_item(item, tmp_path, quick=True, data_dir=tmp_path)
    assert record.status == "skipped"
    assert record.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "item", [norm.fig3, norm_depth.depth, norm_depth.batchnorm_layernorm, norm_depth.rmsnorm, norm.fig_e1],
    ids=lambda i: i.id,
)  # fmt: skip
def test_items_without_data_decide_in_a_quick_run(item: Item, tmp_path: Path) -> None:
    record = run_item(item, tmp_path, quick=True)
    assert record.status == "done"
    assert {entry.verdict for entry in record.entries} <= {"holds", "holds with a limit"}
