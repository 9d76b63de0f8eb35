"""What looks like a known structure and is not: refused with a reason, next to its neighbours that are still read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from firstguess.modules.read.read import read
from firstguess.modules.read.result import Structure

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(nn.Module):
    """A forward of one's own between a first and a last layer."""

    def __init__(self, inner: Callable[[Net, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.stem, self.f, self.g, self.up = nn.Linear(9, 16), *(nn.Linear(16, 16) for _ in range(3))
        self.narrow, self.head = nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.inner(self, self.stem(x)))


class Image(nn.Module):
    def __init__(self, inner: Callable[[torch.Tensor], torch.Tensor], nodes: int) -> None:
        super().__init__()
        self.inner, self.conv, self.head = inner, nn.Conv2d(3, 4, 3, padding=1), nn.Linear(nodes, 3)

    def forward(self, x):
        return self.head(self.inner(F.relu(self.conv(x))))


def reasons(found: Structure) -> list[str]:
    assert found.network is None
    return [u.why for u in found.unread]


def minus_again(m, x):
    h = m.f(F.relu(x))
    y = x + h
    return F.relu(y - h)


def plus_again(m, x):
    h = m.f(F.relu(x))
    y = x + h
    return y + h


def curved_and_plain(m, x):
    h = m.f(F.relu(x))
    return x + torch.tanh(h) + h


def curved_sum(m, x):
    h = m.f(F.relu(x))
    return F.relu(x + h) + h


def late_plus(m, x):
    h = m.f(F.relu(x))
    y = x + h
    z = y + m.g(F.relu(y))
    return z + h


def late_minus(m, x):
    h = m.f(F.relu(x))
    y = x + h
    z = y + m.g(F.relu(y))
    return z - h


@pytest.mark.parametrize("shown", [True, False], ids=["example", "no example"])
@pytest.mark.parametrize(
    "inner", [minus_again, plus_again, curved_and_plain, curved_sum, late_plus, late_minus], ids=lambda f: f.__name__
)
def test_a_sum_that_has_a_branch_twice_is_refused(inner, shown):
    found = read(Net(inner), torch.zeros(2, 9) if shown else None)
    assert reasons(found) == ["what f adds is in the other side of the sum already, so the two are correlated"]


def tap(m, x):
    h = m.f(F.relu(x))
    return x + h + m.g(F.relu(h))


def tap_at_last(m, x):
    h = m.f(F.relu(x))
    return x + m.g(F.relu(h)) + h


def all_before(m, x):
    outputs = [x, m.f(F.relu(x))]
    outputs.append(m.g(F.relu(sum(outputs))))
    return sum(outputs)


def u_net(m, x):
    down = m.f(F.relu(x))
    lowest = m.g(F.relu(down))
    return m.up(F.relu(lowest + down)) + x


LAYER = f"relu > dense(weight_var=0.3333333333333333, bias_var={1 / 48}, width=16)"


@pytest.mark.parametrize(
    ("inner", "middle"),
    [
        (tap, f"residual[2 x [{LAYER}] | residual[{LAYER}]]"),
        (tap_at_last, f"residual[{LAYER} | residual[2 x [{LAYER}]]]"),
        (all_before, f"residual[residual[{LAYER}] > {LAYER} | residual[{LAYER}]]"),
        (u_net, f"residual[{LAYER} > residual[{LAYER}] > {LAYER}]"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_sums_that_share_earlier_nodes_are_read(inner, middle):
    found = read(Net(inner), torch.zeros(2, 9))
    assert found.complete, str(found)
    assert middle in str(found.network)


def test_a_branch_that_starts_at_zero_repeats_nothing():
    def zero():
        def inner(m, x):
            h = m.f(F.relu(x))
            return x + m.g(F.relu(h)) + h

        model = Net(inner)
        nn.init.zeros_(model.g.weight)
        nn.init.zeros_(model.g.bias)
        return model

    found = read(zero)
    assert str(found.network).count("residual[") == 1


@pytest.mark.parametrize(("dilation", "right"), [(1, True), ((1, 1), True), (2, False)])
def test_the_function_of_a_pool(dilation, right):
    found = read(lambda: Image(lambda x: F.max_pool2d(x, 2, 2, dilation=dilation).flatten(1), 64 if right else 36))
    assert found.complete is right
    assert ("maxpool(4)" in str(found.network)) is right
    assert right or "dilation" in reasons(found)[0]


def test_the_function_of_a_pool_as_it_is_written():
    found = read(lambda: Image(lambda x: F.max_pool2d(x, 2).flatten(1), 64))
    assert "relu > maxpool(4) > dense" in str(found.network)


def test_a_parametrized_layer_that_is_called_twice():
    class Normed(nn.Module):
        def __init__(self, twice):
            super().__init__()
            self.fc, self.head, self.twice = weight_norm(nn.Linear(8, 8)), nn.Linear(8, 2), twice

        def forward(self, x):
            x = torch.tanh(self.fc(x))
            return self.head(torch.tanh(self.fc(x)) if self.twice else x)

    assert read(Normed(False)).complete
    assert reasons(read(Normed(True))) == ["is called more than once; a description has new weights in every layer"]


def test_dropout_that_is_always_on():
    def always(m, x):
        return F.dropout(F.relu(x), 0.9)

    def torchs(m, x):
        return torch.dropout(F.relu(x), 0.9, True)

    for inner in (always, torchs):
        assert "on in evaluation" in reasons(read(Net(inner)))[0]
    for off in (
        lambda m, x: F.dropout(F.relu(x), 0.9, training=m.training),
        lambda m, x: F.dropout(F.relu(x), 0.9, m.training),
        lambda m, x: F.dropout(F.relu(x), 0.0),
        lambda m, x: torch.dropout(F.relu(x), 0.9, m.training),
    ):
        found = read(Net(off))
        assert found.complete, str(found)
        assert any("dropout" in note for note in found.notes)


def test_a_sum_over_one_node_is_refused_without_an_example():
    def broadcast(m, x):
        return x + m.narrow(F.relu(x))

    for example in (None, torch.zeros(2, 9)):
        assert "adds two signals of different" in reasons(read(Net(broadcast), example))[0]

    class AtTheInput(nn.Module):
        def __init__(self):
            super().__init__()
            self.narrow, self.head = nn.Linear(128, 1), nn.Linear(128, 3)

        def forward(self, x):
            return self.head(x + self.narrow(F.relu(x)))

    assert reasons(read(AtTheInput())) == ["adds two signals of different widths, 128 and 1"]


@pytest.mark.parametrize(
    ("inner", "right"),
    [
        (lambda x: x.view(x.size(0), -1), True),
        (lambda x: x.view(x.size()[0], -1), True),
        (lambda x: x.reshape(x.shape[0], -1), True),
        (lambda x: x.reshape((x.shape[0], -1)), True),
        (lambda x: x.view(-1, 256), True),
        (lambda x: x.view(x.size(0) * 2, -1), False),
        (lambda x: x.view(x.size(1), -1), False),
        (lambda x: x.view(x.shape[1], -1), False),
        (lambda x: x.view(2, -1), False),
    ],
)
def test_a_view_is_a_flattening_only_where_it_keeps_the_batch(inner, right):
    found = read(Image(inner, 256))
    assert found.complete is right, str(found)
    assert right or "depends on the shape" in reasons(found)[0]


def test_a_view_of_a_fixed_number_is_not_taken_for_the_batch() -> None:
    """`view(len(x), -1)` flattens each point; `view(20, -1)` does so for batches of 20 alone."""

    class Viewed(nn.Module):
        def __init__(self, fixed: bool) -> None:
            super().__init__()
            self.fixed, self.head = fixed, nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.view(20 if self.fixed else x.shape[0], -1))

    assert read(Viewed(False)).complete
    refused = read(Viewed(True))
    assert not refused.complete
    assert "depends on the shape" in " ".join(part.why for part in refused.unread)
