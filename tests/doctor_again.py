"""Faults written blind a second time, when the rules had been changed for the first ones; ten healthy trainings after
them. The names that count were fixed before the doctor was asked; docs/named-faults.md has the first try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Built = tuple[Any, Any, dict[str, Any]]


@dataclass(frozen=True)
class Again:
    """A training, and names that say its fault; none if it is healthy."""

    id: str
    names: tuple[str, ...]
    build: Callable[[], Built]


AGAIN: list[Again] = []


def case(*names: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        def build() -> Built:
            model, data, loss, optimizer, known = make()
            return model, data, {"loss": loss, "optimizer": optimizer, **known}

        AGAIN.append(Again(make.__name__.replace("_", " "), names, build))
        return make

    return add


def gen(s):
    return torch.Generator().manual_seed(s)


def adam(m: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(m.parameters(), 1e-3)


def digits():
    d = load_digits()
    return torch.tensor(d.images, dtype=torch.float32)[:, None] / 16, torch.tensor(d.target)


def tab(n=600, d=16, k=5, s=3):
    x = torch.randn(n, d, generator=gen(s))
    w = torch.randn(d, k, generator=gen(s + 1))
    return x, (x @ w).argmax(1)


def seqs(n=400, t=16, v=60, k=4, s=5):
    x = torch.randint(1, v, (n, t), generator=gen(s))
    return x, x[:, 0] % k


class CNN(nn.Module):
    def __init__(s, k=10, act=nn.ReLU, bn=False, end=None):
        super().__init__()
        s.c1, s.c2 = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        s.b1 = nn.BatchNorm2d(12) if bn else nn.Identity()
        s.act, s.pool = act(), nn.MaxPool2d(2)
        s.fc = nn.Linear(24 * 4, k)
        s.end = end or nn.Identity()

    def forward(s, x):
        x = s.pool(s.act(s.b1(s.c1(x))))
        x = s.pool(s.act(s.c2(x)))
        return s.end(s.fc(x.flatten(1)))


class GRUNet(nn.Module):
    def __init__(s, v=60, k=4, batch_first=True, h=48):
        super().__init__()
        s.e = nn.Embedding(v, 32)
        s.r = nn.GRU(32, h, batch_first=batch_first)
        s.f = nn.Linear(h, k)

    def forward(s, t):
        return s.f(s.r(s.e(t))[0][:, -1])


class Tr(nn.Module):
    def __init__(s, v=60, k=4, d=32, layers=3):
        super().__init__()
        s.e = nn.Embedding(v, d)
        s.pos = nn.Parameter(torch.randn(1, 16, d) * 0.1)
        s.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 4, 64, batch_first=True, dropout=0.1), layers)
        s.f = nn.Linear(d, k)

    def forward(s, t):
        return s.f(s.enc(s.e(t) + s.pos).mean(1))


def mlp(d=16, k=5, h=96, n=3, act=nn.ReLU, end=()):
    L, i = [], d
    for _ in range(n):
        L += [nn.Linear(i, h), act()]
        i = h
    return nn.Sequential(*L, nn.Linear(i, k), *end)


def fit(m, x, y, opt, loss=F.cross_entropy, steps=100, bs=64):
    g = gen(0)
    for _ in range(steps):
        j = torch.randint(0, len(x), (bs,), generator=g)
        opt.zero_grad()
        loss(m(x[j]), y[j]).backward()
        opt.step()


CE = nn.CrossEntropyLoss()


@case("learning rate too high")
def tr_lr_adam():
    m = Tr()
    x, y = seqs()
    o = torch.optim.AdamW(m.parameters(), 8e-2)
    fit(m, x, y, o, steps=60)
    return m, (x, y), CE, o, {}


@case("learning rate too high")
def cnn_momentum():
    m = CNN()
    x, y = digits()
    o = torch.optim.SGD(m.parameters(), 3.0, momentum=0.9)
    return m, (x, y), CE, o, {}


@case("learning rate too high")
def cnn_momentum_trained():
    m = CNN()
    x, y = digits()
    o = torch.optim.SGD(m.parameters(), 2.0, momentum=0.9)
    fit(m, x, y, o, steps=50)
    return m, (x, y), CE, o, {}


@case("learning rate too small")
def gru_small():
    m = GRUNet()
    x, y = seqs()
    o = torch.optim.SGD(m.parameters(), 1e-5)
    return m, (x, y), CE, o, dict(steps=300)


@case("targets broadcast")
def mse_broadcast():
    m = mlp(k=1)
    x, _ = tab()
    y = x[:, 0] * 2 + x[:, 1]
    o = adam(m)
    return m, (x, y), nn.MSELoss(), o, {}


@case("loss wants log-probabilities")
def nll_logits():
    m = CNN()
    x, y = digits()
    return m, (x, y), nn.NLLLoss(), adam(m), {}


@case("loss wants log-probabilities")
def nll_softmax():
    m = mlp(end=[nn.Softmax(-1)])
    x, y = tab()
    return m, (x, y), nn.NLLLoss(), adam(m), {}


@case("sigmoid twice", "softmax twice", "head cannot reach the targets", "sigmoid with a softmax loss")
def sig_bcel():
    m = mlp(k=1, end=[nn.Sigmoid()])
    x, y = tab(k=2)
    return m, (x, y.float()[:, None]), nn.BCEWithLogitsLoss(), adam(m), {}


@case("class weights")
def wrong_weights():
    m = mlp()
    x, y = tab()
    return (
        m,
        (x, y),
        nn.CrossEntropyLoss(weight=torch.tensor([100.0, 1, 1, 1, 1])),
        adam(m),
        {},
    )


@case("frozen parameters", "parameters missing from the optimizer")
def frozen():
    m = CNN()
    m.requires_grad_(False)
    x, y = digits()
    m.fc.requires_grad_(True)
    o = torch.optim.Adam(m.c1.parameters(), 1e-3)
    return m, (x, y), CE, o, {}


@case("parameters missing from the optimizer")
def head_replaced():
    m = CNN(k=100)
    o = adam(m)
    m.fc = nn.Linear(96, 10)
    x, y = digits()
    return m, (x, y), CE, o, {}


@case("unscaled inputs")
def pix():
    m = CNN()
    x, y = digits()
    x = (x * 255).round()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.01), {}


@case("class imbalance")
def imb():
    x, _ = tab()
    y = (x[:, 0] > 1.9).long()
    m = mlp(k=2)
    return m, (x, y), CE, adam(m), {}


@case("rare labels", "class imbalance")
def rare():
    x, _ = tab(n=1000)
    y = (x @ torch.randn(16, 40, generator=gen(9)) > 8.5).float()
    m = mlp(k=40)
    return m, (x, y), nn.BCEWithLogitsLoss(), adam(m), {}


@case("labels do not go with inputs")
def shuffled():
    m = CNN()
    x, y = digits()
    y = y[torch.randperm(len(y), generator=gen(4))]
    return m, (x, y), CE, adam(m), {}


@case("head cannot reach the targets", "targets not scaled")
def tanh_reg():
    m = mlp(k=1, end=[nn.Tanh()])
    x, _ = tab()
    y = x[:, :1] * 300 + 500
    return m, (x, y), nn.MSELoss(), adam(m), {}


class Det(nn.Module):
    def __init__(s):
        super().__init__()
        s.a, s.b = nn.Linear(16, 64), nn.Linear(64, 5)

    def forward(s, x):
        return s.b(torch.relu(s.a(x)).detach())


@case("dead layer", "frozen parameters", "gradients do not reach", "detached")
def detached():
    m = Det()
    x, y = tab()
    return m, (x, y), CE, adam(m), {}


class Argm(nn.Module):
    def __init__(s):
        super().__init__()
        s.n = mlp()
        s.p = nn.Parameter(torch.ones(1))

    def forward(s, x):
        return F.one_hot(s.n(x).argmax(1), 5).float() * s.p


@case("dead layer", "loss does not depend on the outputs", "head cannot reach the targets")
def argmax_fwd():
    m = Argm()
    x, y = tab()
    return m, (x, y), CE, adam(m), {}


@case("identical units", "zero head", "dead layer")
def zeros():
    m = mlp()
    [nn.init.zeros_(p) for p in m.parameters()]
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("identical units")
def ones():
    m = mlp(act=nn.Tanh)
    [nn.init.constant_(f.weight, 0.1) for f in m if isinstance(f, nn.Linear)]
    [nn.init.zeros_(f.bias) for f in m if isinstance(f, nn.Linear)]
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("Dropout(1)")
def drop():
    m = CNN()
    m.pool = nn.Sequential(nn.MaxPool2d(2), nn.Dropout(0.995))
    x, y = digits()
    return m, (x, y), CE, adam(m), {}


@case("gradients vanish")
def sig_deep():
    m = mlp(n=12, act=nn.Sigmoid)
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("gradients vanish", "vanishing logits")
def small_std():
    m = mlp(n=6)
    [nn.init.normal_(p, std=0.01) for p in m.parameters()]
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.01), {}


@case("ReLU after the head")
def relu_head():
    m = CNN(end=nn.ReLU())
    x, y = digits()
    return m, (x, y), CE, adam(m), {}


class Last(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(60, 32, padding_idx=0)
        s.r = nn.LSTM(32, 48, batch_first=True)
        s.f = nn.Linear(48, 4)

    def forward(s, t):
        return s.f(s.r(s.e(t))[0][:, -1])


@case("last token is padding")
def padded():
    x, y = seqs(t=40)
    x[:, 6:] = 0
    m = Last()
    return m, (x, y), CE, adam(m), {}


@case("softmax over the batch")
def dim0():
    m = mlp(end=[nn.Softmax(0)])
    x, y = tab()
    return m, (x, y), lambda o, t: F.nll_loss(o.clamp_min(1e-8).log(), t), adam(m), {}


@case("learning rate too small", "learning rate is 0", "learning rate")
def lr0():
    m = mlp()
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.0), {}


@case("maximize", "loss rises", "learning rate too high", "optimizer climbs the loss")
def maxi():
    m = mlp()
    x, y = tab()
    return m, (x, y), CE, torch.optim.Adam(m.parameters(), 1e-3, maximize=True), {}


@case("weight decay too strong")
def wd():
    m = mlp()
    x, y = tab()
    return m, (x, y), CE, torch.optim.AdamW(m.parameters(), 1e-2, weight_decay=20.0), {}


@case(
    "outputs and labels not paired",
    "points of a batch are mixed",
    "batch mixed",
    "outputs of a point depend on the others",
)
def gru_axis():
    m = GRUNet(batch_first=False)
    x, y = seqs()
    return m, (x, y), CE, adam(m), {}


@case("vanishing logits", "learning rate too small")
def temp():
    class T(nn.Module):
        def __init__(s):
            super().__init__()
            s.n = mlp()

        def forward(s, x):
            return s.n(x) / 1e5

    m = T()
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("softmax twice")
def onehot_sm():
    m = CNN(end=nn.Softmax(1))
    x, y = digits()
    return m, (x, F.one_hot(y, 10).float()), CE, adam(m), {}


@case("labels out of range")
def onebased():
    m = mlp()
    x, y = tab()
    return m, (x, y + 1), CE, adam(m), {}


@case("labels come in blocks")
def blocks():
    m = CNN()
    x, y = digits()
    i = y.argsort(stable=True)
    dl = DataLoader(TensorDataset(x[i], y[i]), 64)
    return m, dl, CE, torch.optim.SGD(m.parameters(), 0.05), {}


@case("saturated outputs", "unscaled inputs")
def satur():
    m = mlp(act=nn.Tanh)
    x, y = tab()
    return m, (x * 3000, y), CE, torch.optim.SGD(m.parameters(), 0.05), {}


@case("regression loss for classes", "targets broadcast")
def mse_classnum():
    m = mlp(k=1)
    x, y = tab()
    return m, (x, y.float()[:, None]), nn.L1Loss(), adam(m), {}


@case("gradients left over")
def nozero():
    m = CNN()
    x, y = digits()
    o = torch.optim.SGD(m.parameters(), 0.02)
    for j in range(60):
        F.cross_entropy(m(x[j * 16 : j * 16 + 16]), y[j * 16 : j * 16 + 16]).backward()
        o.step()
    return m, (x, y), CE, o, {}


@case("running statistics")
def bnrun():
    m = CNN(bn=True)
    x, y = digits()
    o = adam(m)
    fit(m, x, y, o, steps=80)
    m.train()
    [m(x[:8] * 40 + 20) for _ in range(60)]
    m.eval()
    return m, (x, y), CE, o, {}


@case("head bias")
def hb():
    m = CNN()
    m.fc.bias.data[3] = 6.0
    x, y = digits()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.01), {}


@case("NaN or Inf")
def nan_norm():
    class N(nn.Module):
        def __init__(s):
            super().__init__()
            s.n = mlp()

        def forward(s, x):
            h = s.n(x)
            return h / (h.std(1, keepdim=True) * 0)

    m = N()
    x, y = tab()
    return m, (x, y), CE, adam(m), {}


@case("one class of labels")
def onecl():
    m = mlp()
    x, y = tab()
    return m, (x, torch.full_like(y, 2)), CE, adam(m), {}


@case("gradients explode", "learning rate too high", "weights never initialized")
def explode():
    m = mlp(n=8)
    [nn.init.normal_(f.weight, std=1.0) for f in m if isinstance(f, nn.Linear)]
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("dead units", "dead layer")
def dead():
    m = mlp(n=2)
    m[2].bias.data.fill_(-50.0)
    x, y = tab()
    return m, (x, y), CE, torch.optim.SGD(m.parameters(), 0.1), {}


@case("weights never initialized")
def empt():
    m = CNN()
    m.fc.weight.data.fill_(3e22)
    x, y = digits()
    return m, (x, y), CE, adam(m), {}


# -- Healthy ones --
@case()
def healthy_batchnorm():
    m = CNN(bn=True)
    x, y = digits()
    return m, (x, y), CE, adam(m), {}


@case()
def healthy_transformer():
    m = Tr()
    x, y = seqs()
    return m, (x, y), CE, torch.optim.AdamW(m.parameters(), 5e-4), {}


@case()
def healthy_gru():
    m = GRUNet()
    x, y = seqs()
    o = torch.optim.Adam(m.parameters(), 3e-3)
    fit(m, x, y, o)
    return m, (x, y), CE, o, {}


@case()
def healthy_regression():
    m = mlp(k=1)
    x, _ = tab()
    y = x[:, :1] * 2
    return m, (x, y), nn.MSELoss(), adam(m), {}


@case()
def healthy_log_softmax():
    m = CNN(end=nn.LogSoftmax(1))
    x, y = digits()
    return m, (x, y), nn.NLLLoss(), torch.optim.SGD(m.parameters(), 0.05, momentum=0.9), {}


@case()
def healthy_sigmoid():
    m = mlp(k=1, end=[nn.Sigmoid()])
    x, y = tab(k=2)
    return m, (x, y.float()[:, None]), nn.BCELoss(), adam(m), {}


@case()
def healthy_bce():
    m = mlp(k=5)
    x, y = tab()
    return m, (x, F.one_hot(y, 5).float()), nn.BCEWithLogitsLoss(), torch.optim.SGD(m.parameters(), 0.5), {}


@case()
def healthy_trained_cnn():
    m = CNN()
    x, y = digits()
    o = torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)
    fit(m, x, y, o, steps=300)
    return m, (x, y), CE, o, {}


@case()
def healthy_layernorm():
    m = nn.Sequential(
        nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.5), nn.Linear(128, 10)
    )
    x, y = digits()
    return m, (x * 255, y), CE, torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=0.05), {}


@case()
def healthy_selu():
    m = mlp(k=5, act=nn.SELU, n=8)
    x, y = tab()
    return m, (x, y), nn.CrossEntropyLoss(label_smoothing=0.1), torch.optim.RMSprop(m.parameters(), 1e-3), {}
