"""Named faults: explain_guess and diagnose each say which it is, and neither says so of a fresh model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from faulty_models import (
    ARCHITECTURES,
    CLASSES,
    POINTS,
    Attention,
    Conv,
    Dense,
    Ended,
    Faulty,
    faulty_models,
    labels,
    noise,
)
from fresh_models import FRESH
from torch import nn

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.diagnosis.faults import Fault, FaultName, find_faults
from firstguess.diagnosis.faults.looking import look_into
from firstguess.modules.hooks.examination import examine

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = frozenset(get_args(FaultName))


def every_name(faults: tuple[Fault, ...]) -> tuple[str, ...]:
    """Headlines, and what they explain."""
    return tuple(name for fault in faults for name in (fault.name, *every_name(fault.symptoms)))


def explained(model: nn.Module, data: Any) -> tuple[str, ...]:
    return every_name(fg.explain_guess(model, data, inits=4, seconds=10).faults)


def diagnosed(model: nn.Module, data: Any) -> tuple[str, ...]:
    return every_name(fg.diagnose(model, data, inits=4, seconds=2, advice=False).faults)


def said(faulty: Faulty, ask: Any) -> bool:
    """Whether the fault is named: as a fault, or in the one line of the refusal."""
    if not faulty.refused:
        return any(name in faulty.names for name in ask(faulty.model, faulty.data))
    with pytest.raises(InvalidInput) as caught:
        ask(faulty.model, faulty.data)
    return faulty.refused in str(caught.value) and "\n" not in str(caught.value)


def first_of_each() -> list[Faulty]:
    found: dict[str, Faulty] = {}
    for faulty in faulty_models():
        found.setdefault(faulty.fault, faulty)
    return list(found.values())


@pytest.mark.parametrize("ask", [explained, diagnosed])
@pytest.mark.parametrize("faulty", first_of_each(), ids=lambda faulty: faulty.id)
def test_each_fault_is_named(faulty: Faulty, ask: Any):
    assert said(faulty, ask)


@pytest.mark.slow
@pytest.mark.parametrize("ask", [explained, diagnosed])
@pytest.mark.parametrize("seed", range(3))
def test_each_fault_is_named_on_every_architecture(seed: int, ask: Any):
    """The table of docs/named-faults.md: none is missed, in any variant."""
    assert [faulty.id for faulty in faulty_models(seed) if not said(faulty, ask)] == []


def test_the_list_is_the_issues():
    """17 faults, each in three variants at least on every architecture that can have it."""
    counts: dict[str, dict[str, int]] = {}
    for faulty in faulty_models():
        kind = faulty.variant.split(":")[0]
        counts.setdefault(faulty.fault, {}).setdefault(kind, 0)
        counts[faulty.fault][kind] += 1
    assert len(counts) == 17
    names = {kind.__name__ for kind in ARCHITECTURES}
    for fault, kinds in counts.items():
        if fault == "mask that hides everything":
            assert sum(kinds.values()) >= 3
        else:
            assert set(kinds) == names
            assert min(kinds.values()) >= 3


# -- False alarms ------------------------------------------------------------------------------------------------------


def alarms(count: range) -> list[str]:
    found: list[str] = []
    for k in count:
        for name, (make, data) in FRESH.items():
            torch.manual_seed(k)
            model, x = make(k), data(k)
            found += [f"{name} {k}: {fault}" for fault in (*explained(model, x), *diagnosed(model, x))]
    return found


@pytest.mark.parametrize("name", FRESH)
def test_fresh_models_have_no_fault(name: str):
    make, data = FRESH[name]
    torch.manual_seed(3)
    assert explained(make(3), data(3)) == ()


@pytest.mark.slow
def test_200_fresh_models_of_ten_architectures():
    """At most 1 % are called faulty by either function; none were when this was written."""
    assert len(FRESH) == 10
    assert len(alarms(range(20))) <= 2


def quiet(model: nn.Module, data: Any) -> None:
    assert explained(model, data) == ()
    assert diagnosed(model, data) == ()


def pixels(*shape: int) -> torch.Tensor:
    return (128 + 60 * noise(*shape)).clamp(0, 255).round()


def test_pixels_that_the_model_scales_are_fine():
    x = pixels(POINTS, 3, 8, 8)
    quiet(Ended(Conv(), start=lambda x: (x - 128) / 60), x)
    torch.manual_seed(0)
    quiet(nn.Sequential(nn.BatchNorm2d(3), Conv()), x)


def test_what_models_do_on_purpose():
    x = noise(POINTS, 20)
    quiet(Ended(Dense(), lambda z: z.log_softmax(1)), x)  # for NLLLoss
    quiet(Ended(Dense(classes=1), torch.sigmoid), x)  # for BCELoss
    quiet(nn.Sequential(nn.Dropout(0.5), Dense()), x)
    quiet(Dense(), (x, torch.where(torch.arange(POINTS) % 7 == 0, -100, labels())))  # which torch leaves out
    quiet(Dense(classes=1), (x, 2 * (torch.arange(POINTS) % 2) - 1))  # for a hinge loss
    quiet(Dense(), (x, noise(POINTS)))  # to regress on


def test_labels_that_are_nan():
    y = labels().float()
    y[3] = math.nan
    assert explained(Dense(), (noise(POINTS, 20), y)) == ("labels out of range",)
    assert diagnosed(Dense(), (noise(POINTS, 20), y)) == ("labels out of range",)


def test_a_residual_branch_that_is_made_tiny():
    """As diffusion models have it: the last layer of a branch at 1e-10, so that the block starts as the identity."""
    model = Attention()
    with torch.no_grad():
        model.out.weight.mul_(1e-10)
        model.mlp[2].weight.mul_(1e-10)
    quiet(model, noise(POINTS, 6, 16))


def test_one_tiny_layer_that_hides_the_inputs():
    model = Dense()
    with torch.no_grad():
        model.body[2].weight.mul_(1e-4)
    x = noise(POINTS, 20)
    assert explained(model, x) == ("vanishing logits",)
    z = model(x).detach().double()
    z -= z.mean(1, keepdim=True)
    found = examine(model, collect(x))
    assert found.varies == pytest.approx(((z - z.mean(0)).square().mean() / z.square().mean()).sqrt().item(), rel=1e-3)
    assert found.size == pytest.approx((z.square().mean() * CLASSES / (CLASSES - 1)).sqrt().item(), rel=1e-5)


def test_few_points_are_enough_for_a_bias_that_decides():
    """As many as a slow model gets: 16 of two classes are never far from an even split by chance alone."""
    torch.manual_seed(0)
    model = Dense(classes=2)
    assert [fault.name for fault in find_faults(look_into(model, collect(noise(16, 20))))[0]] == []
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([5.0, 0.0]))
    assert [fault.name for fault in find_faults(look_into(model, collect(noise(16, 20))))[0]] == ["head bias"]


def test_softmax_over_the_batch_at_every_token():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, CLASSES), nn.Softmax(dim=0))
    assert explained(model, noise(POINTS, 6, 16)) == ("softmax over the batch",)


class Causal(Attention):
    """A mask made by log(0), which hides the future and not everything."""

    def scores(self, scores: torch.Tensor) -> torch.Tensor:
        return scores + torch.tril(torch.ones(6, 6)).log()


def test_masks_that_hide_a_part():
    torch.manual_seed(0)
    quiet(Causal(), noise(POINTS, 6, 16))


def test_a_trained_model_is_not_called_faulty():
    torch.manual_seed(0)
    x, model = noise(POINTS, 20), Dense()
    y = (x[:, :CLASSES]).argmax(1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    quiet(model, (x, y))


# -- What is said ------------------------------------------------------------------------------------------------------


def test_the_first_loss_is_torchs():
    torch.manual_seed(0)
    x, model = pixels(POINTS, 20), Dense()
    e = fg.explain_guess(model, (x, labels()), inits=3)
    loss = F.cross_entropy(model(x), labels()).item()
    (cause,) = (cause for cause in e.causes if cause.kind == "unscaled inputs")
    assert e.loss == pytest.approx(loss, rel=1e-5)
    assert cause.numbers["loss"] == e.loss
    assert cause.numbers["rms"] == pytest.approx(float(x.square().mean().sqrt()))
    assert f"is {loss:.3g}, where an even guess has log 5 = 1.61" in cause.evidence
    assert "cross-entropy with the labels" in str(e)
    bare = fg.explain_guess(model, x, inits=3)
    assert math.isnan(bare.loss)
    even = torch.stack([F.cross_entropy(model(x), torch.full((POINTS,), c)) for c in range(CLASSES)]).mean()
    (cause,) = (cause for cause in bare.causes if cause.kind == "unscaled inputs")
    assert cause.numbers["loss"] == pytest.approx(even.item(), rel=1e-5)
    assert "labels drawn evenly" in cause.evidence


@pytest.mark.parametrize("end", [lambda z: z.softmax(1), lambda z: z.log_softmax(1)])
def test_the_loss_of_probabilities_is_that_of_their_logits(end: Any):
    torch.manual_seed(0)
    x, model = noise(POINTS, 20), Dense()
    e = fg.explain_guess(Ended(model, end), (x, labels()), inits=3)
    assert e.loss == pytest.approx(F.cross_entropy(model(x), labels()).item(), rel=1e-5)


def test_one_logit_has_the_loss_of_bce():
    torch.manual_seed(0)
    x, model, y = noise(POINTS, 20), Dense(classes=1), torch.arange(POINTS) % 2
    loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], y.float()).item()
    assert fg.explain_guess(model, (x, y), inits=3).loss == pytest.approx(loss, rel=1e-5)


def test_the_page_the_json_and_the_report(tmp_path: Path):
    model = Dense()
    with torch.no_grad():
        model.head.weight.zero_()
    d = fg.diagnose(model, (pixels(POINTS, 20), labels() + 1), inits=4, seconds=2, advice=False)
    assert [fault.name for fault in d.faults] == ["labels out of range", "unscaled inputs", "zero head"]
    lines = str(d).splitlines()
    assert max(len(line) for line in lines) <= 100
    assert lines[0] == "FIX THIS   Labels go from 1 to 5, and the model has 5 classes, 0 to 4."
    assert next(i for i, line in enumerate(lines) if "measured on" in line) < lines.index(
        "Faults"
    )  # facts, then faults
    assert lines.index("Faults") < lines.index("Will it train?")
    assert any(line.startswith("  ! labels out of range: labels go from 1 to 5") for line in lines)
    data = json.loads(json.dumps(d.to_dict(), allow_nan=False))
    assert [fault["name"] for fault in data["faults"]] == [fault.name for fault in d.faults]
    assert data["faults"][0]["fix"] == "subtract 1 from the labels"
    text = d.save(tmp_path / "report.html").read_text("utf-8")
    assert text.index('id="faults"') < text.index('id="guesses"')
    assert "subtract 1 from the labels" in text


def test_classes_factories_and_descriptions_are_looked_at_too():
    def factory() -> nn.Module:
        return nn.Sequential(Dense(), nn.ReLU())

    assert diagnosed(factory, noise(POINTS, 20)) == ("ReLU after the head",)
    assert diagnosed(Dense, noise(POINTS, 20)) == ()
    assert diagnosed("2 x [dense(weight_var=2) > relu] > dense", np.asarray(pixels(POINTS, 20))) == ("unscaled inputs",)


def test_the_model_comes_back_untouched():
    model = nn.Sequential(Conv(norm=True), nn.Softmax(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    diagnosed(model, noise(POINTS, 3, 8, 8))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    with torch.no_grad():
        assert torch.get_default_dtype() == model(noise(4, 3, 8, 8)).dtype  # no mode of torch's is left on
