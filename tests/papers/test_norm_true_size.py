"""ResNet101 and Swin-L in plain PyTorch: the library's numbers at small sizes, true sizes counted, arms of an item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from firstguess_papers import image_models, norm_large
from firstguess_papers.execute import run_item
from firstguess_papers.image_models import Model, Place, ResNet, Swin
from firstguess_papers.running import Run

from firstguess.data import Data

IMAGES = torch.randn(6, 3, 64, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def _largest_difference(theirs: torch.Tensor, ours: torch.Tensor) -> float:
    return float((theirs - ours).abs().max() / theirs.std())


@pytest.mark.parametrize("place", ["before", "after", "after, also behind the sums"])
def test_resnet_is_the_librarys(place: Place) -> None:
    pytest.importorskip("transformers")
    model = Model("ResNet", "ResNet", (16, 32, 64, 128), (2, 1, 3, 1), 7)
    net: Any = model.factory(place)().double().train()
    ours = ResNet(model.depths, model.widths, 16, 7)
    weights = [w.double() for w in ours.draw("the library's own", 1)]
    given = iter(weights)
    with torch.no_grad():
        net.resnet.embedder.embedder.convolution.weight.copy_(next(given))
        for stage in net.resnet.encoder.stages:
            for block in stage.layers:
                for layer in block.layer:
                    layer.convolution.weight.copy_(next(given))
                if hasattr(block.shortcut, "convolution"):
                    block.shortcut.convolution.weight.copy_(next(given))
        net.classifier[1].weight.copy_(next(given))
        net.classifier[1].bias.copy_(next(given))
        assert next(given, None) is None
        assert _largest_difference(net(IMAGES).logits, ours.logits(IMAGES, weights, place)) < 1e-9


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("window", [3, 4])  # 3 does not divide the maps: they are padded
def test_swin_is_the_librarys(place: Place, window: int) -> None:
    pytest.importorskip("transformers")
    from torch import nn
    from transformers import SwinConfig, SwinForImageClassification

    config: Any = SwinConfig(
        image_size=64, patch_size=4, embed_dim=16, depths=[2, 2, 2], num_heads=[2, 4, 8], window_size=window,
        drop_path_rate=0.0,
    )  # fmt: skip
    config.num_labels = 7
    net: Any = SwinForImageClassification(config).double().eval()
    ours = Swin((2, 2, 2), 16, (2, 4, 8), window, 64, 7)
    weights = [20 * w.double() if w.dim() == 2 and w.shape[0] == (2 * window - 1) ** 2 else w.double()
               for w in ours.draw("Kaiming", 1)]  # fmt: skip # so that positions matter
    given = iter(weights)
    with torch.no_grad():
        for name, value in net.named_parameters():
            value.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        net.swin.embeddings.patch_embeddings.projection.weight.copy_(next(given))
        for stage in net.swin.encoder.layers:
            for block in stage.blocks:
                attention = block.attention
                (table,) = [v for n, v in attention.named_parameters() if "position" in n]
                table.copy_(next(given))
                for into, rows in zip((attention.q_proj, attention.k_proj, attention.v_proj), next(given).chunk(3)):  # noqa: B905
                    into.weight.copy_(rows)
                attention.o_proj.weight.copy_(next(given))
                block.mlp.fc1.weight.copy_(next(given))
                block.mlp.fc2.weight.copy_(next(given))
                if place == "after":
                    block.layernorm_after = nn.Identity()
                    behind = nn.LayerNorm(block.mlp.fc1.out_features).double()
                    block.mlp.activation_fn = nn.Sequential(nn.GELU(), behind)
            if stage.downsample is not None:
                stage.downsample.reduction.weight.copy_(next(given))
        net.classifier.weight.copy_(next(given))
        assert next(given, None) is None
        assert _largest_difference(net(IMAGES).logits, ours.logits(IMAGES, weights, place)) < 1e-9


def test_true_sizes() -> None:
    """As many weights as the library's configurations of these two have (those of the norms and biases left out)."""
    pytest.importorskip("transformers")
    from transformers import ResNetConfig, ResNetForImageClassification, SwinConfig, SwinForImageClassification

    resnet: Any = ResNetConfig(depths=[3, 4, 23, 3])
    swin: Any = SwinConfig(image_size=64, embed_dim=192, depths=[2, 2, 18, 2], num_heads=[6, 12, 24, 48])
    resnet.num_labels = swin.num_labels = 200
    with torch.device("meta"):
        theirs = [ResNetForImageClassification(resnet), SwinForImageClassification(swin)]
    rest = (200, -18 * 24 * (13**2 - 7**2) - 2 * 48 * (13**2 - 3**2))  # a head's biases; positions that never occur
    for net, size, more in zip(theirs, _counted(), rest, strict=True):
        assert size == sum(p.numel() for p in net.parameters() if p.dim() > 1) + more


