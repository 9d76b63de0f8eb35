"""Covariances of images by position: exact where they can be summed by hand, the closed form on homogeneous images, and
real convolutional networks within standard errors.

Random checks allow 5.6 standard errors, 2·10⁻⁸ for one Gaussian number: below 10⁻⁶ for the 25 numbers here. Room for
finite width is stated where it is given. No seed was picked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.theory.kernel.propagation import image_kernel, kernel

Z = 5.6


def images(n: int, channels: int, height: int, width: int, seed: int = 0, shift: float = 0.3) -> Any:
    return np.random.default_rng(seed).standard_normal((n, channels, height, width)) + shift


def run(text: str, x: Any, **options: Any) -> Any:
    return image_kernel(fg.Network.parse(text), x, **options)


def patches(x: Any, kernel: int, stride: int, padding: int) -> Any:
    """(n, outputs, kernel²·channels): what every output position sees."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], windows.shape[2] * windows.shape[3], -1)


def relu(k: Any, q: Any) -> Any:
    """Cho & Saul (2009), written out."""
    scale = np.sqrt(q[:, None] * q[None, :])
    c = np.clip(k / scale, -1, 1)
    return scale * (np.sqrt(1 - c * c) + c * (np.pi - np.arccos(c))) / (2 * np.pi)


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding"), [(1, 1, 0), (3, 1, 1), (3, 2, 1), (2, 3, 0), (5, 2, 4), (3, 1, 3)]
)
def test_the_first_convolution_is_the_product_of_patches(kernel_size: int, stride: int, padding: int) -> None:
    x = images(5, 2, 5, 7)
    seen = patches(x, kernel_size, stride, padding)
    n, outputs, fan_in = seen.shape
    flat = seen.reshape(n * outputs, fan_in)
    pre = 2.0 * flat @ flat.T / fan_in + 0.3
    conv = f"conv(weight_var=2, bias_var=0.3, kernel={kernel_size}, stride={stride}, padding={padding})"
    mean = relu(pre, pre.diagonal()).reshape(n, outputs, n, outputs).diagonal(axis1=1, axis2=3).mean(axis=2)
    found = run(f"{conv} > relu > dense(weight_var=1.5, bias_var=0.1)", x)
    np.testing.assert_allclose(found.covariance, 1.5 * mean + 0.1, rtol=1e-7)
    pairs = pre.reshape(n, outputs, n, outputs).diagonal(axis1=1, axis2=3).mean(axis=2)
    off = pairs[~np.eye(n, dtype=bool)].mean()
    assert found.layers[0].q == pytest.approx(np.trace(pairs) / n)
    assert found.layers[0].q_ab == pytest.approx(off)


def test_a_second_convolution_sums_over_windows_pair_by_pair() -> None:
    x = images(3, 2, 5, 4)
    first = patches(x, 3, 1, 1).reshape(3 * 20, -1)
    pre = first @ first.T / 18
    post = relu(pre, pre.diagonal()).reshape(3, 5, 4, 3, 5, 4)
    padded = np.pad(post, ((0, 0), (1, 1), (1, 1), (0, 0), (1, 1), (1, 1)))
    summed = sum(padded[:, i : i + 5, j : j + 4, :, i : i + 5, j : j + 4] for i in range(3) for j in range(3))
    mean = (2.0 / 9 * summed).reshape(3, 20, 3, 20).diagonal(axis1=1, axis2=3).mean(axis=2)
    found = run("conv(padding=1) > relu > conv(weight_var=2, padding=1) > dense", x)
    np.testing.assert_allclose(found.covariance, mean, rtol=1e-7)


def test_average_pools_and_norms_by_position() -> None:
    x = images(4, 3, 7, 7)  # 7 = 3·2 + 1: the last row and column are left out
    k = (x.transpose(0, 2, 3, 1).reshape(196, 3) @ x.transpose(0, 2, 3, 1).reshape(196, 3).T / 3).reshape((4, 7, 7) * 2)
    pooled = k[:, :6, :6, :, :6, :6].reshape(4, 3, 2, 3, 2, 4, 3, 2, 3, 2).mean(axis=(2, 4, 7, 9)).reshape((4, 9) * 2)
    found = run("avgpool(4) > conv(kernel=1) > dense", x).covariance
    np.testing.assert_allclose(found, pooled.diagonal(axis1=1, axis2=3).mean(axis=2), rtol=1e-12)
    # LayerNorm and RMSNorm of the images themselves, by hand
    centred = x - x.mean(axis=(1, 2, 3), keepdims=True)
    for norm, z in (
        ("layernorm", centred / centred.std(axis=(1, 2, 3), keepdims=True)),
        ("groupnorm", centred / centred.std(axis=(1, 2, 3), keepdims=True)),
        ("rmsnorm", x / np.sqrt(np.mean(x**2, axis=(1, 2, 3), keepdims=True))),
    ):
        expected = run("conv(padding=1) > relu > dense", z).covariance
        np.testing.assert_allclose(run(f"{norm} > conv(padding=1) > relu > dense", x).covariance, expected, rtol=1e-9)


