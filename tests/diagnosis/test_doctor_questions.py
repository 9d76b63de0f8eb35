"""What the doctor learned from faults that were written blind: one question each, with what only looks like it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from doctor_blind import Listed, Masked, Rnn, ends_in_pads, long_series, no_graph, trained
from doctor_cases import CE, Function, column, conv, images, mlp, net, one_hot, points, tokens
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

import firstguess as fg
from firstguess.data import collect
from firstguess.diagnosis.faults import find_faults, labels
from firstguess.diagnosis.faults.asking import Answers
from firstguess.diagnosis.faults.base import Fault
from firstguess.diagnosis.faults.looking import look_into

pytestmark = pytest.mark.usefixtures("one_thread")


def said(model: nn.Module, data: Any, **known: Any) -> tuple[tuple[Fault, ...], tuple[str, ...]]:
    torch.manual_seed(3)
    batches = collect(data, 400)
    known = {"loader": data, **known} if isinstance(data, DataLoader) else known
    return find_faults(look_into(model, batches), model=model, batches=batches, seconds=60, **known)


def names(model: nn.Module, data: Any, **known: Any) -> list[str]:
    return [fault.name for fault in said(model, data, **known)[0]]


def adam(m: nn.Module, rate: float = 1e-3) -> optim.Optimizer:
    return optim.Adam(m.parameters(), rate)


# -- Labels and data ---------------------------------------------------------------------------------------------------


def test_labels_that_do_not_go_with_inputs_are_a_fault_of_training_data_and_else_a_note(monkeypatch: Any):
    monkeypatch.setattr(labels, "_fit", lambda x, y, seed: (0.0, 0.4))
    torch.manual_seed(0)
    model = net()
    (fault,) = said(model, DataLoader(TensorDataset(*points()), 64, shuffle=True), loss=CE, optimizer=adam(model))[0]
    assert fault.name == "labels do not go with inputs"
    assert "shuffled labels do as well in 40%" in fault.evidence
    faults, notes = said(model, points(), loss=CE, optimizer=adam(model))
    assert faults == ()
    assert any("labels may not go with the inputs" in note for note in notes)


def test_shuffled_labels_are_told_from_others():
    """Nine in ten shuffled sets have a chance above 0.1: fewer than three of ten happen once in 2.7 million."""
    x, y = points()
    hot = F.one_hot(y, 4).double()
    chances = [
        labels._fit(x[torch.randperm(512, generator=torch.Generator().manual_seed(k))].double(), hot, k)[1]
        for k in range(10)
    ]
    assert sum(chance > 0.1 for chance in chances) >= 3
    assert labels._fit(x.double(), hot, 0)[1] == pytest.approx(0.01)
    ring = (x[:, :2].double().square().sum(1) > 1.4).double()[:, None]  # which no line divides
    assert labels._fit(x[:, :2].double(), ring, 0)[1] == pytest.approx(0.01)


@pytest.mark.parametrize("data", [points(), images(4), column(points(classes=2))])
def test_labels_that_go_with_inputs_are_not_noted(data: Any):
    torch.manual_seed(0)
    x, y = data
    model = nn.Sequential(nn.Flatten(), mlp(x[0].numel(), 32, 4 if y.ndim == 1 else 1))
    loss = CE if y.ndim == 1 else nn.BCEWithLogitsLoss()
    faults, notes = said(model, DataLoader(TensorDataset(x, y), 64, shuffle=True), loss=loss, optimizer=adam(model))
    assert faults == ()
    assert not [note for note in notes if "labels" in note]


def test_leave_one_out_is_that_of_a_loop():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(30, 3, generator=g).double()
    y = x[:, :1] + 0.1 * torch.randn(30, 1, generator=g).double()
    share, chance = labels._fit(x, y, 0)
    z = (x - x.mean(0)) / x.std(0)
    t = (y - y.mean(0)) / y.std(0)
    kernel = z @ z.T
    best = -1.0
    for penalty in (0.01, 0.1, 1.0):
        ridge = penalty * float(torch.linalg.eigvalsh(kernel)[-1])
        off = []
        for k in range(30):  # a fit without the point, with an intercept
            rest = [i for i in range(30) if i != k]
            middle, level = z[rest].mean(0), t[rest].mean(0)
            a = z[rest] - middle
            w = torch.linalg.solve(a.T @ a + ridge * torch.eye(3).double(), a.T @ (t[rest] - level))
            off.append(float(t[k] - level - (z[k] - middle) @ w))
        best = max(best, 1 - sum(o * o for o in off) / 30)
    assert share >= best - 1e-9  # distances may do better still
    assert share == pytest.approx(best, abs=0.02)
    assert chance == pytest.approx(0.01)


def test_every_label_ignored_and_classes_that_do_not_count():
    torch.manual_seed(0)
    assert names(net(), (points()[0], torch.full((512,), -100)), loss=CE) == ["labels out of range"]
    some = points()[1].clone()
    some[::3] = -100  # which is what −100 is for
    assert names(net(), (points()[0], some), loss=CE) == []
    only = nn.CrossEntropyLoss(ignore_index=2)
    (fault,) = said(net(), points(), loss=only)[0]
    assert fault.name == "class weights"
    assert "class 2 do not count" in fault.message


def test_a_sorted_loader_is_no_loader_of_one_class():
    x, y = images(4)
    order = y.argsort()
    model = conv(4, None)
    found = names(model, DataLoader(TensorDataset(x[order], y[order]), 64), loss=CE, optimizer=adam(model))
    assert found == ["labels come in blocks"]


# -- The loss ----------------------------------------------------------------------------------------------------------


def test_a_loss_that_mixes_positions():
    out, y = torch.randn(6, 3, 4, 5), torch.randint(0, 3, (6, 4, 5), generator=torch.Generator().manual_seed(0))
    right = Answers(lambda o, t: F.cross_entropy(o, t), out, y)
    moved = Answers(lambda o, t: F.cross_entropy(o.movedim(1, -1).reshape(-1, 3), t.reshape(-1)), out, y)
    mixed = Answers(lambda o, t: F.cross_entropy(o.reshape(-1, 3), t.reshape(-1)), out, y)
    flipped = Answers(lambda o, t: F.cross_entropy(o, t.flip(0)), out, y)
    assert (right.misplaced, moved.misplaced) == (0.0, 0.0)
    assert mixed.misplaced > 0.7
    assert flipped.misplaced > 0.7


def test_the_classes_axis_of_outputs_that_labels_have_the_shape_of():
    def axis(shape: tuple[int, ...], y: torch.Tensor) -> int:
        return Answers(lambda o, t: (o - t).square().mean(), torch.randn(shape), y).axis

    assert axis((8, 1, 5, 5), torch.zeros(8, 1, 5, 5)) == 1
    assert axis((8, 3, 5, 5), F.one_hot(torch.randint(0, 3, (8, 5, 5)), 3).movedim(-1, 1).float()) == 1
    assert axis((8, 7, 3), F.one_hot(torch.randint(0, 3, (8, 7)), 3).float()) == 2


def test_minus_a_probability_wants_logarithms():
    y = torch.arange(40) % 4
    nll = Answers(lambda o, t: F.nll_loss(o.softmax(1), t), torch.randn(40, 4), y)
    right = Answers(lambda o, t: F.nll_loss(o.log_softmax(1), t), torch.randn(40, 4), y)
    assert nll.minus_probability
    assert not right.minus_probability


# -- Gradients ---------------------------------------------------------------------------------------------------------


def test_a_graph_that_is_cut_and_a_layer_that_is_not_used():
    torch.manual_seed(0)
    model = no_graph(False)
    (fault,) = said(model, points(), loss=CE, optimizer=adam(model))[0]
    assert fault.name == "dead layer"
    assert "the graph is cut" in fault.message
    dead = net()
    with torch.no_grad():
        dead[2].bias.fill_(-50.0)
    (fault,) = said(dead, points(), loss=CE, optimizer=adam(dead))[0]  # vanishing gradients are among its symptoms
    assert (fault.name, fault.layer) == ("dead layer", "3")
    assert "before model[3]" in fault.fix
    unused = net()
    unused.register_module("spare", nn.Linear(7, 7))
    unused.forward = lambda x: nn.Sequential.forward(unused[:5], x)  # type: ignore[method-assign]
    assert names(unused, points(), loss=CE, optimizer=adam(unused)) == []


def test_values_that_explode_and_where():
    torch.manual_seed(0)
    deep = mlp(20, *[64] * 10, 4)
    with torch.no_grad():
        for layer in deep[::2]:
            layer.weight.normal_()
    (fault,) = said(deep, points(), loss=CE, optimizer=adam(deep))[0]
    assert fault.name == "gradients explode"
    assert fault.where == "`8` (Linear)"  # 4.5 · (64 / 2)^(k / 2) passes 1 000 there
    rnn = Rnn(nn.RNN, 2, "last", 4, gain=6.0, nonlinearity="relu")
    assert names(rnn, long_series(), loss=CE, optimizer=adam(rnn))[0] == "gradients explode"
    calm = Rnn(nn.RNN, 2, "mean", 4)
    assert names(calm, long_series(), loss=CE, optimizer=adam(calm)) == []


def test_finite_outputs_with_gradients_of_nan():
    torch.manual_seed(0)
    body = mlp(20, 16, 4)
    model = Function(lambda m, x: (m.body(x) - m.body(x).detach()).square().sqrt() + m.body(x), body=body)
    (fault,) = said(model, points(), loss=CE, optimizer=adam(model))[0]
    assert fault.name == "NaN or Inf"
    assert "gradients are not" in fault.message


# -- Optimizers --------------------------------------------------------------------------------------------------------


def test_layers_that_are_not_registered():
    torch.manual_seed(0)
    hidden = Listed(False)
    (fault,) = said(hidden, points(), loss=CE, optimizer=adam(hidden))[0]
    assert fault.name == "parameters missing from the optimizer"
    assert "nn.ModuleList" in fault.fix
    both = optim.Adam([*hidden.parameters(), *hidden.layers[0].parameters(), *hidden.layers[1].parameters()], 1e-3)
    assert names(hidden, points(), loss=CE, optimizer=both) == []  # someone has thought of it
    shown = Listed(True)
    assert names(shown, points(), loss=CE, optimizer=adam(shown)) == []
    teacher = net()
    teacher.__dict__["teacher"] = [net()]  # which outputs do not depend on
    assert names(teacher, points(), loss=CE, optimizer=adam(teacher)) == []


@pytest.mark.parametrize("given", [lambda m: adam(m, 0.0), lambda m: lambda p: optim.SGD(p, 1e-7)])
def test_no_rate_at_all_and_one_of_a_function(given: Any):
    torch.manual_seed(0)
    model = net()
    assert names(model, points(), loss=CE, optimizer=given(model)) == ["learning rate too small"]


# -- Modes and tokens --------------------------------------------------------------------------------------------------


def test_pads_that_are_read_and_words_that_are_hidden():
    torch.manual_seed(0)
    last, real = Rnn(nn.GRU, 2, "last"), Rnn(nn.GRU, 2, "real")
    assert names(last, ends_in_pads(), loss=CE, optimizer=adam(last)) == ["last token is padding"]
    assert names(real, ends_in_pads(), loss=CE, optimizer=adam(real)) == []
    wrong, right = Masked(False), Masked(True)
    found = said(wrong, ends_in_pads(), loss=CE, optimizer=adam(wrong))[0]
    assert [fault.name for fault in found] == ["mask that hides everything"]
    assert names(right, ends_in_pads(), loss=CE, optimizer=adam(right)) == []


# -- A checkpoint that loaded nothing ----------------------------------------------------------------------------------


def test_a_model_that_is_said_to_be_trained_and_is_fresh():
    torch.manual_seed(0)
    done = trained(net(), points(), CE, 1e-2, 200)[0]
    model = net()
    model.load_state_dict({f"module.{k}": v for k, v in done.state_dict().items()}, strict=False)
    e = fg.explain_guess(model, points(), trained=True, inits=4)
    assert e.faults[0].name == "checkpoint not loaded"
    assert "no weight shows traces of training" in e.faults[0].message
    assert "checkpoint not loaded" not in fg.explain_guess(model, points(), inits=4).kinds  # nobody says so
    assert fg.explain_guess(done, points(), trained=True, loss=CE, inits=4).faults == ()
    part = net()
    part.load_state_dict({k: v for k, v in done.state_dict().items() if not k.startswith("2.")}, strict=False)
    (fault,) = fg.explain_guess(part, points(), trained=True, inits=4).faults
    assert fault.name == "checkpoint not loaded"


# -- False alarms of published models ----------------------------------------------------------------------------------


def test_a_head_that_is_tiny_on_purpose_is_no_vanishing_logit():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 16), nn.LayerNorm(16))
    model = Function(lambda m, t: m.head(m.body(t).mean(1)), body=body, head=nn.Linear(16, 4))
    nn.init.trunc_normal_(model.head.weight, std=0.02)
    with torch.no_grad():
        model.head.weight.mul_(0.001)
        model.head.bias.zero_()
    x = torch.randint(0, 50, (64, 400))  # whose averages hardly differ
    assert "vanishing logits" not in fg.explain_guess(model, x, inits=4).kinds


def test_tiny_tables_beside_a_part_that_matters_are_no_vanishing_logit():
    torch.manual_seed(0)
    tables = nn.ModuleList(nn.Embedding(10, 4) for _ in range(5))
    for table in tables:
        nn.init.normal_(table.weight, std=1e-4)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        ids = (x[:, :5].abs() * 3).long().clamp_max(9)
        return m.wide(x) + torch.cat([t(ids[:, k]) for k, t in enumerate(m.tables)], 1).sum(1, keepdim=True)

    model = Function(forward, tables=tables, wide=nn.Linear(20, 1))
    assert "vanishing logits" not in fg.explain_guess(model, points()[0], inits=4).kinds


def test_gates_at_their_ends_are_no_saturation():
    torch.manual_seed(0)

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.first(x)
        return m.head(h * torch.sigmoid(40 * h))

    model = Function(forward, first=nn.Linear(20, 64), head=nn.Linear(64, 4))
    assert "saturated outputs" not in fg.explain_guess(model, points()[0], inits=4).kinds
    ends = Function(lambda m, x: m.head(torch.tanh(40 * m.first(x))), first=nn.Linear(20, 64), head=nn.Linear(64, 4))
    assert "saturated outputs" in fg.explain_guess(ends, points()[0], inits=4).kinds


# -- Time --------------------------------------------------------------------------------------------------------------


def test_a_slow_model_stays_within_its_seconds():
    model = net()

    def slow(_module: nn.Module, _args: Any) -> None:
        time.sleep(0.25)

    model.register_forward_pre_hook(slow)
    began = time.perf_counter()
    fg.explain_guess(model, points(), loss=CE, optimizer=adam(model), seconds=4.0)
    assert time.perf_counter() - began < 9.0


def test_mean_squares_of_one_hot_labels_stay_silent():
    torch.manual_seed(0)
    model = net()
    assert names(model, one_hot(points(), 4), loss=nn.MSELoss(), optimizer=adam(model)) == []
    text = Rnn(outs=3)
    assert names(text, tokens(3), loss=CE, optimizer=adam(text)) == []


def test_float_labels_of_a_cross_entropy_are_refused_in_one_line():
    x, y = points(classes=3)
    assert not y.is_floating_point()
    for loss in (nn.CrossEntropyLoss(), F.cross_entropy, nn.NLLLoss()):
        with pytest.raises(RuntimeError):  # what the user's own loop would raise
            loss(net(out=3)(x), y.float())
        for data in ((x, y.float()), DataLoader(TensorDataset(x, y.float()), 64)):
            with pytest.raises(fg.InvalidInput, match=r"float32 and labels .* float32.*Try: .*y\.long\(\)"):
                fg.diagnose(net(out=3), data, loss=loss, inits=4)


def test_copies_that_learn_do_not_excuse_a_sorted_loader():
    x, y = points()
    m, i = net(), y.argsort()
    words = "Copies get shuffled batches"
    for order, told in ((i, True), (torch.arange(len(y)), False)):
        loader = DataLoader(TensorDataset(x[order], y[order]), 64)
        d = fg.diagnose(m, loader, loss=CE, optimizer=adam(m), inits=8, advice=False)
        assert ("labels come in blocks" in [fault.name for fault in d.faults]) == told
        assert (words in str(d)) == told
        assert d.rehearsal is not None
        assert d.rehearsal.learns
