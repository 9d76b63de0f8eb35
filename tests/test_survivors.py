"""What no test had noticed: statements that mutants changed (tests/tools/mutants.py), and what an audit found."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from charts import rows, svg_text
from commands import run_here
from diagnoses import layer, measurement, sample
from torch import nn

import firstguess as fg
from firstguess.data import Batch, two_blobs
from firstguess.diagnosis import Advice
from firstguess.diagnosis.advice import order
from firstguess.diagnosis.session import Subject
from firstguess.ensemble.measurement import BiasTest, Measurement
from firstguess.ensemble.predict_training import _direction
from firstguess.explore import panels
from firstguess.explore.choice import Choice, see
from firstguess.modules.match_prior import _by_guesses
from firstguess.modules.members.infer_initializer import _blanks
from firstguess.modules.stacked import _same
from firstguess.network.layers.attention import TokenMix
from firstguess.network.layers.dense import Dense
from firstguess.network.layers.embed import Patches
from firstguess.network.shapes import Shape
from firstguess.network.signal import Gaussian, Pairs, Signal, _nodes, distribution_of_sum
from firstguess.network.walk import sequence
from firstguess.show.charts import correlation_chart, strip_chart
from firstguess.show.charts.frontier import _NEAR, _Frame, _knob
from firstguess.studies.pages import _table
from firstguess.theory.training.curves import Absorption
from firstguess.theory.training.flow import DescentTask
from firstguess.theory.training.runs import _starts
from firstguess.theory.tunable_families import shifted
from firstguess.watch.document import _looks
from firstguess.watch.evaluation import Look

X = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


def small() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 3))


# -- What an audit found -----------------------------------------------------------------------------------------------


class Clipped(nn.Module):
    """Weights by torch.rand, and points at which no unit is above 0: their logits are ties, broken at random."""

    def __init__(self, classes: int = 4, units: int = 16, shift: float = -0.2) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.rand(20, units) + shift)
        self.last = nn.Parameter(torch.rand(units, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.first) @ self.last


@pytest.mark.parametrize("options", [{}, {"classes": 2}, {"units": 3, "shift": -0.5}])
def test_ties_do_not_make_one_model_an_ensemble(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = Clipped(**options)
    m = fg.measure(model, X, inits=8)
    assert m.ties > 0.01
    assert m.inits == 1
    assert not re.search(r"inf\b|nan", str(m))
    told = str(fg.explain_guess(model, X, inits=8))
    assert not re.search("expected from architecture|initializations that do so too", told)
    for ask in (fg.diagnose, fg.assert_even):
        with pytest.raises(fg.InvalidInput, match="a function that builds the model, or its class"):
            ask(model, X)
    assert fg.measure(lambda: Clipped(**options), X, inits=8).inits == 8


_FIRST_CALL = """
import torch, firstguess as fg
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
print(fg.{}.points)
"""


@pytest.mark.parametrize(
    "ask", ["explain_guess(model, torch.randn(300, 20), inits=4)",
            "diagnose(model, torch.randn(300, 20), inits=4, seconds=20, advice=False, progress=False).measurement"]
)  # fmt: skip
def test_what_torch_loads_at_a_first_call_is_not_charged_to_the_points(ask: str) -> None:
    """A process that has just begun: torch loads its compiler, for seconds (16 of 300 points were left)."""
    done = subprocess.run([sys.executable, "-c", _FIRST_CALL.format(ask)], capture_output=True, text=True, check=True)
    assert done.stdout == "300\n"


# -- Networks and theory -----------------------------------------------------------------------------------------------


def test_frozen_weights_are_frozen() -> None:
    assert Dense(weight_var=2.0).frozen_weights() == Dense(weight_var=2.0, frozen=True)


def test_the_width_of_patches_is_theirs() -> None:
    for before in (Shape(48, None), Shape(48, sequence(4))):
        assert Patches(8, width=12).shape(before, 30).units == 12
        assert Patches(8).shape(before, 30).units == 30


def test_what_mixes_tokens_has_an_activation_that_is_not_centred() -> None:
    with pytest.raises(fg.InvalidInput, match="an activation, not centred"):
        TokenMix(8, fg.centered("relu"))
    assert TokenMix(8, fg.activation("relu")).phi == fg.activation("relu")


def test_starts_of_several_classes_have_the_covariance_of_the_kernel() -> None:
    """10 000 networks of 3 logits: variances and a covariance within 6 standard errors (a false alarm in 1e8)."""
    kernel = np.array([[2.0, 0.6], [0.6, 0.5]])
    z, _ = _starts("any", kernel, DescentTask(np.array([0, 2]), 3, 10_000), seed=4)
    assert z.shape == (2, 30_000)
    errors = np.sqrt((np.outer(np.diag(kernel), np.diag(kernel)) + kernel**2) / z.shape[1])
    assert (np.abs(z @ z.T / z.shape[1] - kernel) < 6 * errors).all()


def test_the_direction_of_a_majority_has_mean_zero() -> None:
    np.testing.assert_allclose(_direction(np.array([0, 1, 1, 1])), [-0.75, 0.25, 0.25, 0.25])


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_an_odd_activation_is_not_shifted(name: str) -> None:
    found = shifted(fg.activation(name), 0.5, 1.0)
    assert found is not None
    assert found[1] == 0.0


@pytest.mark.parametrize("weight_var", [0.5, 1.0, 3.0])
def test_gradients_of_a_stream_that_grows_are_kept(weight_var: float) -> None:
    """A linear branch after a norm adds as much every time: in the limit of depth a block multiplies gradients by 1."""
    point = fg.phases.fixed_point("residual[layernorm > linear > dense]", weight_var=weight_var, bias_var=0.0)
    assert "the block is linear there" in point.note
    assert point.chi == pytest.approx(1.0, abs=1e-9)


def test_without_a_test_nothing_is_said_of_one() -> None:
    assert BiasTest(math.nan).found is None
    assert BiasTest(math.nan).words.startswith("not tested: that needs several initializations")


# -- Modules -----------------------------------------------------------------------------------------------------------


def test_inputs_are_the_same_or_not() -> None:
    x = torch.arange(6.0)
    assert _same([x, 1], [x.clone(), 1])
    for other in ([x + 1, 1], [x, 2], [x], [x.double(), 1], [x.reshape(2, 3), 1], [x, True]):
        assert not _same([x, 1], other)


class Stubborn(nn.Sequential):
    def __deepcopy__(self, memo: object) -> None:
        raise RuntimeError("no copies")


@pytest.mark.parametrize("redraw", ["2*", "head", None])
def test_a_model_without_copies_is_drawn_in_part(redraw: Any) -> None:
    with_copies, without = (fg.measure(model, X, inits=6, redraw=redraw) for model in (small(), Stubborn(*small())))
    np.testing.assert_allclose(without.guesses.fractions, with_copies.guesses.fractions)


@pytest.mark.parametrize(("zeros", "told"), [(3, False), (4, True), (60, True)])
def test_zeros_that_are_no_accident(zeros: int, told: bool) -> None:
    """float32 draws an exact 0 once in 2²⁴: four of them in a hundred entries were set."""
    value = torch.randn(100, generator=torch.Generator().manual_seed(0))
    value[:zeros] = 0.0
    assert (_blanks(value) is not None) is told


def test_an_even_prior_leaves_the_size_of_the_head() -> None:
    assert _by_guesses(np.array([0.5, 0.5]), 3.0, one_logit=False) == 1.0


# -- Diagnosis ---------------------------------------------------------------------------------------------------------


def test_shares_a_twentieth_apart_are_not_alike() -> None:
    """Of two changes that come to the same share the one that does more comes first; 51 and 54 % are not the same."""

    def advice(largest: float, aim: Any = "bias") -> Advice:
        plain = Advice("", "", "predicted", 5.0, 1.0, 0.9, largest, 0.005)
        return replace(
            plain, nonlinearity_before=20.0, nonlinearity_after=20.0, **({"aim": aim} if aim != "bias" else {})
        )

    cosmetic = advice(0.51, "first guesses")
    assert order("even start", cosmetic) < order("even start", advice(0.54))
    assert order("even start", cosmetic) > order("even start", advice(0.52))


def test_the_majority_is_that_of_the_labels() -> None:
    y = torch.arange(64).ge(48).long()
    d = fg.diagnose(small(), (X, y), inits=12, seconds=180, advice=False, optimizer="gd", progress=False)
    assert d.lasting is not None
    assert d.lasting.majority == pytest.approx(0.75, abs=0.02)


def test_an_optimizer_of_another_model_is_the_one_that_is_looked_at() -> None:
    model, other, y = small(), small(), torch.arange(64) % 3
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    d = fg.diagnose(
        model,
        (X, y),
        seconds=180,
        loss=nn.CrossEntropyLoss(),
        optimizer=optimizer,
        advice=False,
        inits=12,
        progress=False,
    )
    (fault,) = d.faults
    assert fault.name == "parameters missing from the optimizer"
    assert fault.numbers["missing"] == [name for name, _ in model.named_parameters()]  # in the model's order


def test_the_id_of_padding_is_that_of_the_networks_embedding() -> None:
    ids = torch.tensor([[3, 4, 0, 0], [2, 3, 4, 1]])
    batch = Batch({"input_ids": ids, "attention_mask": (ids != 0).long()}, None, 2)
    for text, known in (("embed(1.0, padding=0)", True), ("embed(1.0)", False)):
        network = fg.Network.parse(f"{text} > pool_tokens(mean) > dense")
        subject: Any = SimpleNamespace(network=network, model=object())
        found = Subject.convert(subject, [batch])
        assert (found is not None) == known
        assert found is None or np.array_equal(found.x, ids)


# -- Charts, pages, studies and commands -------------------------------------------------------------------------------


def law(*draws: float) -> Absorption:
    return Absorption(0.6, np.array(draws, float))


def test_the_legend_names_a_band_only_where_there_is_one() -> None:
    one, two = {"A": {1: law(10, 20), 2: law(30)}}, {"A": {1: law(10, 20)}, "B": {1: law(20, 30)}}
    assert "90 % of networks" in svg_text(fg.figures.absorption_chart(one)).replace(" | ", " ")
    assert "90 % of networks" not in svg_text(fg.figures.absorption_chart(two)).replace(" | ", " ")


def test_a_narrow_chart_has_fewer_numbers_of_layers() -> None:
    many = Measurement(measurement().guesses, tuple(layer(str(i), "Linear", 0.01 * i) for i in range(40)))

    def ticks(*, narrow: bool) -> list[int]:
        chart: Any = correlation_chart(replace(sample(), measurement=many), narrow=narrow).to_dict()
        return next(one["encoding"]["x"]["axis"]["values"] for one in _with_axes(chart))

    assert len(ticks(narrow=False)) > len(ticks(narrow=True)) > 3


def _with_axes(spec: Any) -> list[Any]:
    """Every part of a chart whose x axis has values of its own."""
    inner = [part for key in ("layer", "vconcat", "hconcat") for one in spec.get(key, []) for part in _with_axes(one)]
    return [*([spec] if "values" in (spec.get("encoding", {}).get("x", {}).get("axis") or {}) else []), *inner]


def test_the_line_of_an_even_share_is_where_that_is() -> None:
    for classes in (2, 4):
        drawn = rows(strip_chart(measurement(classes, inits=30)))
        assert [row["low"] for row in drawn if row.get("text") == "even share"] == [1 / classes]


def test_names_of_the_knob_are_shown_and_keep_apart() -> None:
    f = fg.frontier(fg.mlp(20), targets=(0.5, 0.52, 0.54, 10.0))
    frame = _Frame.of(f)
    words: Any = _knob(f.reached, frame)[-1].to_dict()
    (data,) = words["datasets"].values() if "datasets" in words else (words["data"]["values"],)
    at = sorted(frame.pixel(row["g"], row["y"] - 1.0)[1] for row in data)
    assert 2 <= len(at) < sum(0.9 < m.gradients < 1.1 for m in f.reached)
    assert all(b - a > _NEAR for a, b in pairwise(at))


@pytest.mark.parametrize("labelled", [True, False])
def test_every_row_has_as_many_cells_as_the_table_has_columns(labelled: bool) -> None:
    right = np.array([9, 8, 7]) if labelled else None
    looks = tuple(
        Look(k, np.array([0.5, 0.3, 0.2]), right, 1.0 if labelled else math.nan, 1.0, 0, 0) for k in (0, 1, 2)
    )
    labels = np.arange(30) % 3 if labelled else None
    seen = fg.WatchedTraining(looks=looks, points=30, classes=3, labels=labels, level=0.46)
    heads, *lines = _looks(seen)
    assert len(heads) == (9 if labelled else 5)
    assert [len(line) for line in lines] == [len(heads)] * 3


def test_configurations_can_be_an_iterator(tmp_path: Path) -> None:
    study = fg.study("steps", ({"k": k} for k in range(3)), lambda p: {"v": 2 * p["k"]}, store=tmp_path)
    study.run(workers=1)
    assert sorted(study.table()["v"].to_pylist()) == [0, 2, 4]


def test_a_prediction_is_drawn_without_data(tmp_path: Path) -> None:
    said = run_here("predict", "2 x [dense(weight_var=2) > relu] > dense", "--figure", str(tmp_path / "gamma.svg"))
    assert "γ" in said.stdout
    assert "<svg" in (tmp_path / "gamma.svg").read_text("utf-8")


@pytest.mark.parametrize("mean_square", [0.01, 0.05])
def test_a_narrow_distribution_is_drawn_between_close_points(mean_square: float) -> None:
    seen = see(Choice(activation="tanh", depth=2, mean_square=mean_square))
    std = seen.prediction.guesses.std()
    drawn = re.search(r'<polyline points="([^"]*)"', panels.live(seen))
    assert drawn
    x = np.array([float(point.split(",")[0]) for point in drawn[1].split()])
    frame = re.search(r'<line x1="(\d+)" x2="(\d+)"', panels.live(seen))
    assert frame
    assert np.ptp(x) / (int(frame[2]) - int(frame[1])) == pytest.approx(12.0 * std, rel=0.02)


def test_means_of_a_training_have_their_errors_around_them() -> None:
    t = fg.train("dense > relu > dense", data=two_blobs(20, 5), lr=0.01, steps=4, width=10, inits=3)
    left, right = fg.figures.training_chart(t).to_dict()["hconcat"]
    assert [sum(one["mark"]["type"] == "area" for one in part["layer"]) for part in (left, right)] == [1, 2]


def test_nothing_is_drawn_beyond_the_axes() -> None:
    diagram = fg.phase_diagram("tanh", weight_vars=np.linspace(0.5, 4.0, 8), bias_vars=np.linspace(0.0, 0.5, 5))
    lines = [mark for mark in _marks(fg.figures.phase_diagram_chart(diagram).to_dict()) if mark["type"] == "line"]
    assert lines
    assert all(mark["clip"] for mark in lines)
    bars = [mark for mark in _marks(strip_chart(measurement()).to_dict()) if mark["type"] == "rect"]
    assert bars
    assert all(mark["clip"] for mark in bars)


def _marks(spec: Any) -> list[Any]:
    inner = [mark for key in ("layer", "vconcat", "hconcat") for one in spec.get(key, []) for mark in _marks(one)]
    return [*([spec["mark"]] if "mark" in spec else []), *inner]


def test_a_sum_with_a_large_branch_is_kept_within_range() -> None:
    """Values near 1, with their size as a logarithm; the same up to a factor."""
    one = Signal(0.0, 0.5, 0.5, distribution=Gaussian())
    x = replace(one, distribution=_nodes(one, 0))
    usual, large = (distribution_of_sum(x, one, factor) for factor in (1e25, 1e80))
    assert isinstance(usual, Pairs)
    assert isinstance(large, Pairs)
    assert np.mean(large.values**2) == pytest.approx(1.0)
    assert large.values == pytest.approx(usual.values / math.sqrt(np.mean(usual.values**2)))
    assert large.log_scale == pytest.approx(2 * math.log(1e55) + math.log(np.mean(usual.values**2)))


def test_tables_leave_out_errors_and_intervals() -> None:
    rows = [{"depth": k, "gamma": 0.1 * k, "gamma_se": 0.01, "gamma_low": 0.0, "gamma_high": 1.0} for k in (1, 2)]
    table = _table(rows, ["depth"])
    assert [name for name, _ in table["columns"]] == ["depth", "gamma"]


def test_two_points_are_enough_for_a_bias_of_data() -> None:
    assert fg.data_bias(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).gamma > 0.0
    with pytest.raises(fg.InvalidInput, match="at least 2 data points"):
        fg.data_bias(torch.tensor([[1.0, 2.0]]))


def test_gradients_of_hidden_layers_are_without_the_heads_factor() -> None:
    p = fg.predict("dense(weight_var=1) > relu > dense(weight_var=2) > relu > dense(weight_var=3)")
    inner, head = p.gradient_growth
    assert inner != pytest.approx(head)
    assert f"× {inner:.4g} per layer" in str(p)


def test_lines_of_phases_are_finer_only_where_they_bend() -> None:
    grid: Any = {"weight_vars": np.array([1.0, 2.0, 4.0]), "bias_vars": np.array([0.05, 0.2])}
    assert fg.phase_diagram("relu", **grid).fine.shape == (4, 0)
    assert fg.phase_diagram("tanh", **grid, lines=False).fine.shape == (4, 0)
    assert fg.phase_diagram("tanh", **grid).fine.shape[1] > 0


def test_one_initialization_is_one() -> None:
    assert str(measurement(inits=1)).startswith("Measurement (1 initialization, ")
    assert repr(measurement(inits=2)).startswith("Measurement(2 initializations, ")
