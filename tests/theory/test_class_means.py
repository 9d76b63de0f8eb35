"""Absorption of M classes in closed form: two classes' equation, a direct simulation, and the kernel on blobs."""

import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import special
from scipy.integrate import solve_ivp

import firstguess as fg
from firstguess.theory.training.absorption import flow_times


@pytest.mark.parametrize(("g", "s"), [(2.0, 1.4), (5.0, 0.1), (8.0, 3.0)])
def test_two_classes_solve_their_equation(g, s):
    x, w = hermegauss(120)
    w = w / w.sum()

    def hit(t, m):
        return m[0] - s * special.ndtri(0.6)

    hit.terminal = True
    flow = solve_ivp(
        lambda t, m: [-2 * ((w * special.expit(m[0] + s * x)).sum() - 0.5)],
        (0, 1e3),
        [g],
        events=hit,
        rtol=1e-11,
        atol=1e-12,
    )
    found = flow_times(0.6, np.array([[g / 2, -g / 2]]), s / np.sqrt(2), step=0.1)[0]
    assert found == pytest.approx(flow.t_events[0][0], rel=1e-6)


def test_ten_classes_against_the_kernel_of_blobs():
    net = "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    closed = fg.predict(net, classes=10).absorption(lr=1e-4, dimension=100, points=400)
    x, y = np.random.default_rng(0).normal(size=(400, 100)), np.arange(400) % 10
    t = fg.predict_training(net, data=(x, y), lr=1e-4, steps=200, draws=400, trust=False, level=closed.level)
    assert closed.level == pytest.approx(0.28)
    assert 0.85 < closed.median / t.absorption.median < 1.1