def _counted() -> list[int]:
    """Sizes without drawing: 0.24 thousand million normals are a second and a gigabyte."""
    found: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_models, "_drawing", lambda seed: lambda shape, deviation: torch.empty(shape, device="meta"))
        for net in (ResNet(), Swin()):
            found.append(sum(w.numel() for w in net.draw("Kaiming", 0)))
    return found


def test_kaiming_keeps_its_variances() -> None:
    weights = ResNet((1, 1), (64, 128), 32, 200).draw("Kaiming", 5)
    for w in weights[:-1]:
        fan = w[0].numel()
        assert abs(float(w.var()) * fan / 2 - 1) < 5 * (2 / w.numel()) ** 0.5  # 5 s.e.: 6e-7 a weight
    assert not weights[-1].any()


def test_one_network_is_read_as_a_plain_loop_does() -> None:
    net = Swin((2, 2), 8, (2, 4), 7, 64, 5)
    x = IMAGES.float().repeat(20, 1, 1, 1) + torch.randn(120, 3, 64, 64, generator=torch.Generator().manual_seed(4))
    found = norm_large.measure_places(net, x, ("before", "after"), "Kaiming", 9)
    weights = net.draw("Kaiming", 9)
    for index, place in enumerate(("before", "after")):
        u = net.logits(x, weights, place).double().numpy()  # type: ignore[arg-type] # all at once; `measured` cuts
        winners = [max(range(5), key=lambda c, row=row: row[c]) for row in u]
        assert found["fractions"][index] == pytest.approx([winners.count(c) / 120 for c in range(5)])
        means = [sum(u[:, c]) / 120 for c in range(5)]
        spread = sum(sum((u[a, c] - means[c]) ** 2 for a in range(120)) / 119 for c in range(5)) / 5
        middle = sum(means) / 5
        assert found["spread"][index] == pytest.approx(spread, rel=1e-4)
        center = sum((m - middle) ** 2 for m in means) / 4 - spread / 120
        assert found["center"][index] == pytest.approx(center, rel=1e-4)


def test_gamma_of_an_ensemble_has_the_error_of_its_spread() -> None:
    """1000 ensembles of 50 pairs: the estimates scatter as much as they say (15 % is 6.7 s.e. of a deviation)."""
    rng = np.random.default_rng(8)
    found = [norm_large.ratio(rng.gamma(4, 0.5, 50), rng.gamma(4, 0.25, 50)) for _ in range(1000)]
    scatter = float(np.std([one.value for one in found]))
    assert np.mean([one.error for one in found]) == pytest.approx(scatter, rel=0.15)
    assert np.mean([one.value for one in found]) == pytest.approx(2.0, abs=6 * scatter / 30)


def test_the_full_item_goes_through_with_small_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = Data(np.random.default_rng(1).standard_normal((40, 3, 32, 32)))
    monkeypatch.setattr(Run, "data", lambda *_a, **_k: images)
    monkeypatch.setattr(norm_large, "ResNet", lambda classes: ResNet((1, 1), (16, 32), 8, classes))
    monkeypatch.setattr(norm_large, "Swin", lambda side, classes: Swin((1, 1), 8, (2, 4), 7, side, classes))
    record = run_item(norm_large.fig_g9, tmp_path)
    assert record.status == "done", record.reason
    assert [entry.claim for entry in record.entries] == ["N10", "N10"]
    assert "Swin-L norm after, the library's own" in record.entries[0].measured
    assert len(list((tmp_path / "full/norm/fig-g9/pieces").iterdir())) == 24 + 16 + 10
