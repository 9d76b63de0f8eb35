"""Models and data as people have them: tied modules, probabilities at the end, leftovers, half precision, …"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import firstguess as fg
from firstguess.data import collect
from firstguess.diagnosis.gate import check
from firstguess.modules.flow import trace_flow

_GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(90, 20, generator=_GENERATOR)
Y = torch.randint(0, 3, (90,), generator=_GENERATOR)


def mlp(*end: nn.Module, classes: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, classes), *end)


class WithoutGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(20, 40), nn.Linear(40, 3)

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(F.relu(self.a(x)))


class LastState(nn.Module):
    """Takes the second of the tensors that an LSTM returns."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(5, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, (state, _) = self.cell(x.reshape(len(x), 4, 5))
        return self.head(state[-1] * 1.0)


@pytest.mark.parametrize("end", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
def test_probabilities_at_the_end_change_neither_guesses_nor_gamma(end: nn.Module) -> None:
    plain, ended = (fg.measure(model, (X, Y), inits=8) for model in (mlp(), mlp(end)))
    np.testing.assert_allclose(ended.guesses.fractions, plain.guesses.fractions)
    np.testing.assert_allclose(ended.gamma, plain.gamma, rtol=1e-6)
    assert [f.layer for f in ended.findings if f.kind == "probabilities"] == ["2"]
    assert not [f for f in plain.findings if f.kind == "probabilities"]


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_one_probability_is_decided_at_a_half(strategy: str) -> None:
    plain, ended = (
        fg.measure(mlp(*end, classes=1), (X, Y % 2), inits=8, strategy=strategy) for end in ((), (nn.Sigmoid(),))
    )
    np.testing.assert_allclose(ended.guesses.fractions, plain.guesses.fractions)
    np.testing.assert_allclose(ended.gamma, plain.gamma, rtol=1e-6)


def test_a_softmax_is_no_cause() -> None:
    found = fg.diagnose(mlp(nn.Softmax(1)), (X, Y), inits=8, seconds=5, advice=False)
    assert found.causes[0].kind == "ReLU"
    assert "Softmax" not in {cause.kind for cause in found.causes}
    assert found.verdict.gamma == pytest.approx(fg.measure(mlp(), (X, Y), inits=8).gamma[-1], rel=1e-6)


def test_a_module_that_is_used_three_times_gives_the_same_members_by_loop_and_by_vmap() -> None:
    tied = nn.Linear(20, 20)
    model = nn.Sequential(tied, nn.ReLU(), tied, nn.ReLU(), tied, nn.ReLU(), nn.Linear(20, 3))
    by_loop, by_vmap, auto = (fg.measure(model, (X, Y), inits=8, strategy=s) for s in ("loop", "vmap", "auto"))
    np.testing.assert_allclose(by_vmap.gamma, by_loop.gamma, rtol=1e-4)
    np.testing.assert_allclose(auto.gamma, by_loop.gamma, rtol=1e-4)


def test_a_parameter_of_two_modules_gives_the_same_members_by_loop_and_by_vmap() -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3))
    model[2].weight = model[0].weight
    by_loop, by_vmap = (fg.measure(model, (X, Y), inits=8, strategy=s) for s in ("loop", "vmap"))
    np.testing.assert_allclose(by_vmap.gamma, by_loop.gamma, rtol=1e-4)


@pytest.mark.parametrize("work", [fg.measure, fg.diagnose, fg.explain_guess, fg.measure_gradients])
def test_a_leftover_batch_of_one_and_batchnorm_says_what_to_do(work: object) -> None:
    model = nn.Sequential(nn.Linear(20, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 3))
    data = torch.utils.data.TensorDataset(X[:33], Y[:33])
    with pytest.raises(fg.FirstguessError, match="drop_last"):
        work(model, torch.utils.data.DataLoader(data, batch_size=32), inits=4)  # pyright: ignore[reportCallIssue]  # any of four


def test_bfloat16_is_predicted_too() -> None:
    found = fg.diagnose(mlp().bfloat16(), (X.bfloat16(), Y), inits=6, seconds=5)
    assert found.expected.comparison is not None
    assert found.advice


def test_a_forward_without_gradients_still_has_causes() -> None:
    found = fg.diagnose(WithoutGradients(), (X, Y), inits=6, seconds=5, advice=False)
    assert found.causes[0].name == "code before b"
    assert "detach" not in found.causes[0].kind


def test_a_recurrence_is_counted_once_where_its_state_is_taken() -> None:
    flow = trace_flow(LastState(), collect((X, Y)), inits=3)
    code = next(step for step in flow.steps if step.name == "code before head")
    assert code.sources == ("cell",)
    assert sum(step.added for step in flow.steps) < 1 - flow.data


def test_spectral_norm_is_redrawn_with_its_vectors() -> None:
    model = nn.Sequential(spectral_norm(nn.Linear(20, 40)), nn.ReLU(), nn.Linear(40, 3))
    variances = next(part.variances for part in fg.read(model).parts if part.path == "0")
    # The norm of a 40×20 matrix of variance v is near (√40 + √20)√v: as one of norm 1, 20 v = 20/(√40 + √20)².
    assert variances is not None
    assert variances.weight_var == pytest.approx(20 / (math.sqrt(40) + math.sqrt(20)) ** 2, rel=0.2)


def test_one_hot_labels_are_labels() -> None:
    by_class = fg.measure_gradients(mlp(), (X, Y), inits=3)
    data = torch.utils.data.TensorDataset(X, F.one_hot(Y, 3).float())
    one_hot = fg.measure_gradients(mlp(), torch.utils.data.DataLoader(data, batch_size=90), inits=3)
    assert [x.favoured.value for x in one_hot.layers] == [x.favoured.value for x in by_class.layers]


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_a_factor_on_the_logits_is_left_out() -> None:
    found = fg.read(mlp(Times(30.0)), X)
    assert found.network is not None
    assert found.network.classes == 3
    assert any("a factor at the end" in note for note in found.notes)


@pytest.mark.parametrize("factor", [1e30, 1e40])
def test_huge_logits_warn_of_nothing_and_infinite_ones_are_broken(factor: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fg.diagnose(mlp(Times(factor)), (X, Y), inits=6, seconds=5, advice=False)
    assert (found.verdict.name == "broken") == (factor > 1e38)


def test_constant_data_print_no_interval() -> None:
    found = fg.diagnose(mlp(), (torch.ones(20, 20), Y[:20]), inits=4, seconds=5)
    assert found.verdict.name == "deeply biased"
    assert found.measurement is not None
    assert found.measurement.bias_test.found
    assert "nan to nan" not in str(found)


def test_the_gate_does_not_blame_the_first_layer_for_the_data() -> None:
    found = check(mlp(), (X + 5.0, Y), inits=20)
    assert not found.passed
    assert "in the data themselves: more than any one layer adds" in found.message


def test_a_notable_guess_without_cause_is_not_called_even() -> None:
    explanation = fg.Explanation((0.9, 0.1), 1000, 0.0, (0.0, 0.12), (), None)
    assert "no cause found" in str(explanation)
