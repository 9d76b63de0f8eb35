"""One output between 0 and 1: a probability, decided at ½, by what made it; never a logit, decided at 0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.ensemble.member_statistics import FindingKind

X = torch.randn(200, 10, generator=torch.Generator().manual_seed(7))
S = torch.sigmoid


class WideAndDeep(nn.Module):
    """Its heads, joined as `how` has it."""

    def __init__(self, how: Callable[[WideAndDeep, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.deep = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
        self.wide, self.u, self.v = nn.Linear(10, 1), nn.Linear(10, 8), nn.Linear(10, 8)
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.how(self, x).reshape(len(x))


# A probability, and a number whose sign says the same.
PAIRS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "sum of heads": (lambda m, x: S(m.wide(x) + m.deep(x)), lambda m, x: m.wide(x) + m.deep(x)),
    "dot product": (lambda m, x: S((m.u(x) * m.v(x)).sum(-1)), lambda m, x: (m.u(x) * m.v(x)).sum(-1)),
    "temperature": (lambda m, x: S(m.deep(x) / 2), lambda m, x: m.deep(x) / 2),
    "by its other name": (lambda m, x: torch.special.expit(m.deep(x)), lambda m, x: m.deep(x)),
    "the other class": (lambda m, x: 1 - S(m.deep(x)), lambda m, x: -m.deep(x)),
    "average": (lambda m, x: (S(m.deep(x)) + S(m.wide(x))) / 2, lambda m, x: S(m.deep(x)) + S(m.wide(x)) - 1),
    "stacked": (
        lambda m, x: torch.stack([S(m.deep(x)), S(m.wide(x))]).mean(0),
        lambda m, x: S(m.deep(x)) + S(m.wide(x)) - 1,
    ),
    "tanh": (lambda m, x: (1 + torch.tanh(m.deep(x))) / 2, lambda m, x: m.deep(x)),
    "one of a softmax": (
        lambda m, x: torch.softmax(m.u(x)[:, :2], 1)[:, 1],
        lambda m, x: m.u(x)[:, 1] - m.u(x)[:, 0],
    ),
    "exp of a log-softmax": (
        lambda m, x: torch.log_softmax(m.u(x)[:, :2], 1)[:, 1].exp(),
        lambda m, x: m.u(x)[:, 1] - m.u(x)[:, 0],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_probability_is_decided_at_half(name: str) -> None:
    """The same guesses as the logit's, network by network, but for points within rounding of the boundary."""
    probability, logit = (lambda how=how: WideAndDeep(how) for how in PAIRS[name])
    m, other = fg.measure(probability, X, inits=12), fg.measure(logit, X, inits=12)
    assert np.abs(m.guesses.fractions - other.guesses.fractions).max() <= 1 / len(X)
    assert [f.kind for f in m.findings] == [FindingKind.PROBABILITIES]
    if name not in ("average", "stacked"):  # whose logit is not the sum of logits
        assert m.gamma[-1] == pytest.approx(other.gamma[-1], rel=1e-3)
    drawn = [fg.measure(build(), X, inits=12).guesses.fractions for build in (probability, logit)]
    assert np.abs(drawn[0] - drawn[1]).max() <= 1 / len(X)  # an instance, which runs in inference mode
    torch.manual_seed(3)
    one = probability()
    assert fg.explain_guess(one, X, seconds=60).fractions[1] == pytest.approx(
        float((one(X) > 0.5).double().mean()), abs=1e-9
    )


@pytest.mark.parametrize(
    "logit",
    [
        lambda m, x: m.deep(x),
        lambda m, x: m.wide(x) + m.deep(x),
        lambda m, x: torch.tanh(m.deep(x) + 0.3),
        lambda m, x: 2 * S(m.deep(x) + 0.5) - 1,
    ],
)
def test_a_logit_that_is_small_and_positive_stays_a_logit(logit: Callable[..., torch.Tensor]) -> None:
    """Within 0 and 1 on every point, as untrained networks often are."""
    near = X[:1] + 1e-3 * X
    torch.manual_seed(0)
    model = next(m for m in (WideAndDeep(logit) for _ in range(200)) if 0.05 < float(m(X[:1]).detach()) < 0.95)
    assert fg.explain_guess(model, near, seconds=2).fractions == (0.0, 1.0)


@pytest.mark.parametrize(
    "clamp",
    [
        lambda z: z.clamp(0, 1),
        lambda z: nn.functional.hardtanh(z, 0.0, 1.0),
        lambda z: torch.clamp(z, min=0.0, max=1.0),
    ],
)
def test_a_clamp_that_changes_nothing_is_a_probability_too(clamp: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The first member's head is within 0 and 1 on all points, so that its outputs are the head's own."""

    def build() -> WideAndDeep:
        model = WideAndDeep(lambda m, x: clamp(m.deep(x)))
        with torch.no_grad():
            head = model.deep[2]
            assert isinstance(head, nn.Linear)
            head.weight.mul_(0.01)
            head.bias.fill_(0.25)
        return model

    assert 0 < float(build().deep(X).detach().min()) < float(build().deep(X).detach().max()) < 0.5
    m = fg.measure(build, X, inits=8)
    assert FindingKind.PROBABILITIES in {f.kind for f in m.findings}
    assert m.guesses.fractions[:, 1].max() == 0.0  # above 0 on all points, and below ½ on all of them


def test_what_operations_do_not_tell_is_refused() -> None:
    def mixture(m: WideAndDeep, x: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(m.u(x)[:, :2], 1) * S(m.v(x)[:, :2])).sum(1)

    with pytest.raises(fg.InvalidInput, match=r"between 0 and 1 on all points.*logits=torch.logit"):
        fg.measure(lambda: WideAndDeep(mixture), X, inits=4)
    at_half = fg.measure(lambda: WideAndDeep(mixture), X, inits=4, logits=torch.logit)
    assert at_half.guesses.fractions.min() > 0.0
    assert fg.measure(lambda: WideAndDeep(mixture), X, inits=4, logits=lambda p: p).guesses.fractions[:, 1].min() == 1


def test_causes_are_tried_at_half_too() -> None:
    """The share before a step is removed is that of the measurement: 1 where a sigmoid is compared with 0."""
    d = fg.diagnose(
        lambda: nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid()), X, seconds=8, inits=40
    )
    known = [cause.largest_before for cause in d.causes if cause.tried]
    assert known
    assert max(known) < 0.95


def test_a_regression_is_said() -> None:
    y = torch.randn(len(X), generator=torch.Generator().manual_seed(1))
    m = fg.measure(lambda: WideAndDeep(lambda m, x: m.deep(x)), (X, y), inits=3)
    assert FindingKind.REGRESSION in {f.kind for f in m.findings}
    assert "not classes" in str(m)
    whole = fg.measure(lambda: WideAndDeep(lambda m, x: m.deep(x)), (X, (y > 0).float()), inits=3)
    assert FindingKind.REGRESSION not in {f.kind for f in whole.findings}
    assert "not classes" in str(fg.explain_guess(WideAndDeep(lambda m, x: m.deep(x)), (X, y), seconds=3))
