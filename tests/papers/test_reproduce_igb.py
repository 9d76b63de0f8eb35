"""Parts of IGB's items that are computed by themselves, against what is known on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from firstguess_papers.igb import largest_of
from firstguess_papers.igb_centers import node_gamma, simulate, strongest_rival
from firstguess_papers.image_models import CNN_A, KINDS, cnn, cnn_b

import firstguess as fg


def test_largest_of_gaussians() -> None:
    """K = 3: 3/(2√π); K = 5: 1.16296447, Harter (1961). Mean and K → ∞: to 1e-7 by quadrature on a fine grid."""
    assert largest_of(3)[0] == pytest.approx(1.5 / math.sqrt(math.pi), abs=1e-8)
    assert largest_of(5)[0] == pytest.approx(1.16296447, abs=1e-7)
    assert largest_of(1)[0] == pytest.approx(0.0, abs=1e-8)
    assert largest_of(1)[1] == pytest.approx(1.0, abs=1e-8)


def test_the_strongest_rival_is_exact_for_two_classes_only() -> None:
    z = np.random.default_rng(3).standard_normal((2000, 2))
    pair = strongest_rival(z, 2.0)
    np.testing.assert_allclose(pair.sum(axis=1), 1.0, atol=1e-12)
    # std of G₀ by theory.md (6): 2000 draws, 6 standard errors (2e-9)
    assert abs(pair[:, 0].std() - fg.Guesses(2.0).std()) < 6 * 0.5 / math.sqrt(2000)
    many = strongest_rival(np.random.default_rng(3).standard_normal((200, 10)), 2.0)
    assert (many.sum(axis=1) > 1).all()


def test_nodes_have_the_gamma_of_theory() -> None:
    """γ of three layers within 6 standard errors (2e-9 each) and the room of width 100, as 1/width."""
    x = fg.data.blob(1000, 100, seed=1).flat()
    found = simulate(x, depth=2, width=100, activation="relu", inits=40, nodes=10, seed=[1])
    theory = [0.0, *fg.predict(fg.mlp(depth=2)).gamma[1:].tolist()]
    for layer, gamma in enumerate(theory):
        seen = node_gamma(found, layer)
        assert abs(seen.value - gamma) < 6 * seen.error + 0.05
    again = simulate(x, depth=2, width=100, activation="relu", inits=40, nodes=10, seed=[1])
    np.testing.assert_array_equal(found["mean"], again["mean"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "classes"), [((1, 28, 28), 2), ((3, 32, 32), 10)])
def test_the_image_networks_fit_their_images(kind: str, shape: tuple[int, ...], classes: int) -> None:
    import torch

    for blocks in (CNN_A, cnn_b(kernel=5)):
        model = cnn(blocks, kind, shape, classes)()  # type: ignore[arg-type]
        assert model(torch.zeros(2, *shape)).shape == (2, classes)
        names = {type(layer).__name__ for layer in model}
        assert names >= ({"Tanh", "AvgPool2d"} if kind.startswith("tanh") else {"ReLU", "MaxPool2d"})
