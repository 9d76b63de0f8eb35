"""Faults that loss, optimizer and data tell: each on two relatives of its case, and not on a healthy twin."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from doctor_cases import (
    CE,
    Function,
    Text,
    column,
    fit,
    images,
    keras_binary,
    keras_categorical,
    mlp,
    net,
    one_hot,
    points,
    tokens,
)
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.diagnosis.faults import explain_collapse, find_faults
from firstguess.diagnosis.faults.asking import Answers, end_of
from firstguess.diagnosis.faults.base import Fault
from firstguess.diagnosis.faults.looking import look_into
from firstguess.diagnosis.faults.order import EXPLAINS, RANKS, arranged

pytestmark = pytest.mark.usefixtures("one_thread")

Built = tuple[nn.Module, Any, dict[str, Any]]


def said(model: nn.Module, data: Any, **known: Any) -> tuple[Fault, ...]:
    batches = collect(data, 400)
    known = {"loader": data, **known} if isinstance(data, DataLoader) else known
    return find_faults(look_into(model, batches), model=model, batches=batches, seconds=60, **known)[0]


def adam(m: nn.Module, rate: float = 1e-3) -> optim.Optimizer:
    return optim.Adam(m.parameters(), rate)


def with_(m: nn.Module, data: Any, loss: Any = CE, rate: float = 1e-3, **more: Any) -> Built:
    return m, data, {"loss": loss, "optimizer": adam(m, rate), **more}


def changed(m: Any, change: Callable[[Any], object]) -> Any:
    with torch.no_grad():
        change(m)
    return m


class Convolved(nn.Module):
    """A CNN whose end is a function."""

    def __init__(self, outs: int, end: Callable[[torch.Tensor], torch.Tensor] = lambda z: z) -> None:
        super().__init__()
        self.conv, self.head, self.end = nn.Conv2d(1, 8, 3), nn.Linear(8, outs), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.head(F.relu(self.conv(x)).mean((2, 3))))


class Lstm(nn.Module):
    def __init__(self, outs: int, last: bool = False) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(50, 16), nn.LSTM(16, 24, batch_first=True), nn.Linear(24, outs)
        self.last = last

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        h = self.rnn(self.embed(t))[0]
        return self.head(h[:, -1] if self.last else h.mean(1))


class Sequenced(nn.Module):
    """Points first, whatever the layer between embedding and head wants."""

    def __init__(self, layer: nn.Module, outs: int = 24) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(50, 16), layer, nn.Linear(outs, 4)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        h = self.layer(self.embed(t))
        return self.head((h[0] if isinstance(h, tuple) else h).mean(1))


class Causal(nn.Module):
    """A causal attention whose class is read at the last position, or at the last token that is none of the padding."""

    def __init__(self, real: bool = False) -> None:
        super().__init__()
        self.embed, self.real = nn.Embedding(50, 32), real
        self.attention, self.head = nn.MultiheadAttention(32, 2, batch_first=True), nn.Linear(32, 2)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        x = self.embed(t)
        mask = torch.ones(t.shape[1], t.shape[1], dtype=torch.bool).triu(1)
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        where = (t != 0).sum(1) - 1 if self.real else torch.full((len(t),), t.shape[1] - 1)
        return self.head(x[torch.arange(len(t)), where])


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.randint(1, 50, (96, 10), generator=torch.Generator().manual_seed(0))
    t[torch.arange(10)[None] >= 3 + torch.arange(96)[:, None] % 5] = 0
    return t, t[:, 0] % 2


def numbers(scale: float = 1.0, outs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points(400)
    return x, scale * (x[:, :outs] + 0.5 * x[:, 1 : outs + 1])


def rare(share: float) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points()
    score = x[:, 0] + 0.5 * torch.randn(512, generator=torch.Generator().manual_seed(8))
    return x, (score > score.quantile(1 - share)).long()


def hot(share: float, outs: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points()
    return x, (torch.rand(512, outs, generator=torch.Generator().manual_seed(9)) < share).float()


def trained(m: nn.Module, opt: optim.Optimizer, data: Any, steps: int, loss: Any = CE, **more: Any) -> Built:
    fit(m, opt, data, loss, steps)
    return m, data, {"loss": loss, "optimizer": opt, **more}


def sgd(m: nn.Module, rate: float, **more: Any) -> optim.Optimizer:
    return optim.SGD(m.parameters(), rate, **more)


def high(make: Callable[[], nn.Module], data: Any, rate: float, kind: Any = optim.Adam, steps: int = 30) -> Built:
    m = make()
    return trained(m, kind(m.parameters(), rate), data, steps)


def replaced_head() -> Built:
    m = net()
    opt = adam(m)
    m[4] = nn.Linear(64, 4)
    return m, points(), {"loss": CE, "optimizer": opt}


def left_over() -> Built:
    m, (x, y) = net(), points()
    opt = sgd(m, 1e-4)
    for _ in range(60):
        CE(m(x), y).backward()
    return m, (x, y), {"loss": CE, "optimizer": opt}


def in_blocks(shuffle: bool, size: int = 64) -> Built:
    x, y = points()
    i = y.argsort() if not shuffle else torch.arange(len(y))
    m = net()
    return m, DataLoader(TensorDataset(x[i], y[i]), size), {"loss": CE, "optimizer": adam(m)}


def off(momentum: float = 0.1, times: float = 10.0, images_: bool = False) -> Built:
    if images_:
        m: nn.Module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(800, 4))
        data: Any = images(4)
    else:
        m = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
        data = points()
    m, data, known = trained(m, adam(m, 1e-2), data, 60)
    norm = m[1]
    norm.momentum = momentum
    for _ in range(1 if momentum == 1 else 40):
        m(data[0][:32] * times)
    return m.eval(), data, known


FIRST_LAST: dict[str, tuple[Callable[[], Built], Callable[[], Built], Callable[[], Built]]] = {
    "softmax over one unit": (
        lambda: with_(Convolved(1, lambda z: z.softmax(-1)), column(images(2)), nn.BCELoss()),
        lambda: with_(net(nn.LogSoftmax(1), out=1), column(points(classes=2)), nn.MSELoss()),
        lambda: with_(Convolved(1, torch.sigmoid), column(images(2)), nn.BCELoss()),
    ),
    "head cannot reach the targets": (
        lambda: with_(net(nn.Tanh(), out=1), numbers(20.0), nn.MSELoss()),
        lambda: with_(net(nn.Sigmoid(), out=1), column(points(classes=2)), nn.BCEWithLogitsLoss()),
        lambda: with_(net(nn.Tanh(), out=1), (lambda x, y: (x, y.tanh()))(*numbers()), nn.MSELoss()),
    ),
    "sigmoid with a softmax loss": (
        lambda: with_(Convolved(4, torch.sigmoid), images(4), CE),
        lambda: with_(net(nn.Sigmoid()), one_hot(points(), 4), keras_categorical),
        lambda: with_(net(nn.Sigmoid()), one_hot(points(), 4), nn.BCELoss()),
    ),
    "loss wants probabilities": (
        lambda: with_(Convolved(1), column(images(2)), nn.BCELoss()),
        lambda: with_(net(), points(), lambda o, y: -o[torch.arange(len(y)), y].log().mean()),
        lambda: with_(net(nn.Softmax(1)), points(), lambda o, y: -o[torch.arange(len(y)), y].log().mean()),
    ),
    "loss wants log-probabilities": (
        lambda: with_(net(), points(), nn.NLLLoss()),
        lambda: with_(Convolved(4, lambda z: z.softmax(1)), images(4), F.nll_loss),
        lambda: with_(Convolved(4, lambda z: z.log_softmax(1)), images(4), F.nll_loss),
    ),
    "softmax twice": (
        lambda: with_(Convolved(4, lambda z: F.softmax(z, dim=1)), images(4), CE),
        lambda: with_(net(nn.Softmax(1)), one_hot(points(), 4), nn.CrossEntropyLoss(label_smoothing=0.1)),
        lambda: with_(net(nn.LogSoftmax(1)), points(), CE),
    ),
    "regression loss for classes": (
        lambda: with_(net(nn.Softmax(1)), one_hot(points(), 4), nn.L1Loss()),
        lambda: with_(Convolved(1), column(images(6)), nn.MSELoss()),
        lambda: with_(net(), one_hot(points(), 4), nn.MSELoss()),
    ),
    "targets broadcast": (
        lambda: with_(net(out=1), (lambda x, y: (x, y[:, 0]))(*numbers()), nn.MSELoss()),
        lambda: with_(net(nn.Sigmoid(), out=3), column(points(classes=2)), nn.MSELoss()),
        lambda: with_(net(out=1), numbers(), nn.MSELoss()),
    ),
    "outputs and labels not paired": (
        lambda: with_(net(out=1), numbers(), lambda o, y: (o.mean() - y.mean()) ** 2 + o.var()),
        lambda: with_(net(), one_hot(points(), 4), lambda o, y: (o.softmax(1).mean(0) - y.mean(0)).square().sum()),
        lambda: with_(net(out=1), numbers(), lambda o, y: (o - y).square().mean()),
    ),
    "loss does not depend on the outputs": (
        lambda: with_(net(), points(), lambda o, y: CE(o.detach(), y)),
        lambda: with_(Convolved(4), images(4), lambda o, y: (o.argmax(1) != y).float().mean()),
        lambda: with_(net(), points(), lambda o, y: CE(o, y)),
    ),
    "class weights": (
        lambda: with_(net(out=2), rare(0.3), nn.CrossEntropyLoss(torch.tensor([1.0, 60.0]))),
        lambda: with_(net(out=1), column(rare(0.3)), nn.BCEWithLogitsLoss(pos_weight=torch.tensor(80.0))),
        lambda: with_(net(out=2), rare(0.3), nn.CrossEntropyLoss(torch.tensor([1.0, 2.33]))),
    ),
    "targets not scaled": (
        lambda: with_(net(out=1), numbers(1e4), nn.MSELoss()),
        lambda: with_(net(out=2), numbers(3e3, 2), nn.SmoothL1Loss()),
        lambda: with_(net(out=1), numbers(1.0), nn.MSELoss()),
    ),
    "learning rate too high": (
        lambda: high(lambda: Text(3, layers=2), tokens(3), 0.1),
        lambda: high(lambda: net(act=nn.Tanh, width=128), points(), 30.0, optim.SGD),
        lambda: high(lambda: Text(3, layers=2), tokens(3), 1e-3),
    ),
    "learning rate too small": (
        lambda: with_(net(), points(), CE, 1e-7),
        lambda: with_(mlp(144, 64, 4, start=nn.Flatten()), images(4), CE, 1e-6, steps=300),
        lambda: with_(net(), points(), CE, 1e-3, steps=200),
    ),
    "too few steps": (
        lambda: with_(net(), points(), CE, 1e-4, steps=4),
        lambda: (lambda m: (m, points(), {"loss": CE, "optimizer": sgd(m, 0.01), "steps": 10}))(net()),
        lambda: with_(net(), points(), CE, 1e-2, steps=40),
    ),
    "weight decay too strong": (
        lambda: (lambda m: trained(m, sgd(m, 0.05, weight_decay=1.0), points(), 200))(net(act=nn.Tanh)),
        lambda: (lambda m: trained(m, optim.Adam(m.parameters(), 1e-2, weight_decay=1.0), tokens(), 60))(Lstm(4)),
        lambda: (lambda m: trained(m, sgd(m, 0.05, weight_decay=1e-4), points(), 200))(net(act=nn.Tanh)),
    ),
    "dead layer": (
        lambda: with_(changed(net(), lambda m: [p.zero_() for p in m.parameters()]), points()),
        lambda: with_(changed(net(), lambda m: m[2].bias.fill_(-100)), points()),
        lambda: with_(changed(net(), lambda m: [p.zero_() for p in m[4].parameters()]), points()),
    ),
    "identical units": (
        lambda: with_(
            changed(net(), lambda m: [m[k].weight.fill_(0.1) for k in (0, 2, 4)] + [m[k].bias.zero_() for k in (0, 2)]),
            points(),
        ),
        lambda: with_(
            changed(
                net(act=nn.Tanh),
                lambda m: [m[k].weight.fill_(0.05) for k in (0, 2, 4)] + [m[k].bias.zero_() for k in (0, 2)],
            ),
            points(),
        ),
        lambda: with_(net(act=nn.Tanh), points()),
    ),
    "gradients vanish": (
        lambda: with_(mlp(20, *[48] * 7, 4, act=nn.Sigmoid), points()),
        lambda: (lambda m: (m, points(), {"loss": CE, "optimizer": sgd(m, 0.1)}))(
            mlp(20, *[32] * 6, 4, act=nn.Sigmoid)
        ),
        lambda: with_(mlp(20, *[48] * 7, 4, act=nn.Tanh), points()),
    ),
    "weights never initialized": (
        lambda: with_(changed(Convolved(4), lambda m: m.head.weight.mul_(1e12)), images(4)),
        lambda: with_(changed(Lstm(4), lambda m: m.rnn.weight_hh_l0.fill_(float("nan"))), tokens()),
        lambda: with_(Lstm(4), tokens()),
    ),
    "one class of labels": (
        lambda: with_(Convolved(4), (images(4)[0], torch.full((256,), 2)), CE),
        lambda: with_(net(out=1), (points()[0], torch.zeros(512, 1)), nn.BCEWithLogitsLoss()),
        lambda: with_(net(out=1), column(points(classes=2)), nn.BCEWithLogitsLoss()),
    ),
    "class imbalance": (
        lambda: with_(net(out=2), rare(0.06), CE),
        lambda: with_(net(out=1), column(rare(0.1)), nn.BCEWithLogitsLoss()),
        lambda: with_(net(out=2), rare(0.06), nn.CrossEntropyLoss(torch.tensor([1.0, 15.0]))),
    ),
    "rare labels": (
        lambda: with_(net(out=30), hot(0.02), nn.BCEWithLogitsLoss()),
        lambda: with_(net(nn.Sigmoid(), out=30), hot(0.02), keras_binary),
        lambda: with_(changed(net(out=30), lambda m: m[4].bias.fill_(-3.9)), hot(0.02), nn.BCEWithLogitsLoss()),
    ),
    "labels come in blocks": (lambda: in_blocks(False), lambda: in_blocks(False, 32), lambda: in_blocks(True)),
    "inputs unlike the reference": (
        lambda: with_(net(), points(), CE, reference=points()[0] / 50),
        lambda: with_(Convolved(4), images(4), CE, reference=images(4)[0] * 255),
        lambda: with_(Convolved(4), images(4), CE, reference=images(4, 100)[0]),
    ),
    "last token is padding": (
        lambda: with_(Causal(), padded()),
        lambda: with_(
            Function(lambda m, t: m.head(m.embed(t)[:, -1]), embed=nn.Embedding(50, 16), head=nn.Linear(16, 2)),
            padded(),
        ),
        lambda: with_(Causal(real=True), padded()),
    ),
    "points of a batch are mixed": (
        lambda: with_(Sequenced(nn.GRU(16, 24)), tokens()),
        lambda: with_(Sequenced(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0), 16), tokens()),
        lambda: with_(Sequenced(nn.GRU(16, 24, batch_first=True)), tokens()),
    ),
    "running statistics": (lambda: off(1.0), lambda: off(0.2, 12.0, images_=True), lambda: off(0.1, 1.0)),
    "spectral norm before its first step": (
        lambda: with_(
            net().apply(lambda m: nn.utils.spectral_norm(m) if isinstance(m, nn.Linear) else m).eval(), points()
        ),
        lambda: with_(
            nn.Sequential(nn.Flatten(), nn.utils.spectral_norm(nn.Linear(144, 64)), nn.ReLU(), nn.Linear(64, 4)).eval(),
            images(4),
        ),
        lambda: with_(net().apply(lambda m: nn.utils.spectral_norm(m) if isinstance(m, nn.Linear) else m), points()),
    ),
    "frozen parameters": (
        lambda: with_(Convolved(4).requires_grad_(False), images(4)),
        lambda: (lambda m: (m, tokens(), {"loss": CE, "optimizer": adam(m.head.requires_grad_(False))}))(Lstm(4)),
        lambda: (lambda m: (m, tokens(), {"loss": CE, "optimizer": adam(m.head)}))(Lstm(4)),
    ),
    "parameters missing from the optimizer": (
        replaced_head,
        lambda: (lambda m: (m, images(4), {"loss": CE, "optimizer": adam(copy.deepcopy(m))}))(Convolved(4)),
        lambda: with_(net(), points()),
    ),
    "gradients left over": (
        left_over,
        lambda: (
            lambda b: (b[0].apply(lambda m: None), b[1], {**b[2], "optimizer": optim.Adam(b[0].parameters(), 1e-4)})
        )(left_over()),
        lambda: (lambda m: trained(m, sgd(m, 1e-3), points(), 5))(net()),
    ),
}


@pytest.mark.parametrize("relative", [0, 1])
@pytest.mark.parametrize("name", FIRST_LAST)
def test_a_relative_is_named_first(name: str, relative: int):
    torch.manual_seed(7)
    model, data, known = FIRST_LAST[name][relative]()
    found = said(model, data, **known)
    assert found
    assert found[0].name == name, [fault.words for fault in found]
    assert found[0].message
    assert found[0].evidence
    assert found[0].fix


@pytest.mark.parametrize("name", FIRST_LAST)
def test_a_healthy_twin_is_not(name: str):
    torch.manual_seed(8)
    model, data, known = FIRST_LAST[name][2]()
    assert [fault.words for fault in said(model, data, **known) if fault.name != "zero head"] == []


# -- What the loss says, and what comes first --------------------------------------------------------------------------


def answers(loss: Any, out: torch.Tensor, y: torch.Tensor) -> Answers:
    return Answers(lambda o, t: loss(o, t), out, y)


def test_a_loss_is_known_by_what_it_says():
    out, y = torch.zeros(64, 4), torch.arange(64) % 4
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    assert [answers(loss, out, y).softmax_axis for loss in (CE, smooth, nn.MultiMarginLoss(), nn.NLLLoss())] == [
        1,
        1,
        None,
        None,
    ]
    hot = F.one_hot(y, 4).float()
    assert answers(nn.BCELoss(), out, hot).wants_probabilities == "it fails"
    assert not answers(nn.BCEWithLogitsLoss(), out, hot).wants_probabilities
    assert not answers(nn.MultiMarginLoss(), out, y).wants_probabilities  # no gradient where it is satisfied
    assert answers(keras_categorical, out, hot).normalizes
    assert answers(nn.NLLLoss(), out, y).linear
    assert not answers(CE, out, y).linear
    pixels = torch.zeros(8, 3, 5, 5)
    assert answers(CE, pixels, torch.randint(0, 3, (8, 5, 5))).softmax_axis == 1
    assert answers(CE, out, y).constant[0] == pytest.approx(1.3863, abs=1e-3)
    assert answers(CE, out, y).free < 1e-3


@pytest.mark.parametrize(
    ("end", "name"),
    [
        (lambda z: z.softmax(1), "softmax"),
        (lambda z: z.softmax(1).clamp(1e-7, 1), "softmax"),
        (lambda z: z.softmax(1).log(), "log-softmax"),
        (lambda z: z.exp() / z.exp().sum(1, keepdim=True), "softmax"),
        (lambda z: torch.sigmoid(z).squeeze(-1)[:, :], "sigmoid"),
        (lambda z: F.relu(z).view(-1, 4), "ReLU"),
        (lambda z: z.clamp(min=0), "ReLU"),
        (lambda z: F.leaky_relu(z), ""),
        (lambda z: z, ""),
    ],
)
def test_the_end_of_a_model_is_read_off_its_graph(end: Callable[[torch.Tensor], torch.Tensor], name: str):
    assert end_of(end(nn.Linear(6, 4)(torch.randn(9, 6)))).name == name


def test_a_one_hot_choice_is_no_softmax():
    out = F.one_hot(torch.arange(9) % 4, 4).float() * nn.Parameter(torch.ones(1))
    assert end_of(out).name == ""


def test_weights_as_memory_was_found_are_named_before_the_rate():
    torch.manual_seed(0)
    model = changed(Convolved(4), lambda m: m.head.weight.fill_(3e22))
    found = said(model, images(4), loss=CE, optimizer=adam(model))
    assert [fault.name for fault in found][:1] == ["weights never initialized"]


def test_weights_so_small_that_nothing_comes_through_are_vanishing_gradients():
    torch.manual_seed(0)
    model = mlp(*[20, *[96] * 6, 4])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.01)
    found = said(model, points(), loss=CE, optimizer=sgd(model, 0.01))
    assert [fault.name for fault in found] == ["gradients vanish"]
    assert "kaiming_normal_" in found[0].fix


def test_symptoms_stand_under_their_cause():
    rate, dead, bias = (Fault(name, "m") for name in ("learning rate too high", "dead units", "head bias"))
    (headline,) = arranged([dead, bias, rate])
    assert headline.name == "learning rate too high"
    assert [fault.name for fault in headline.symptoms] == ["dead units", "head bias"]
    both = arranged([dead, rate], fresh={"dead units"})  # which a re-initialized copy has too
    assert {fault.name for fault in both} == {"learning rate too high", "dead units"}
    again = Fault.from_dict(headline.to_dict())
    assert again == headline
    assert "It explains: dead units, head bias" in str(again)


def test_no_two_faults_explain_each_other():
    assert set(EXPLAINS) <= set(RANKS)
    for cause, symptoms in EXPLAINS.items():
        assert set(symptoms) <= set(RANKS)
        assert not [name for name in symptoms if cause in EXPLAINS.get(name, ()) or name == cause], cause


# -- The user's things come back, and nothing ends the page ------------------------------------------------------------


def test_model_optimizer_gradients_and_randomness_are_as_before():
    model, (x, y) = net(nn.Dropout(0.1)), points()
    model.insert(1, nn.BatchNorm1d(64))
    opt = optim.Adam(model.parameters(), 1e-3)
    fit(model, opt, (x, y), steps=3)
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True, generator=torch.Generator().manual_seed(3))
    before = copy.deepcopy((model.state_dict(), opt.state_dict(), [p.grad for p in model.parameters()]))
    place, mode = loader.generator.get_state(), [m.training for m in model.modules()]  # pyright: ignore
    torch.manual_seed(5)
    first = torch.get_rng_state()
    e = fg.explain_guess(model, loader, loss=CE, optimizer=opt, inits=4)
    assert e.faults == ()
    assert torch.equal(torch.get_rng_state(), first)
    assert torch.equal(loader.generator.get_state(), place)  # pyright: ignore
    assert [m.training for m in model.modules()] == mode
    after = (model.state_dict(), opt.state_dict(), [p.grad for p in model.parameters()])
    for name, value in before[0].items():
        assert torch.equal(value, after[0][name])
    assert before[1]["param_groups"] == after[1]["param_groups"]
    for key, state in before[1]["state"].items():
        assert all(
            torch.equal(torch.as_tensor(v), torch.as_tensor(after[1]["state"][key][k])) for k, v in state.items()
        )
    assert all(torch.equal(a, b) for a, b in zip(before[2], after[2], strict=True))  # type: ignore[arg-type]


def test_a_scheduler_s_optimizer_is_not_stepped():
    model = net()
    opt = adam(model)
    torch.optim.lr_scheduler.StepLR(opt, 10)
    before = copy.deepcopy(model.state_dict())
    fg.explain_guess(model, points(), loss=CE, optimizer=opt, inits=3)
    assert not opt.state
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_a_question_that_crashes_is_skipped_and_said():
    class Odd(optim.Optimizer):
        def __init__(self, params: Any, must: int) -> None:
            super().__init__(params, {"lr": 0.1})

    model = net()
    e = fg.explain_guess(model, points(), loss=CE, optimizer=Odd(model.parameters(), 1), inits=3)
    assert e.faults == ()
    assert any("not checked, a Odd cannot be made again" in note for note in e.notes)


@pytest.mark.parametrize(
    ("loss", "data", "hint"),
    [
        (CE, column(points()), r"y\.squeeze\(-1\)\.long\(\)"),
        (nn.BCEWithLogitsLoss(), points(), "one-hot"),
        (nn.MSELoss(), (lambda x, y: (x, F.one_hot(y, 4)[:, :3].float()))(*points()), "training loop"),
    ],
)
def test_a_loss_that_cannot_take_them_is_one_line(loss: Any, data: Any, hint: str):
    with pytest.raises(InvalidInput, match=hint) as caught:
        fg.explain_guess(net(), data, loss=loss)
    assert "(256, 4)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_seconds_bound_it():
    model = Text()
    e = fg.explain_guess(model, tokens(), loss=CE, optimizer=adam(model), seconds=1.0, inits=3)
    assert e.seconds < 20  # a pass and two initializations are run in any case; others share this machine


def test_a_collapse_in_training_has_the_same_name():
    torch.manual_seed(0)
    model, data = net(), points()
    opt = sgd(model, 30.0)
    fit(model, opt, data, steps=20)
    found = explain_collapse(model, collect(data, 200), loss=CE, optimizer=opt, seconds=60)
    assert found[0].name == "learning rate too high"


def test_diagnose_says_the_same():
    model = net(nn.Softmax(1))
    d = fg.diagnose(model, points(), loss=CE, optimizer=adam(model), inits=4, seconds=60, advice=False)
    assert d.faults[0].name == "softmax twice"
    assert fg.diagnose(net(), points(), lr=50.0, optimizer="sgd", inits=4, seconds=60, advice=False).faults[0].name == (
        "learning rate too high"
    )


# -- Defects that were found on the way --------------------------------------------------------------------------------


def test_spectral_norms_are_measured():
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(20, 64)), nn.ReLU(), nn.Linear(64, 4))
    assert fg.measure(model, points()[0], inits=30).inits == 30


def test_softmax_with_a_loss_of_probabilities_is_fine():
    assert said(*with_(net(nn.Softmax(1)), one_hot(points(), 4), keras_categorical)[:2], loss=keras_categorical) == ()


def test_a_classifier_that_is_sure_because_it_learned():
    torch.manual_seed(0)
    model = net(nn.Softmax(1), out=2)
    model, data, known = trained(model, adam(model, 1e-2), one_hot(points(classes=2), 2), 300, keras_categorical)
    assert said(model, data, **known) == ()


def test_dropout_does_not_hide_one_output():
    body = nn.Sequential(nn.Linear(20, 32), nn.ReLU())
    model = Function(
        lambda m, x: m.head(m.drop(m.body(x).mean(0, keepdim=True).expand(len(x), -1))),
        body=body,
        drop=nn.Dropout(0.3),
        head=nn.Linear(32, 4),
    )
    assert [fault.name for fault in said(model, points(), loss=CE)] == ["same output for all inputs"]


def test_a_relu_after_the_head_is_seen_before_it_cuts():
    model = changed(net(nn.ReLU()), lambda m: m[4].bias.fill_(50.0))
    assert said(model, points(), loss=CE)[0].name == "ReLU after the head"


def test_one_rectified_output_within_0_and_1_is_no_probability():
    torch.manual_seed(0)
    model = net(nn.ReLU(), out=1)
    e = fg.explain_guess(model, numbers(), loss=nn.MSELoss(), optimizer=adam(model), inits=3)
    assert e.kinds[0] == "ReLU after the head"


def test_a_bias_against_a_class():
    torch.manual_seed(0)
    model, (x, y) = net(), points()
    usual = int(model(x).argmax(1).mode().values)
    found = said(changed(model, lambda m: m[4].bias[usual].sub_(9.0)), (x, y), loss=CE)
    assert [fault.name for fault in found] == ["head bias"]
    assert f"class {usual}" in found[0].message


def test_a_zero_head_that_learns_is_a_cause_and_no_fault():
    model = changed(net(), lambda m: [p.zero_() for p in m[4].parameters()])
    e = fg.explain_guess(model, points(), loss=CE, optimizer=adam(model), inits=3)
    assert e.kinds == ("zero head",)
    assert e.faults == ()
    assert fg.explain_guess(model, points(), inits=3).faults[0].name == "zero head"  # nobody says what it is trained by


def test_every_layer_at_a_thousandth():
    model = changed(net(act=nn.Tanh), lambda m: [nn.init.normal_(m[k].weight, std=1e-3) for k in (0, 2, 4)])
    assert [fault.name for fault in said(model, points(), loss=CE)] == ["vanishing logits"]


def test_a_prior_of_a_class_without_points_stays_finite():
    x, y = points()
    result = fg.match_prior(net(out=5), (x, y), prior="labels")
    model = getattr(result, "model", result)
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
