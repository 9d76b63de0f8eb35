"""The test of the house: a new layer is one class and one registration, in all readings; what it leaves out is refused.

The toy is a LayerNorm under another name, written out again, so every number it gives is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.network.layer import KINDS, Fold, Layer, Mix, ReadResult, Symmetry, keeps_shape, register
from firstguess.network.norms import UnitNorm
from firstguess.network.points import PairwiseMap, Points, Tile, split
from firstguess.network.signal import Gaussian, Signal
from firstguess.network.tensors import Draw, Local, Place

if TYPE_CHECKING:
    from firstguess.network.layer import ReadContext


class Calm(nn.Module):
    """The toy's module: one mean and one scale a sample."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = tuple(range(1, x.dim()))
        x = x - x.mean(axes, keepdim=True)
        return x / x.square().mean(axes, keepdim=True).sqrt()


@pytest.fixture
def calm() -> Iterator[None]:
    """One class, one registration."""

    @register
    class CalmLayer(Layer):
        kind: ClassVar[str] = "calm"
        weighted = False
        mixes = Mix.UNITS
        symmetry = Symmetry.REMOVES_MEAN
        breaks_gaussianity = False
        modules: ClassVar[tuple[Any, ...]] = (Calm,)
        shape = keeps_shape

        def moments(self, signal: Signal) -> Signal:
            variance = signal.between + signal.spread
            assert isinstance(signal.distribution, Gaussian)
            return Signal(0.0, signal.between / variance, signal.spread / variance, distribution=signal.distribution)

        def gradient(self, signal: Signal) -> float:
            return float(np.exp(-np.log(signal.between + signal.spread) - signal.log_scale))

        def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
            places = points.grid.places
            q, mean = (v.reshape(-1, places).mean(axis=1) for v in (points.q, points.mean))
            level, inverse = np.repeat(mean, places), np.repeat(1.0 / np.sqrt(q - mean**2), places)

            def step(tile: Tile) -> None:
                assert split(tile.k, points.grid).shape[1] == places
                a, b = (level[rows] for rows in (tile.rows, tile.cols))
                both = points.mean[tile.rows, None] * b + a[:, None] * points.mean[tile.cols] - a[:, None] * b
                tile.k = (tile.k - both) * tile.outer(inverse)

            after = (points.q - 2.0 * level * points.mean + level**2) * inverse**2
            what = f"a calm version of {points.what}"
            shifted = (points.mean - level) * inverse
            return PairwiseMap(points.after(self, after, shifted, gaussian=points.gaussian, what=what), step)

        def assumptions(self) -> Iterable[str]:
            return ("calm: a toy",)

        def tensors(self, place: Place) -> Local:
            dims = (2, 3, 4) if place.before.images else (1,)

            def apply(x: torch.Tensor, _: Any) -> torch.Tensor:
                x = x.sub_(x.mean(dims, keepdim=True))
                return x.mul_(x.square().mean(dims, keepdim=True).rsqrt())

            return Local(apply)

        def module(self, place: Place, draw: Draw) -> nn.Module:
            return Calm()

        @classmethod
        def from_module(cls, module: nn.Module, context: ReadContext) -> ReadResult:
            return ReadResult((cls(),))

    yield
    del KINDS["calm"]


FLAT = "2 x [dense(weight_var=2) > {} > relu] > dense > {} > dense"
IMAGES = "conv(padding=1) > relu > {} > conv(weight_var=2) > {} > gelu > dense"


@pytest.mark.usefixtures("calm")
def test_one_class_and_one_registration_pass_through_every_reading() -> None:
    flat, theirs = (FLAT.format(name, name) for name in ("calm", "layernorm"))
    assert str(fg.Network.parse(flat)) == flat

    closed, known = fg.predict(flat), fg.predict(theirs)
    assert closed.gamma == pytest.approx(known.gamma, rel=1e-12)
    assert closed.gradient_growth == pytest.approx(known.gradient_growth, rel=1e-12)
    assert "calm: a toy" in closed.assumptions

    rng = np.random.default_rng(20261116)
    x, images = rng.normal(size=(20, 12)) + 0.3, rng.normal(size=(6, 2, 5, 5)) + 0.3
    for source, data in ((FLAT, x), (IMAGES, images)):
        mine, other = (fg.predict(source.format(n, n), data=data, draws=50) for n in ("calm", "layernorm"))
        assert mine.gamma == pytest.approx(other.gamma, rel=1e-9)
        drawn, also = (fg.measure(source.format(n, n), data, inits=4, width=16) for n in ("calm", "layernorm"))
        assert drawn.gamma == pytest.approx(also.gamma, rel=1e-3)  # float32, and no epsilon here

    model = nn.Sequential(nn.Linear(12, 30), Calm(), nn.ReLU(), nn.Linear(30, 3))
    read = fg.read(model, x.astype(np.float32))
    assert read.network is not None
    assert [layer.kind for layer in read.network.layers] == ["dense", "calm", "activation", "dense"]