def test_batchnorm_takes_every_position_for_a_point() -> None:
    x = images(4, 3, 3, 3)
    rows = x.transpose(0, 2, 3, 1).reshape(36, 3)
    flat = kernel(fg.Network.parse("dense > batchnorm > relu > dense"), rows).covariance
    mean = flat.reshape(4, 9, 4, 9).diagonal(axis1=1, axis2=3).mean(axis=2)
    found = run("conv(kernel=1) > batchnorm > relu > dense", x)
    np.testing.assert_allclose(found.covariance, mean, rtol=1e-6)
    assert any("batchnorm" in remark for remark in found.remarks)
    flat = kernel(fg.Network.parse("dense > batchnorm(batch=18) > relu > dense"), rows).covariance
    mean = flat.reshape(4, 9, 4, 9).diagonal(axis1=1, axis2=3).mean(axis=2)
    found = run("conv(kernel=1) > batchnorm(batch=2) > relu > dense", x)
    np.testing.assert_allclose(found.covariance, mean, rtol=1e-6)


def test_scale_shift_and_residual() -> None:
    x = images(4, 2, 4, 4)
    np.testing.assert_allclose(
        run("scale(2) > shift(0.5) > conv > relu > dense", x).covariance,
        run("conv > relu > dense", 2 * x + 0.5).covariance,
        rtol=1e-12,
    )
    stem, branch = "conv(padding=1)", "relu > conv(padding=1, bias_var=0.2)"
    straight = run(f"{stem} > dense", x).covariance
    both = run(f"{stem} > residual(scale=0.5)[{branch}] > dense", x).covariance
    np.testing.assert_allclose(both, straight + 0.25 * run(f"{stem} > {branch} > dense", x).covariance, rtol=1e-12)


def test_blocks_that_mix_images_add_what_their_paths_give() -> None:
    """BatchNorm, average pools and strides in both paths; no nodes are sampled here, so to rounding."""
    x = images(5, 2, 6, 6)
    stem = "conv(weight_var=2, padding=1)"
    branch, shortcut = "conv(stride=2, padding=1) > batchnorm", "avgpool(4) > conv(kernel=1) > batchnorm > scale(2)"
    one, other = (run(f"{stem} > {path} > dense", x, tangent=True) for path in (branch, shortcut))
    both = run(f"{stem} > residual(scale=0.5)[{branch} | {shortcut}] > dense", x, tangent=True)
    np.testing.assert_allclose(both.covariance, 0.25 * one.covariance + other.covariance, rtol=1e-10, atol=1e-12)
    assert both.tangent is not None
    assert one.tangent is not None
    assert other.tangent is not None
    # the last dense layer's own part of the tangent kernel is its input's kernel times its fan-in: linear as well
    np.testing.assert_allclose(both.tangent, 0.25 * one.tangent + other.tangent, rtol=1e-9)
    assert [layer.layer for layer in both.layers][1].startswith("residual(scale=0.5)[conv")
    nested = run(f"{stem} > residual[residual[conv(padding=1) > batchnorm] > conv(padding=1)] > dense", x).covariance
    inner = run(f"{stem} > residual[conv(padding=1) > batchnorm] > conv(padding=1) > dense", x).covariance
    np.testing.assert_allclose(nested, run(f"{stem} > dense", x).covariance + inner, rtol=1e-10)


def test_a_constant_in_both_paths_is_common_to_all_images() -> None:
    """x + f with means m and m': the product of the means is part of E (x + f)(x + f)."""
    x = images(4, 2, 4, 4)
    stem = "conv(padding=1) > relu"
    both = run(f"{stem} > residual(scale=2)[conv(padding=1) > shift(0.5)] > dense", x).covariance
    plain = run(f"{stem} > shift(1) > dense", x).covariance
    branch = run(f"{stem} > conv(padding=1) > dense", x).covariance
    np.testing.assert_allclose(both, plain + 4.0 * branch, rtol=1e-10)


