"""Remedies: what each offers, and that an edited model is a copy."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import blob, collect
from firstguess.diagnosis.remedies import REMEDIES, Case, Variant
from firstguess.diagnosis.remedies.base import edited, replace_module
from firstguess.diagnosis.remedies.head_and_data import expected_loss
from firstguess.diagnosis.remedies.norms import plain_pairs
from firstguess.modules.flow import trace_flow
from firstguess.modules.members.sources import source_of

X = blob(100, 20)


def case(what: str | nn.Module) -> Case:
    batches = collect(X)
    m = fg.measure(what, X, inits=5, **({"width": 40} if isinstance(what, str) else {}))
    if isinstance(what, str):
        return Case(fg.Network.parse(what), None, batches, m, None)
    return Case(None, what, batches, m, trace_flow(what, batches, inits=2))


def offered(name: str, what: str | nn.Module) -> list[Variant]:
    return list(REMEDIES[name](case(what)))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("move the norm", "dense > layernorm > relu > dense", "dense > relu > layernorm > dense"),
        (
            "move the norm",
            "dense > residual[batchnorm > relu > dense] > dense",
            "dense > residual[relu > batchnorm > dense] > dense",
        ),
        (
            "centre the activation",
            "dense > gelu > dense > tanh > dense",
            "dense > centered(gelu) > dense > tanh > dense",
        ),
        ("LayerNorm for RMSNorm", "dense > relu > rmsnorm > dense", "dense > relu > layernorm > dense"),
        (
            "go to the edge of chaos",
            "3 x [dense > relu] > dense",
            "3 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
        ),
    ],
)
def test_descriptions_are_edited_as_told(name: str, before: str, after: str):
    (variant,) = offered(name, before)
    assert str(variant.network) == str(fg.Network.parse(after))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("move the norm", "dense > relu > layernorm > dense"),
        ("centre the activation", "dense > tanh > dense"),
        ("centre the data", "dense > relu > dense"),  # the blob is centred
        ("LayerNorm for RMSNorm", "dense > rmsnorm > relu > dense"),  # there they are the same
        ("go to the edge of chaos", "dense(weight_var=2) > relu > dense(weight_var=2)"),
        ("go to the edge of chaos", "dense > batchnorm > relu > dense"),  # BatchNorm has no edge
        ("repair the head", "dense > tanh > dense"),
    ],
)
def test_nothing_is_offered_where_nothing_applies(name: str, what: str):
    assert offered(name, what) == []


def test_modules_are_turned_on_a_copy():
    model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.ReLU(), nn.Linear(30, 2))
    (variant,) = offered("move the norm", model)
    assert isinstance(variant.model, nn.Sequential)
    assert [type(m).__name__ for m in variant.model] == ["Linear", "ReLU", "BatchNorm1d", "Linear"]
    assert [type(m).__name__ for m in model] == ["Linear", "BatchNorm1d", "ReLU", "Linear"]


def test_a_norm_with_two_readers_is_left_alone():
    class Forked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.norm, self.phi, self.head = (
                nn.Linear(20, 30),
                nn.LayerNorm(30),
                nn.ReLU(),
                nn.Linear(30, 2),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.norm(self.dense(x))
            return self.head(self.phi(h) + h)

    model = Forked()
    assert plain_pairs(model, trace_flow(model, collect(X), inits=2)) == []


def test_an_activation_that_is_shared_is_left_alone():
    phi = nn.ReLU()
    model = nn.Sequential(
        nn.Linear(20, 30), nn.LayerNorm(30), phi, nn.Linear(30, 30), nn.LayerNorm(30), phi, nn.Linear(30, 2)
    )
    assert plain_pairs(model, trace_flow(model, collect(X), inits=2)) == []


def test_factories_are_edited_at_every_call():
    def factory() -> nn.Module:
        return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))

    def change(model: nn.Module) -> nn.Module:
        replace_module(model, "1", nn.Tanh())
        return model

    made = edited(factory, change)
    assert callable(made)
    assert not isinstance(made, nn.Module)
    assert isinstance(made().get_submodule("1"), nn.Tanh)
    assert isinstance(factory().get_submodule("1"), nn.ReLU)


def test_centred_activations_of_a_module_have_mean_zero_and_no_bias():
    """A wide ReLU network, centred with constants from 4 networks: γ of the last hidden layer falls to near 0.

    In theory it is 2.13 without and 0 with centring; 100 points of a blob leave about 1/100.
    """
    layers = [m for i in range(5) for m in (nn.Linear(20 if i == 0 else 300, 300, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(300, 2, bias=False))
    found = list(REMEDIES["centre the activation"](case(model)))
    m = fg.measure(found[0].model, X, inits=30)
    plain = fg.measure(model, X, inits=30)
    # At the last hidden layer, whose 300 nodes say more than two outputs; 8 s.e. of 30 networks: false alarm < 1e-7.
    assert plain.gamma[-2] - 8 * plain.gamma_se[-2] > 1.0 > 0.1 > m.gamma[-2] + 8 * m.gamma_se[-2]


def test_large_logits_are_scaled_and_guesses_stay():
    (variant,) = offered("repair the head", "dense(weight_var=2) > relu > dense(weight_var=50)")
    assert variant.unchanged
    assert "arg-max" in variant.note


def test_expected_loss_has_its_limits():
    """log M for small logits; for large ones E max z, which for two classes is √(q/π)."""
    assert expected_loss(1e-12, 7) == pytest.approx(1.945910149, abs=1e-6)
    # 20 000 draws of a maximum with standard deviation √(1 − 1/π)·100: 5 s.e.
    assert expected_loss(1e4, 2) == pytest.approx((1e4 / torch.pi) ** 0.5, abs=5 * 100 * 0.83 / 141)


def test_means_of_activations_are_those_of_the_initialization_that_was_asked_for():
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
    before = case(model)
    asked = replace(before, study=lambda model: source_of(model, before.batches, init=(12.0, 0.0)))

    def mean(case: Case) -> float:
        (variant,) = REMEDIES["centre the activation"](case)
        assert isinstance(variant.model, nn.Sequential)
        return variant.model[1].means.fixed["1"]

    # By default σw² = 1/3 and σb² = 1/60, and |x|²/20 = 1: E max(z, 0) = σ/√(2π).
    assert mean(asked) / mean(before) == pytest.approx((12 / (1 / 3 + 1 / 60)) ** 0.5, rel=0.2)