def test_what_is_left_out_is_refused_by_name() -> None:
    @register
    class Mute(Layer):
        kind: ClassVar[str] = "mute"
        weighted = False
        mixes = Mix.NOTHING
        symmetry = Symmetry.NONE
        breaks_gaussianity = False
        shape = keeps_shape

        def moments(self, signal: Signal) -> Signal:
            return signal

    x, images = np.random.default_rng(0).normal(size=(8, 6)), np.random.default_rng(0).normal(size=(4, 1, 4, 4))
    try:
        for source, data in (("dense > mute > dense", x), ("conv > mute > dense", images)):
            with pytest.raises(fg.NotCovered, match=r"a kernel of mute.*layer 2 \(mute\).*the closed form"):
                fg.predict(source, data=data)
            with pytest.raises(fg.NotCovered, match=r"a meaning on tensors of mute.*layer 2 \(mute\).*closed form"):
                fg.measure(source, data, inits=2)
        with pytest.raises(fg.NotCovered, match="a list of assumptions of mute"):
            fg.predict("dense > mute > dense")
    finally:
        del KINDS["mute"]


def test_a_kind_that_leaves_a_flag_unsaid_or_inherits_is_not_registered() -> None:
    with pytest.raises(TypeError, match="has to state mixes, symmetry"):

        @register
        class Vague(Layer):
            kind: ClassVar[str] = "vague"
            weighted = False
            breaks_gaussianity = False

    with pytest.raises(TypeError, match="no variant of another"):

        @register
        class Heir(KINDS["layernorm"]):  # type: ignore[misc]
            kind: ClassVar[str] = "heir"
            weighted = False
            mixes = Mix.UNITS
            symmetry = Symmetry.REMOVES_MEAN
            breaks_gaussianity = False

    assert not {"vague", "heir"} & set(KINDS)


class MeanOff(nn.Module):
    """The mean over features goes, and no more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(tuple(range(1, x.dim())), keepdim=True)


@pytest.fixture
def mean_off() -> Iterator[None]:
    """A centring layer with all readings: a norm over units that does not divide."""

    @register
    class MeanOffLayer(UnitNorm):
        kind: ClassVar[str] = "mean_off"
        weighted = False
        mixes = Mix.UNITS
        symmetry = Symmetry.REMOVES_MEAN
        breaks_gaussianity = False
        divide = False
        modules: ClassVar[tuple[Any, ...]] = (MeanOff,)

        def module(self, place: Place, draw: Draw) -> nn.Module:
            return MeanOff()

        @classmethod
        def from_module(cls, module: nn.Module, context: ReadContext) -> ReadResult:
            return ReadResult((cls(),))

    yield
    del KINDS["mean_off"]


@pytest.mark.usefixtures("mean_off")
def test_a_layer_that_centres_and_does_not_divide() -> None:
    """What a LayerNorm after it makes of it is what it makes of the signal itself; its scale is the signal's own."""
    chain = "dense(weight_var=2) > relu > {} > dense(weight_var=2) > relu > {} > dense"
    both, norm = (chain.format(n, n) for n in ("mean_off > layernorm", "layernorm"))
    rng = np.random.default_rng(20261118)
    x, images = rng.normal(size=(20, 12)) + 0.3, rng.normal(size=(6, 2, 5, 5)) + 0.3
    pooled = "conv(padding=1) > relu > {} > conv(weight_var=2) > gelu > dense"
    assert fg.predict(both).gamma[[0, 1, 2]] == pytest.approx(fg.predict(norm).gamma[[0, 1, 2]], rel=1e-12)
    for text, data in ((chain, x), (pooled, images)):
        with_it, without = (text.format(*(name,) * text.count("{}")) for name in ("mean_off > layernorm", "layernorm"))
        mine, other = (fg.predict(one, data=data, draws=50).gamma for one in (with_it, without))
        assert mine == pytest.approx(other, rel=1e-9)
        drawn, also = (fg.measure(one, data, inits=4, width=16).gamma for one in (with_it, without))
        assert drawn[[0, -1]] == pytest.approx(also[[0, -1]], rel=1e-3)
    # E φ² − (E φ)² of a relu of N(0, 2): 1 − 1/π
    after = fg.predict("dense(weight_var=2) > relu > mean_off > dense").layers[2]
    assert np.exp(after.log_q) == pytest.approx(1.0 - 1.0 / np.pi, rel=1e-12)
    finite = fg.predict("dense(weight_var=2) > relu > mean_off > dense", width=200, inputs=fg.Inputs(dimension=50))
    assert finite.finite_size is not None
    assert finite.finite_size.way == "chain"