def test_one_pixel_is_flat_data() -> None:
    x = images(30, 6, 1, 1)
    text = (
        "> relu > layernorm > dense(bias_var=0.1) > relu > maxpool(2) > dense > batchnorm > tanh > dense(weight_var=2)"
    )
    one, flat = (
        image_kernel(fg.Network.parse(f"conv(weight_var=2, kernel=1, bias_var=0.2) {text}"), x, tangent=True),
        kernel(fg.Network.parse(f"dense(weight_var=2, bias_var=0.2) {text}"), x.reshape(30, 6), tangent=True),
    )
    np.testing.assert_allclose(one.covariance, flat.covariance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.tangent, flat.tangent, rtol=1e-7)
    assert [(r.weights, r.q, r.q_ab) for r in one.layers] == [
        (r.weights, pytest.approx(r.q), pytest.approx(r.q_ab)) for r in flat.layers
    ]


def test_tiles_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images(9, 1, 5, 5)
    text = "conv(padding=1) > relu > avgpool(4) > batchnorm > conv(padding=1) > gelu > dense"
    whole = run(text, x, tangent=True)
    monkeypatch.setattr("firstguess.theory.kernel.tiles._TILE", 50)
    told: list[tuple[int, int]] = []
    tiled = run(text, x, tangent=True, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_allclose(tiled.covariance, whole.covariance, rtol=1e-10)
    np.testing.assert_allclose(tiled.tangent, whole.tangent, rtol=1e-10)
    assert told[-1][0] == told[-1][1]
    assert [r.q_ab for r in tiled.layers] == pytest.approx([r.q_ab for r in whole.layers])


def test_black_borders_stay_where_they_are() -> None:
    x = np.zeros((4, 1, 7, 7))
    x[:, :, 3, 3] = images(4, 1, 1, 1)[:, :, 0, 0]
    tiny = x + 1e-9 * images(4, 1, 7, 7, seed=1)
    for phi in ("relu", "softplus"):
        text = (
            f"conv(padding=1) > {phi} > conv(padding=1) > {phi} > dense" if phi == "relu" else f"conv > {phi} > dense"
        )
        exact = run(text, x).covariance
        assert np.isfinite(exact).all()
        if phi == "relu":
            np.testing.assert_allclose(exact, run(text, tiny).covariance, rtol=1e-6)
        else:  # 25 positions, 9 of them see the pixel; the others are log 2
            pre = np.outer(x[:, 0, 3, 3], x[:, 0, 3, 3]) / 9
            inside = kernel(fg.Network.parse(f"dense > {phi} > dense"), x[:, 0, 3, 3:4] / 3).covariance
            assert pre.shape == inside.shape
            np.testing.assert_allclose(exact, (9 * inside + 16 * np.log(2) ** 2) / 25, rtol=1e-8)


@pytest.mark.parametrize(
    "text",
    [
        "conv(weight_var=2) > relu > conv(weight_var=2, bias_var=0.1) > relu > dense(weight_var=2)",
        "conv(weight_var=2, kernel=2, stride=2) > layernorm > gelu > avgpool(4) > dense(weight_var=2)",
        "conv(weight_var=2, kernel=1) > relu > avgpool(9) > conv(kernel=1) > relu > layernorm > dense",
        "conv(weight_var=2) > rmsnorm > relu > rmsnorm > conv(weight_var=2) > relu > dense",
    ],
)
def test_homogeneous_images_give_the_closed_form(text: str) -> None:
    """Independent pixels, no borders, no overlap before pools. K⁰ of a pair of pixels has a standard deviation of
    1/√3000 = 2 %; averages over 15 pairs × 16 positions or more are within 5.6 × 0.12 % + curvature 1/3000 < 1 %."""
    x = images(6, 3000, 6, 6, shift=0.0)
    predicted = fg.predict(text)
    found = [(r.q_ab, r.q) for r in run(text, x).layers if r.weights]
    for (q_ab, q), c, log_q in zip(found, predicted.correlation, predicted.log_q, strict=True):
        assert q == pytest.approx(np.exp(log_q), rel=0.01)
        assert q_ab / q == pytest.approx(c, abs=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "conv(weight_var=2, padding=1) > relu > conv(weight_var=2, stride=2) > relu > dense(weight_var=2)",
        "conv(weight_var=2, padding=1, bias_var=0.1) > gelu > avgpool(4) > conv(weight_var=2) > relu > dense",
        "conv(weight_var=2, padding=1) > layernorm > relu > residual[conv(padding=1)] > layernorm > dense",
        "conv(weight_var=2, padding=1) > residual[batchnorm > relu > conv(stride=2, padding=1) > layernorm | "
        "conv(kernel=1, stride=2) > rmsnorm] > relu > dense",
    ],
)
def test_real_networks_agree(text: str) -> None:
    data = fg.data.load("digits", points=8)
    p = fg.predict(text, data=data, draws=20_000)
    m = fg.measure(fg.Network.parse(text), data, inits=150, width=256)
    # finite width moves covariances by O(1/256) a layer: (1 + γ)/256 of γ for each of up to three
    for predicted, seen, error in zip(p.gamma, m.gamma, m.gamma_se, strict=True):
        assert abs(predicted - seen) < Z * error + 3 * predicted * (1 + predicted) / 256
    for what, predicted in (("std", p.guesses.std()), ("expected_max", p.guesses.expected_max())):
        seen = m.guesses.std() if what == "std" else m.guesses.expected_max()
        error = np.hypot(m.guesses.standard_error(what), p.guesses.standard_error(what))  # type: ignore[arg-type]
        assert abs(predicted - seen) < Z * error + 3 * 0.25 / 256


