"""Networks of public threads and programs that predict one class: what was wrong, and names that say it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass(frozen=True)
class Case:
    """A model, data, and what goes into `explain_guess` with them; `names` are those that say the cause."""

    id: str
    cause: str
    names: tuple[str, ...]
    build: Callable[[], tuple[Any, Any, dict[str, Any]]]
    source: str = "thread"


CASES: list[Case] = []


def case(id: str, cause: str, *names: str, source: str = "thread") -> Callable[[Any], Any]:
    def keep(build: Any) -> Any:
        CASES.append(Case(id, cause, names, build, source))
        return build

    return keep


def points(n: int = 512, d: int = 20, classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Points, and labels that can be learned from them."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    return x, (x @ torch.randn(d, classes, generator=g)).argmax(1)


def net(*end: nn.Module, act: Any = nn.ReLU, out: int = 4, width: int = 64, d: int = 20) -> nn.Sequential:
    layers = [nn.Linear(d, width), act(), nn.Linear(width, width), act(), nn.Linear(width, out)]
    return nn.Sequential(*layers, *end)


def fit(m: nn.Module, opt: Any, data: Any, loss: Any = F.cross_entropy, steps: int = 100, size: int = 64) -> None:
    x, y = data
    m.train()
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        rows = torch.randint(0, len(x), (min(size, len(x)),), generator=g)
        opt.zero_grad()
        loss(m(x[rows]), y[rows]).backward()
        opt.step()


class Text(nn.Module):
    """A transformer encoder on tokens, as BERT is fine-tuned."""

    def __init__(self, classes: int = 4, d: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, d)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d, classes)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(t)).mean(1))


class Function(nn.Module):
    """Modules, and a function of them and the input."""

    def __init__(self, forward: Callable[..., torch.Tensor], **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.function = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


CE = nn.CrossEntropyLoss()


# -- Threads -----------------------------------------------------------------------------------------------------------


def tokens(classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.randint(0, 50, (256, 12), generator=torch.Generator().manual_seed(0))
    return t, t[:, 0] % classes


def too_high(classes: int, lr: float, steps: int = 60) -> tuple[Any, Any, dict[str, Any]]:
    m = Text(classes)
    opt = torch.optim.Adam(m.parameters(), lr=lr)
    fit(m, opt, tokens(classes), steps=steps)
    return m, tokens(classes), {"loss": CE, "optimizer": opt}


case("1", "learning rate too high", "learning rate too high")(lambda: too_high(4, 1e-1))
case("3", "learning rate too high", "learning rate too high")(lambda: too_high(2, 3e-2))
case("5", "learning rate too high", "learning rate too high")(lambda: too_high(4, 5e-2))


@case("7", "learning rate too high", "learning rate too high")
def _() -> Any:
    m, data = net(out=10), points(classes=10)
    opt = torch.optim.SGD(m.parameters(), 10.0)
    fit(m, opt, data, steps=20)
    return m, data, {"loss": CE, "optimizer": opt}


@case("9", "learning rate too small", "learning rate too small")
def _() -> Any:
    body, head = net()[:4].requires_grad_(False), nn.Linear(64, 4)
    m, data = nn.Sequential(body, head), points()
    opt = torch.optim.Adam(head.parameters(), 4e-5)
    fit(m, opt, data)
    return m, data, {"loss": CE, "optimizer": opt, "steps": 100}


@case("11", "initial weights too small", "vanishing logits", "gradients vanish")
def _() -> Any:
    m = net(act=nn.Tanh)
    for layer in m[::2]:
        nn.init.normal_(layer.weight, std=1e-3)
        nn.init.zeros_(layer.bias)
    return m, points(), {"loss": CE, "optimizer": torch.optim.SGD(m.parameters(), 1e-2)}


def imbalanced(share: float, n: int = 462) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points(n)
    score = x @ torch.randn(20, generator=torch.Generator().manual_seed(5)) + torch.randn(
        n, generator=torch.Generator().manual_seed(6)
    )
    return x, (score > score.quantile(1 - share)).long()


@case("13", "class imbalance", "class imbalance")
def _() -> Any:
    m, data = net(out=2), imbalanced(0.138)
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    fit(m, opt, data, steps=20)
    return m, data, {"loss": CE, "optimizer": opt}


@case("15", "class imbalance", "class imbalance")
def _() -> Any:
    m = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 6, 1))
    g = torch.Generator().manual_seed(0)
    x = torch.randn(48, 3, 12, 12, generator=g)
    y = torch.where(torch.rand(48, 12, 12, generator=g) < 0.7, 0, torch.randint(1, 6, (48, 12, 12), generator=g))
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    fit(m, opt, (x, y), steps=20)
    return m, (x, y), {"loss": CE, "optimizer": opt}


def binary(d: int = 20, n: int = 512) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = points(n, d, 2)
    return x, y.float()[:, None]


@case("17", "softmax over one unit", "softmax over one unit")
def _() -> Any:
    m = net(nn.Softmax(dim=1), out=1)
    return m, binary(), {"loss": keras_binary, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("19", "softmax twice", "softmax twice")
def _() -> Any:
    m = net(nn.Softmax(dim=1), out=10)
    data = (points()[0], torch.randint(0, 10, (512,), generator=torch.Generator().manual_seed(3)))
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    fit(m, opt, data)
    return m, data, {"loss": CE, "optimizer": opt}


@case("21", "softmax twice", "softmax twice")
def _() -> Any:
    m = net(nn.Softmax(dim=1))
    return m, points(), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


def never(id: str, change: Callable[[nn.Sequential], object]) -> None:
    def build() -> Any:
        m = net()
        with torch.no_grad():
            change(m)
        return m, points(), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}

    case(id, "weights never initialized", "weights never initialized")(build)


never("23", lambda m: m[-1].weight.fill_(float("nan")))
never("25", lambda m: m[-1].weight.fill_(1.8e34))
never("27", lambda m: m[-1].weight.copy_(torch.randn(4, 64) * 1e12))
never("31", lambda m: m[2].bias.fill_(3e37))
never("33", lambda m: m[2].weight.copy_(torch.randn(64, 64) * 1e-38))


@case("35", "zero head", "zero head")
def _() -> Any:
    m = net()
    nn.init.zeros_(m[-1].weight)
    nn.init.zeros_(m[-1].bias)
    return m, points(), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("37", "ReLU at the end", "ReLU after the head", "head cannot reach the targets", "dead layer")
def _() -> Any:
    x, _ = points()
    y = (x[:, :1] * 3 + x[:, 1:2]).abs()
    m = net(nn.ReLU(), out=1)
    return m, (x, y), {"loss": nn.MSELoss(), "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("39", "dead ReLU at the start", "dead units", "dead layer")
def _() -> Any:
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():  # a start that default initialization gives to some seeds
        m[0].weight.copy_(torch.tensor([[-0.5, -0.3], [-0.2, -0.6]]))
        m[0].bias.copy_(torch.tensor([-0.4, -0.1]))
    x = torch.rand(256, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > x[:, 1]).long()
    return m, (x, y), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-2)}


@case("41", "head's prior", "rare labels")
def _() -> Any:
    t = (torch.rand(512, 90, generator=torch.Generator().manual_seed(0)) < 0.01).float()
    m = net(out=90)
    loss = lambda o, t: F.binary_cross_entropy_with_logits(o, t, reduction="sum") / t.sum().clamp_min(1)  # noqa: E731
    return m, (points()[0], t), {"loss": loss, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("45", "inputs not scaled", "unscaled inputs")
def _() -> Any:
    m = net()
    x = torch.randint(0, 256, (512, 20), generator=torch.Generator().manual_seed(0)).float()
    return m, (x, points()[1]), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("47", "not shuffled", "labels come in blocks")
def _() -> Any:
    x, y = points()
    i = y.argsort()
    m = net()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    for j in i.split(64):
        opt.zero_grad()
        CE(m(x[j]), y[j]).backward()
        opt.step()
    return m, DataLoader(TensorDataset(x[i], y[i]), 64), {"loss": CE, "optimizer": opt}


@case("49", "one label", "one class of labels")
def _() -> Any:
    m = net(out=2)
    y = torch.ones(512, dtype=torch.long)
    return m, (points()[0], y), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("51", "padding", "last token is padding")
def _() -> Any:
    g = torch.Generator().manual_seed(0)
    t = torch.randint(1, 50, (64, 12), generator=g)
    t[:, 5:] = 0
    m = Function(
        lambda m, t: m.head(m.embed(t))[:, -1], embed=nn.Embedding(50, 32, padding_idx=0), head=nn.Linear(32, 2)
    )
    return m, (t, t[:, 0] % 2), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


@case("53", "nothing is updated", "frozen parameters")
def _() -> Any:
    m = net()
    m.requires_grad_(False)
    return m, points(), {"loss": CE, "optimizer": torch.optim.Adam(m[-1].parameters(), 1e-3)}


@case("55", "nothing is updated", "parameters missing from the optimizer")
def _() -> Any:
    m = net()
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    m[-1] = nn.Linear(64, 4)
    return m, points(), {"loss": CE, "optimizer": opt}


@case("57", "weight decay", "weight decay too strong")
def _() -> Any:
    m, data = net(), points()
    opt = torch.optim.SGD(m.parameters(), 0.1, weight_decay=0.5)
    fit(m, opt, data, steps=500)
    return m, data, {"loss": CE, "optimizer": opt}


@case("61", "running statistics", "running statistics")
def _() -> Any:
    m = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64, momentum=1.0), nn.ReLU(), nn.Linear(64, 4))
    x, y = points()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    fit(m, opt, (x, y), steps=60)
    m(x[:2] * 9)
    return m.eval(), (x, y), {"loss": CE, "optimizer": opt}


@case("63", "mean over the batch", "same output for all inputs")
def _() -> Any:
    m = Function(
        lambda m, x: m.head(m.body(x).mean(0, keepdim=True).expand(len(x), -1)), body=net()[:4], head=nn.Linear(64, 4)
    )
    return m, points(), {"loss": CE, "optimizer": torch.optim.Adam(m.parameters(), 1e-3)}


# -- Programs: deepmufl's benchmark, re-written from their descriptions ------------------------------------------------

EPS = 1e-7


def keras_binary(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Keras's binary_crossentropy of probabilities, which are clipped."""
    p = p.clamp(EPS, 1 - EPS)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def keras_categorical(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Keras's categorical_crossentropy: normalized, clipped."""
    p = (p / p.sum(-1, keepdim=True)).clamp(EPS, 1 - EPS)
    return -(y * p.log()).sum(-1).mean()


def keras_sparse(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Keras's sparse_categorical_crossentropy."""
    return F.cross_entropy(p.clamp(EPS, 1 - EPS).log(), y)


def log_cosh(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    e = p - y
    return (e + F.softplus(-2 * e) - 0.6931).mean()


def program(
    post: str,
    cause: str,
    names: tuple[str, ...],
    model: Callable[[], nn.Module],
    data: Callable[[], Any],
    loss: Any,
    opt: Callable[[Any], Any],
    steps: int = 100,
    planned: int | None = None,
) -> None:
    def build() -> Any:
        m, (x, y) = model(), data()
        o = opt(m.parameters())
        with contextlib.suppress(RuntimeError):
            fit(m, o, (x, y), loss, steps)
        return m, (x, y), {"loss": loss, "optimizer": o, "steps": planned}

    case(post, cause, *names, source="program")(build)


def images(classes: int, n: int = 256, side: int = 12, channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Learnable images in [0, 1]: a pattern for each class, and noise."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (n,), generator=g)
    pattern = torch.rand(classes, channels, side, side, generator=g)
    return (0.6 * pattern[y] + 0.4 * torch.rand(n, channels, side, side, generator=g)), y


def one_hot(data: Any, classes: int) -> Any:
    x, y = data
    return x, F.one_hot(y, classes).float()


def regression(outs: int = 1, scale: float = 100.0, n: int = 300, d: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """make_regression: targets of a hundred and more, of either sign."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=g)
    return x, scale * (x @ torch.randn(d, outs, generator=g))


def classification(classes: int = 2, n: int = 300, d: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    return points(n, d, classes)


def column(data: Any) -> Any:
    x, y = data
    return x, y.float()[:, None]


def mlp(*sizes: int, act: Any = nn.ReLU, end: nn.Module | None = None, start: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = [start] if start is not None else []
    for k, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(a, b)] + ([act()] if k < len(sizes) - 2 else [])
    return nn.Sequential(*layers, *([end] if end is not None else []))


ONE = ("softmax over one unit",)
PROB = ("loss wants probabilities",)
REACH = ("head cannot reach the targets",)
RELU = ("ReLU after the head", "head cannot reach the targets")
SLOW = ("too few steps", "learning rate too small")
CAST = ("targets broadcast",)

adam = lambda p: torch.optim.Adam(p, 1e-3)  # noqa: E731
rms = lambda p: torch.optim.RMSprop(p, 1e-3)  # noqa: E731
sgd = lambda p: torch.optim.SGD(p, 1e-2)  # noqa: E731


def conv(outs: int, end: nn.Module | None) -> nn.Sequential:
    body = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 32), nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(32, outs), *([end] if end is not None else []))


program(
    "31880720",
    "softmax over one unit",
    ONE,
    lambda: conv(1, nn.Softmax(1)),
    lambda: column(images(2)),
    keras_binary,
    rms,
)
program(
    "41823068",
    "sigmoid with categorical cross-entropy",
    ("sigmoid with a softmax loss",),
    lambda: mlp(12, 64, 5, end=nn.Sigmoid()),
    lambda: one_hot(classification(5), 5),
    keras_categorical,
    rms,
)
program(
    "44164749",
    "too few steps",
    SLOW,
    lambda: mlp(12, 64, 64, 3, end=nn.Softmax(1)),
    lambda: one_hot(classification(3, 90), 3),
    keras_categorical,
    sgd,
    5,
    planned=5,
)
program(
    "45378493",
    "softmax over one unit",
    ONE,
    lambda: mlp(12, 32, 1, end=nn.Softmax(1)),
    lambda: column(classification()),
    keras_binary,
    lambda p: torch.optim.Adam(p, 1e-6),
)
program(
    "47241622",
    "softmax over one unit",
    ONE,
    lambda: mlp(12, 16, 8, 1, end=nn.Softmax(1)),
    lambda: column(classification()),
    keras_binary,
    adam,
)
program(
    "48251943",
    "ReLU head for regression",
    RELU,
    lambda: mlp(8, 16, 1, end=nn.ReLU()),
    lambda: regression(scale=1.0),
    nn.MSELoss(),
    sgd,
)
program(
    "50338865",
    "MAE for classes",
    ("regression loss for classes",),
    lambda: mlp(12, 32, 2),
    lambda: one_hot(classification(2), 2),
    nn.L1Loss(),
    adam,
)
program(
    "51901386",
    "ReLU after the head",
    RELU,
    lambda: mlp(12, 64, 9, end=nn.ReLU()),
    lambda: one_hot(classification(9), 9),
    keras_categorical,
    lambda p: torch.optim.Adam(p, 1e-4),
)
program(
    "53749895",
    "softmax head for regression",
    REACH,
    lambda: mlp(8, 32, 3, end=nn.Softmax(1)),
    lambda: regression(3),
    nn.MSELoss(),
    sgd,
)
program(
    "54282951",
    "no sigmoid before binary cross-entropy",
    PROB,
    lambda: mlp(12, 32, 32, 1),
    lambda: column(classification()),
    keras_binary,
    rms,
)
program(
    "56218256",
    "softmax over one unit",
    ONE,
    lambda: mlp(12, 24, 1, end=nn.Softmax(1)),
    lambda: column(classification()),
    keras_categorical,
    adam,
)
program(
    "57397440",
    "softmax over one unit",
    ONE,
    lambda: mlp(30, 16, 1, end=nn.Softmax(1)),
    lambda: column(classification(d=30)),
    keras_binary,
    adam,
)
program(
    "58572274",
    "ReLU head with binary cross-entropy",
    (*RELU, *PROB),
    lambda: mlp(12, 32, 1, end=nn.ReLU()),
    lambda: column(classification()),
    keras_binary,
    adam,
)
program(
    "59078187",
    "softmax of ten for a regression of one",
    (*REACH, *CAST),
    lambda: mlp(8, 32, 10, end=nn.Softmax(1)),
    lambda: regression(1),
    nn.MSELoss(),
    adam,
)
program(
    "59758722",
    "ReLU head for regression with negative targets",
    RELU,
    lambda: mlp(8, 32, 1, end=nn.ReLU()),
    lambda: regression(1),
    nn.MSELoss(),
    rms,
)
program(
    "60574843",
    "sigmoid head for regression",
    REACH,
    lambda: mlp(8, 32, 1, end=nn.Sigmoid()),
    lambda: regression(1),
    nn.MSELoss(),
    adam,
)
program(
    "60831731",
    "SGD 0.01, 20 epochs of two sigmoid layers",
    SLOW,
    lambda: mlp(2, 4, 2, act=nn.Sigmoid, end=nn.Sigmoid()),
    lambda: (lambda x: (x, x))(torch.randint(0, 2, (4, 2)).float()),
    nn.MSELoss(),
    sgd,
    20,
    planned=20,
)
program(
    "61763616",
    "labels broadcast over two sigmoids",
    CAST,
    lambda: mlp(12, 32, 2, end=nn.Sigmoid()),
    lambda: column(classification()),
    log_cosh,
    adam,
)
program(
    "62055783",
    "class numbers given to a categorical loss",
    CAST,
    lambda: mlp(12, 64, 7),
    lambda: column(classification(7)),
    keras_categorical,
    adam,
)
program(
    "65777704",
    "sigmoids at every layer: gradients vanish",
    ("gradients vanish",),
    lambda: mlp(144, 64, 64, 64, 64, 64, 10, act=nn.Sigmoid, start=nn.Flatten(), end=nn.Softmax(1)),
    lambda: one_hot(images(10), 10),
    keras_categorical,
    adam,
)
program(
    "68101077",
    "no softmax before sparse categorical cross-entropy",
    PROB,
    lambda: mlp(144, 64, 10, start=nn.Flatten()),
    lambda: images(10),
    keras_sparse,
    adam,
)
program(
    "68701979",
    "class numbers given to a categorical loss",
    CAST,
    lambda: mlp(12, 32, 2, end=nn.Softmax(1)),
    lambda: column(classification()),
    keras_categorical,
    sgd,
    0,
)
program(
    "70148149",
    "softmax over one unit",
    ONE,
    lambda: mlp(12, 16, 1, end=nn.Softmax(1)),
    lambda: column(classification()),
    keras_binary,
    lambda p: torch.optim.Adam(p, 1e-5),
)


class ReluLSTM(nn.Module):
    """An LSTM with ReLU where tanh is usual."""

    def __init__(self, d: int = 4, width: int = 50) -> None:
        super().__init__()
        self.width = width
        self.inputs, self.hidden = nn.Linear(d, 4 * width), nn.Linear(width, 4 * width)
        nn.init.orthogonal_(self.hidden.weight)
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(len(x), self.width)
        for t in range(x.shape[1]):
            i, f, o, g = (self.inputs(x[:, t]) + self.hidden(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.relu()
            h = o.sigmoid() * c.relu()
        return self.head(h).sigmoid()


def series() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = 20 * torch.rand(128, 40, 4, generator=g)
    return x, (x[:, :, 0].mean(1) > 10).float()[:, None]


program(
    "57516678",
    "ReLU in an LSTM: explodes",
    ("signal explodes", "gradients explode", "unscaled inputs", "saturated outputs", "learning rate too high"),
    ReluLSTM,
    series,
    keras_binary,
    lambda p: torch.optim.NAdam(p, 4e-4),
    30,
)
