"""ResNets as people write them: blocks with projections, norms before the sum, pre-activation; read and predicted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import firstguess as fg
from firstguess.modules.read.read import read

pytestmark = pytest.mark.usefixtures("one_thread")


def conv(before: int, after: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(before, after, 3, stride), nn.BatchNorm2d(after)
        self.conv2, self.bn2 = conv(after, after), nn.BatchNorm2d(after)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(conv(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        inner = after // 4
        self.conv1, self.bn1 = conv(before, inner, 1), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = conv(inner, inner, 3, stride), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = conv(inner, after, 1), nn.BatchNorm2d(after)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(conv(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class PreActivation(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(before), conv(before, after, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(after), conv(after, after)
        if stride != 1 or before != after:
            self.shortcut = conv(before, after, 1, stride)

    def forward(self, x):
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        return self.conv2(F.relu(self.bn2(self.conv1(out)))) + shortcut


class ResNet(nn.Module):
    def __init__(self, block: type[nn.Module], width: int = 16, classes: int = 10) -> None:
        super().__init__()
        first = block is not PreActivation
        self.conv1, self.bn1 = conv(3, width), nn.BatchNorm2d(width) if first else nn.Identity()
        self.relu = nn.ReLU() if first else nn.Identity()
        self.layer1 = nn.Sequential(block(width, width), block(width, width))
        self.layer2 = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.last = nn.Identity() if first else nn.Sequential(nn.BatchNorm2d(2 * width), nn.ReLU())
        self.linear = nn.Linear(2 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x):
        out = self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x)))))
        out = F.avg_pool2d(self.last(out), 4)
        return self.linear(out.view(out.size(0), -1))


def k(width: int, more: str = "") -> str:
    return f"conv(weight_var=2, width={width}{more or ', padding=1'})"


HEAD = "avgpool(16) > dense(weight_var=0.3333333333333333, bias_var=0.010416666666666666)"
STRIDE = ", stride=2, padding=1"
POINT = ", kernel=1"
READ = {
    BasicBlock: (
        f"{k(16)} > batchnorm > 2 x [relu > residual[{k(16)} > batchnorm > relu > {k(16)} > batchnorm]] > relu > "
        f"residual[{k(32, STRIDE)} > batchnorm > relu > {k(32)} > batchnorm | {k(32, POINT + ', stride=2')} > "
        f"batchnorm] > relu > residual[{k(32)} > batchnorm > relu > {k(32)} > batchnorm] > relu > {HEAD}"
    ),
    Bottleneck: (
        f"{k(16)} > batchnorm > 2 x [relu > residual[{k(4, POINT)} > batchnorm > relu > {k(4)} > batchnorm > relu > "
        f"{k(16, POINT)} > batchnorm]] > relu > residual[{k(8, POINT)} > batchnorm > relu > {k(8, STRIDE)} > "
        f"batchnorm > relu > {k(32, POINT)} > batchnorm | {k(32, POINT + ', stride=2')} > batchnorm] > relu > "
        f"residual[{k(8, POINT)} > batchnorm > relu > {k(8)} > batchnorm > relu > {k(32, POINT)} > batchnorm] > "
        f"relu > {HEAD}"
    ),
    PreActivation: (
        f"{k(16)} > 2 x [residual[2 x [batchnorm > relu > {k(16)}]]] > batchnorm > relu > residual[{k(32, STRIDE)} > "
        f"batchnorm > relu > {k(32)} | {k(32, POINT + ', stride=2')}] > residual[2 x [batchnorm > relu > {k(32)}]] > "
        f"batchnorm > relu > {HEAD}"
    ),
}


@pytest.mark.parametrize("block", READ)
def test_blocks_are_read(block):
    found = read(lambda: ResNet(block), torch.zeros(2, 3, 8, 8))
    assert found.complete, str(found)
    assert str(found.network) == READ[block]
    assert fg.Network.parse(str(found.network), classes=10) == found.network
    assert np.isfinite(fg.predict(found.network).gamma).all()


def test_a_norm_that_starts_at_zero_closes_its_block():
    def made():
        model = ResNet(BasicBlock)
        for module in model.modules():
            if isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)
        return model

    found = read(made, torch.zeros(2, 3, 8, 8))
    assert found.complete, str(found)
    assert "residual" not in str(found.network)
    assert str(found.network).count("kernel=1, stride=2") == 1  # the projection stays


def test_what_a_block_cannot_say_is_named_by_its_path():
    class Gated(BasicBlock):
        def __init__(self, before, after, stride=1):
            super().__init__(before, after, stride)
            self.bn2 = nn.LocalResponseNorm(2)

    found = read(lambda: ResNet(Gated), torch.zeros(2, 3, 8, 8))
    assert not found.complete
    assert {u.path for u in found.unread} == {f"layer{i}.{j}.bn2" for i in (1, 2) for j in (0, 1)}


def test_a_branch_minus_its_input():
    class Minus(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.fc, self.norm, self.head = (
                nn.Linear(9, 20),
                nn.Linear(20, 20),
                nn.LayerNorm(20),
                nn.Linear(20, 3),
            )

        def forward(self, x):
            x = self.stem(x)
            x = self.norm(self.fc(x)) - x
            return self.head(F.relu(x))

    found = read(Minus)
    assert " > layernorm | scale(-1)] > relu > " in str(found.network)


@pytest.mark.parametrize("block", [BasicBlock, PreActivation])
def test_predictions_agree_with_the_model_itself(block):
    """Outputs of 30 real networks, independent pixels. The closed form takes positions for alike and independent.

    Neither holds at borders and where windows overlap: γ of the output is found within a factor of 1.5, next to its
    error of sampling: 6.2 standard errors of 30 networks, false alarm below 1e-6 (Student's t, 29 degrees of freedom).
    """
    x = torch.randn(96, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    network = read(lambda: ResNet(block), x).network
    assert network is not None
    predicted = math.log(float(fg.predict(network, inputs=fg.Inputs()).gamma[-1]))
    measured = fg.measure(lambda: ResNet(block), x, inits=30)
    seen, error = measured.layers[-1].gamma, measured.layers[-1].gamma_se
    assert abs(predicted - math.log(seen)) < math.log(1.5) + 6.2 * error / seen
    own = fg.measure(network, x.numpy(), inits=30)  # the description, built and measured as well
    assert abs(math.log(float(own.gamma[-1]) / seen)) < 6.2 * math.hypot(error, float(own.gamma_se[-1])) / seen
