"""Every public result: a chart, a notebook's page, a short repr, and a way to plain data and back."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.show.results import CHARTS

NET = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
# Public classes that are no results: what one describes, sets or raises.
NOT_RESULTS = {"Activation", "EarlyEvaluation", "Grid", "Inputs", "Network", "Stand", "Tokens"}


@cache
def data() -> Any:
    return fg.data.two_blobs(60, 20)


@cache
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))


@cache
def prediction() -> Any:
    return fg.predict(NET)


@cache
def kernel() -> Any:
    return fg.predict(NET, data=data(), draws=500)


@cache
def at_width() -> Any:
    return fg.predict(NET, width=50)


@cache
def measurement() -> Any:
    return fg.measure(NET, data(), inits=12, width=40)


@cache
def predicted() -> Any:
    return fg.predict_training(NET, data=data(), lr=5e-4, steps=30, width=40)


@cache
def trained() -> Any:
    return fg.train(NET, data=data(), optimizer="gd", lr=5e-4, steps=30, width=40, inits=6)


@cache
def watch() -> Any:
    mine = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
    x, y = torch.as_tensor(data().x, dtype=torch.float32), torch.as_tensor(data().y)
    optimizer = torch.optim.SGD(mine.parameters(), lr=0.01)
    seen = fg.Watch(mine, (x, y), optimizer=optimizer, points=60, cost=None)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(mine(x), y).backward()
        optimizer.step()
        seen.step()
    seen.finish()
    return seen


@cache
def phases() -> Any:
    return fg.phase_diagram("tanh", weight_vars=np.linspace(0.5, 4, 6), bias_vars=np.linspace(0, 0.5, 6))


RESULTS: dict[str, Callable[[], Any]] = {
    "Comparison": lambda: fg.compare(prediction(), measurement()),
    "DataBias": lambda: fg.data_bias(data()),
    "Diagnosis": cache(lambda: fg.diagnose(model(), data(), inits=12, seconds=20)),
    "EmpiricalGuesses": lambda: kernel().guesses,
    "Explanation": cache(lambda: fg.explain_guess(model(), data(), inits=12)),
    "FiniteSize": lambda: at_width().finite_size,
    "FixedPoint": lambda: fg.fixed_point("tanh", weight_var=2.5, bias_var=0.05),
    "Frontier": lambda: fg.frontier(fg.mlp(depth=5)),
    "Gradients": cache(lambda: fg.measure_gradients(model(), data(), inits=6)),
    "Guesses": lambda: prediction().guesses,
    "Logits": lambda: measurement().logits,
    "Matched": lambda: fg.match_prior(model(), data()),
    "Measurement": measurement,
    "MixedGuesses": lambda: at_width().guesses,
    "PhaseDiagram": phases,
    "PredictedTraining": predicted,
    "Prediction": prediction,
    "Repaired": lambda: fg.repair(model(), data(), gamma=0.0),
    "Structure": lambda: fg.read(model(), data()),
    "TrainedMembers": trained,
    "TrainingComparison": cache(lambda: fg.compare(predicted(), trained())),
    "TransformerPhases": cache(
        lambda: fg.phases.transformer_phases("relu", strengths=[0.1, 8.0], residuals=[0.2, 2.0], length=8, depth=2)
    ),
    "Tuned": lambda: fg.tune(fg.mlp(depth=5), gamma=0.5),
    "Watch": watch,
    "WatchedTraining": lambda: watch().result,
}


def study(folder: Path) -> Any:
    found = fg.study("depths", fg.grid(depth=[1, 5]), lambda p: fg.predict(fg.mlp(**p)), store=folder)
    return found.run(workers=1)


def test_every_public_class_is_a_result_here_or_known_as_none() -> None:
    assert {*dir(fg.results), "Watch"} - NOT_RESULTS == {*RESULTS, "Study"} == set(CHARTS)


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_draws_itself(kind: str) -> None:
    result = RESULTS[kind]()
    assert type(result).__name__ == kind
    spec = result.plot().to_dict()
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert " ".join(result.plot(title="A title of mine").to_dict()["title"]["text"]) == "A title of mine"
    drawn = 0
    for what in CHARTS[kind]:
        with contextlib.suppress(fg.FirstguessError):  # not every result has all of them, and says so
            assert result.plot(what).to_dict()["title"]
            drawn += 1
    assert drawn >= min(2, len(CHARTS[kind]))
    with pytest.raises(fg.InvalidInput, match=f"one of {', '.join(CHARTS[kind])}, but got 'pie', at {kind}.plot"):
        result.plot("pie")


@pytest.mark.parametrize("kind", RESULTS)
def test_a_notebook_shows_the_chart_and_the_numbers(kind: str) -> None:
    result = RESULTS[kind]()
    page = result._repr_html_()
    assert "<script" not in page
    named = re.sub(r"http://www\.w3\.org/|http-equiv|https://arxiv\.org/abs/", "", page)  # papers are links only
    assert "http" not in named  # nothing is loaded
    if kind == "Diagnosis":
        assert page.startswith("<iframe srcdoc=")
        assert result.verdict.title in page
        assert "What to change" in page
        assert len(page) < 1_000_000
        return
    assert page.startswith("<div")
    picture = re.search(r'<img class="firstguess-map" src="data:image/png;base64,[^"]+" alt="[^"]+"', page)
    drawn = re.search(
        r'<div class="firstguess-chart" role="img" aria-label="[^"]+"[^>]*>(<svg.*</svg>)</div>', page, re.S
    )
    assert (picture is None) == (drawn is not None)
    if drawn is not None:
        ElementTree.fromstring(drawn[1])
    assert '[data-jp-theme-light="false"]' in page  # it follows dark pages
    told: Any = result.result if kind == "Watch" else result
    summary = getattr(told, "summary", None)
    for said in [str(told).splitlines()[0]] if summary is None else [text for row in summary() for text in row]:
        assert html.escape(said, quote=False).replace("'", "&#39;").replace('"', "&#34;") in page
    if summary is not None:
        assert page.count("<tr>") == len(summary())
        assert ("</strong>" in page) == (hasattr(told, "verdict") or hasattr(told, "answer"))
    assert len(page) < 700_000


@pytest.mark.parametrize("kind", RESULTS)
def test_a_repr_is_short(kind: str) -> None:
    text = repr(RESULTS[kind]())
    assert text.startswith(f"{kind}(")
    assert len(text) <= 200
    assert text.count("\n") < 3
    assert "object at 0x" not in text


@pytest.mark.parametrize("kind", [kind for kind in RESULTS if hasattr(getattr(fg, kind), "to_dict")])
def test_a_result_is_plain_data_and_back(kind: str) -> None:
    result = RESULTS[kind]()
    given = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    read = getattr(type(result), "from_dict", None)
    if read is not None:
        assert json.loads(json.dumps(read(given).to_dict(), allow_nan=False)) == given


def test_a_result_of_a_long_name_has_a_short_repr_too() -> None:
    deep = "300 x [dense(weight_var=2, width=17) > layernorm > relu] > dense(weight_var=2) > relu > dense(weight_var=1)"
    wide = nn.Sequential(*[layer for k in range(40) for layer in (nn.Linear(20 + k, 21 + k), nn.Tanh())])
    for result in (fg.predict(deep), fg.read(wide, torch.zeros(2, 20))):
        assert len(repr(result)) <= 200


def test_a_law_that_was_drawn_is_not_called_measured() -> None:
    """A kernel's distribution is counted over draws: no network was run."""
    assert "measured" not in json.dumps(kernel().guesses.plot().to_dict())


def test_a_study_draws_itself(tmp_path: Path) -> None:
    found = study(tmp_path)
    own, asked = found.plot().to_dict(), found.plot("depth", "gamma").to_dict()
    assert own == asked  # the first setting that varies, the first number with a name
    page = found._repr_html_()
    assert "<svg" in page
    assert "Study depths" in page
    assert len(repr(found).replace(str(tmp_path), "")) <= 200
    empty: Any = fg.study("none", fg.grid(depth=[2, 3]), lambda p: fg.predict(fg.mlp(**p)), store=tmp_path)
    with pytest.raises(fg.InvalidInput, match="a study with results, but got none so far"):
        empty.plot()
    assert "No chart: Expected a study with results" in empty._repr_html_()


def test_a_model_that_is_not_read_has_no_chart_and_says_why() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cumsum(x, 1).sin()

    found: Any = fg.read(nn.Sequential(nn.Linear(20, 5), Odd()), torch.zeros(2, 20))
    assert not found.complete
    with pytest.raises(fg.InvalidInput, match="a model that was read as a whole"):
        found.plot()
    assert "<p>No chart: Expected a model that was read as a whole" in found._repr_html_()
