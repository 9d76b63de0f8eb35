"""γ of a model's output: of what arg-max sees (theory.md (38)), against a plain loop over the same initializations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_models import points
from torch import nn

import firstguess as fg
from firstguess.ensemble.seeds import member_seeds

pytestmark = pytest.mark.usefixtures("one_thread")

INITS, POINTS = 12, 60


class Head(nn.Module):
    """20 inputs, a hidden layer, 10 classes whose biases are all 5."""

    bias = 5.0

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(20, 100), nn.Linear(100, 10)
        nn.init.constant_(self.head.bias, self.bias)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.hidden(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(x)


class Softplus(Head):
    bias = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(self.logits(x))


class LogSoftmax(Head):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.logits(x) / 0.1, -1)


class Distance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.centers = nn.Linear(20, 100), nn.Parameter(0.1 * torch.randn(10, 100))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -torch.cdist(torch.relu(self.hidden(x)), self.centers).square()


class Scaled(Head):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * self.logits(x)


class InPlace(Head):
    """A shift of all classes that differs by point, written into the head's own memory."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(x).add_(100 * x[:, :1])


class SoftplusModule(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4), nn.Softplus())


class Unused(Head):
    """A layer is called after the head, and its output is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.logits(x)
        self.softmax(z)
        return z


def loop(make: Callable[[], nn.Module], rows: Callable[[nn.Module], torch.Tensor], *, centred: bool = True) -> float:
    """γ of the logits `rows` (points, classes): center and spread of theory.md (2), averaged over initializations."""
    center = spread = 0.0
    for seed in member_seeds(0, 0, INITS):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(seed))
            z = rows(make().eval()).double().numpy()
        if centred:
            z = np.array([row - sum(row) / len(row) for row in z])
        mean, variance = z.mean(0), z.var(0, ddof=1)
        center += float(np.mean(mean**2 - variance / len(z)))
        spread += float(np.mean(variance))
    return center / spread


MODELS = [Head, Softplus, LogSoftmax, Distance, Scaled, InPlace, SoftplusModule, Unused]


@pytest.mark.parametrize("make", MODELS)
def test_what_all_classes_share_is_left_out(make: type[nn.Module]) -> None:
    x = points(POINTS, 20)
    m = fg.measure(make, x, inits=INITS, batch_size=25)
    want, naive = (loop(make, lambda model: model(x), centred=centred) for centred in (True, False))
    assert m.layers[-1].gamma == pytest.approx(want, rel=1e-4)
    assert m.gamma[-1] == m.layers[-1].gamma
    assert not 1 / 3 < naive / want < 3  # what it is not


@pytest.mark.parametrize("make", MODELS)
def test_by_vmap_as_in_a_loop(make: type[nn.Module]) -> None:
    model, x = make(), points(POINTS, 20)
    one, other = (fg.measure(model, x, inits=4, batch_size=25, strategy=way) for way in ("vmap", "loop"))
    np.testing.assert_allclose(one.gamma, other.gamma, rtol=1e-4)


def test_a_common_bias_is_neither_a_verdict_nor_a_cause() -> None:
    x = points(200, 20)
    m = fg.assert_even(Head, x)
    assert m.gamma[-1] < 1
    assert m.regime == "neutral"
    free = fg.measure(Softplus, x, inits=m.inits).layers[-2]  # the head of Softplus has no bias: its own γ
    assert abs(free.gamma - m.gamma[-1]) < 5.3 * np.hypot(free.gamma_se, m.gamma_se[-1])
    d = fg.diagnose(Head(), x, seconds=3, advice=False)
    assert all(cause.after < 0.9 for cause in d.causes)


def test_hidden_layers_keep_their_gamma() -> None:
    class Shifted(Head):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.hidden(x) + 5)

    x = points(POINTS, 20)
    m = fg.measure(Shifted, x, inits=INITS)
    assert m.layers[0].gamma == pytest.approx(loop(Shifted, lambda net: net.hidden(x), centred=False), rel=1e-4)


def test_one_logit_is_compared_with_zero() -> None:
    def make() -> nn.Module:
        net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 1))
        nn.init.constant_(net[-1].bias, 5.0)
        return net

    x = points(POINTS, 20)
    m = fg.measure(make, x, inits=INITS)
    assert m.gamma[-1] == pytest.approx(loop(make, lambda net: net(x), centred=False), rel=1e-4)
    assert m.gamma[-1] > 100
    s = fg.measure(lambda: nn.Sequential(*make(), nn.Sigmoid()), x, inits=INITS)
    assert s.gamma[-1] == pytest.approx(m.gamma[-1], rel=1e-6)


def test_probabilities_have_the_gamma_of_their_logits() -> None:
    """Also at a scale where probabilities are 0 and 1 in float32."""

    class Sure(Head):
        def __init__(self) -> None:
            super().__init__()
            with torch.no_grad():
                self.head.weight *= 1000

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.logits(x), -1)

    x = points(POINTS, 20)
    m = fg.measure(Sure, x, inits=INITS)
    assert m.layers[-1].name == "head"
    assert m.gamma[-1] == pytest.approx(loop(Sure, lambda net: net.logits(x)), rel=1e-4)