def test_the_tangent_kernel_is_that_of_wide_networks() -> None:
    """Σ over weights of ∂f_a ∂f_b, averaged over outputs and initializations; its standard error is taken from them."""
    import torch

    x = images(3, 2, 5, 5)
    width, inits = 128, 30
    found = run("conv(weight_var=2, padding=1) > relu > avgpool(4) > conv(weight_var=2, padding=1) > relu > dense", x,
                tangent=True, width=width).tangent  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    t = torch.tensor(x)
    seen = np.empty((inits, 3, 3))
    for i in range(inits):
        shapes = [(width, 2, 3, 3), (width, width, 3, 3), (1, 4 * width)]
        fans = [18, 9 * width, 4 * width]
        gains = [2.0, 2.0, 1.0]
        weights = [
            (torch.randn(s, generator=generator, dtype=torch.float64) * (g / f) ** 0.5).requires_grad_()
            for s, f, g in zip(shapes, fans, gains, strict=True)
        ]
        h = torch.nn.functional.avg_pool2d(torch.relu(torch.nn.functional.conv2d(t, weights[0], padding=1)), 2)
        h = torch.relu(torch.nn.functional.conv2d(h, weights[1], padding=1)).flatten(1)
        out = (h @ weights[2].T)[:, 0]
        rows = []
        for a in range(3):
            grads = torch.autograd.grad(out[a], weights, retain_graph=True)
            rows.append(torch.cat([g.ravel() for g in grads]))
        j = torch.stack(rows)
        seen[i] = (j @ j.T).numpy()
    assert found is not None
    error = seen.std(axis=0, ddof=1) / np.sqrt(inits)
    assert (np.abs(seen.mean(axis=0) - found) < Z * error + 3 / width * np.abs(found)).all()


def test_errors_say_what_would_fit() -> None:
    with pytest.raises(InvalidInput, match=r"images \(n, channels, height, width\)"):
        fg.predict("conv > relu > dense", data=np.eye(4))
    x = images(4, 1, 6, 6)
    with pytest.raises(NotCovered, match=r"(?s)neighbours are correlated.*layer 1 \(maxpool\(4\)\).*avgpool\(4\)"):
        run("maxpool(4) > conv > relu > dense", x)
    with pytest.raises(NotCovered, match=r"no tangent kernel"):
        run("conv > relu > maxpool(4) > dense", x, tangent=True)
    with pytest.raises(NotCovered, match=r"MB for one pair of images"):
        run("conv > relu > dense", x, memory=1e4)
    with pytest.raises(NotCovered, match=r"at most 3 images.*batchnorm or max-pool wants all pairs"):
        run("batchnorm > conv > relu > dense", x, memory=24.0 * (3 * 36) ** 2)
    with pytest.raises(NotCovered, match=r"at most 2 images"):
        run("conv > relu > dense", x, seconds=1e-5)
    with pytest.raises(InvalidInput, match=r"a kernel that fits into 6×6 images.*layer 1"):
        run("conv(kernel=7) > relu > dense", x)
    with pytest.raises(InvalidInput, match="a square number"):
        run("conv > relu > avgpool(2) > dense", x)
    with pytest.raises(InvalidInput, match="convolutions before dense"):
        run("conv > relu > dense > relu > conv > dense", x)
    with pytest.raises(InvalidInput, match="gives back the shape it gets, 6×6"):
        run("residual[conv] > relu > dense", x)
    with pytest.raises(NotCovered, match="add '> dense'"):
        run("conv > relu > conv", x)
    with pytest.raises(NotCovered, match="before an activation"):
        run("conv > relu > relu > dense", x)
