"""The gate: passes, fails with an explanation, and says when it is not certain."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diagnoses import layer
from scipy import stats
from torch import nn

import firstguess as fg
from firstguess.base import statistics
from firstguess.diagnosis import assert_even as gate
from firstguess.ensemble.measurement import Measurement
from firstguess.theory.shares.empirical import EmpiricalGuesses

BLOB = fg.data.blob(150, 30)


def test_an_even_network_passes_and_gives_its_measurement():
    m = fg.assert_even("3 x [dense > tanh] > dense", BLOB, width=60)
    assert m.inits == 50
    assert m.gamma[-1] < 1


def test_a_biased_model_fails_with_the_layer():
    model = nn.Sequential(nn.Linear(30, 60), nn.Sigmoid(), nn.Linear(60, 2))
    with pytest.raises(AssertionError, match="c rises most at Sigmoid \\(`1`\\)") as caught:
        fg.assert_even(model, BLOB, init=(1.0, 0.0))
    assert isinstance(caught.value, fg.NotEven)
    assert caught.value.measurement.regime == "biased"


@pytest.mark.parametrize(
    "net", ["dense(weight_var=2) > relu > dense", "2 x [dense > tanh] > dense", "dense > elu > dense"]
)
def test_a_network_at_the_limit_fails_only_where_that_is_sure(net):
    """At most one in 20: of 30 more than 9 with a chance of 4e-6 (fair coins, as with strict=True: 0.98)."""
    limit = fg.measure(net, BLOB, inits=4000, width=40, seed=77).guesses.expected_max()
    found = [gate.check(net, BLOB, max_share=limit, width=40, inits=100, seed=seed) for seed in range(30)]
    strict = [gate.check(net, BLOB, max_share=limit, width=40, inits=100, seed=seed, strict=True) for seed in range(30)]
    assert sum(not one.passed for one in found) <= 9
    assert [one.passed for one in strict] == [one.measurement.guesses.expected_max() <= limit for one in strict]
    assert all(one.passed for one, point in zip(found, strict, strict=True) if point.passed)
    assert any("not clear" in one.message for one in found if one.passed)


def test_the_old_name_still_works():
    """`max_gamma` third, and an except-clause that knows the old exception only."""
    m = fg.assert_neutral("3 x [dense > tanh] > dense", BLOB, 0.5, width=60)
    assert m.gamma[-1] < 0.5
    with pytest.raises(fg.NotNeutral, match="at most 1 is allowed") as caught:
        fg.assert_neutral("9 x [dense(weight_var=2) > relu] > dense", BLOB, width=60)
    assert isinstance(caught.value, fg.NotEven)
    with pytest.raises(fg.InvalidInput, match="sed="):
        fg.assert_neutral("dense > tanh > dense", BLOB, sed=1)


def test_the_share_of_the_largest_class_can_be_limited():
    one_layer = "dense(weight_var=2) > relu > dense(weight_var=2)"  # ½ + arctan(√0.467)/π = 0.69
    m = fg.assert_even(one_layer, BLOB, max_share=0.8, width=60)
    assert m.guesses.expected_max() == pytest.approx(0.69, abs=5 * m.guesses.standard_error("expected_max"))
    with pytest.raises(
        fg.NotEven, match=r"the share of the largest class, on average, is 0\.6.*at most 0\.6 is allowed"
    ):
        fg.assert_even(one_layer, BLOB, max_share=0.6, width=60, inits=50)
    both = gate.check(one_layer, BLOB, 1.0, 0.6, width=60)
    assert not both.passed
    assert both.sure
    assert (both.max_gamma, both.max_share) == (1.0, 0.6)
    assert both.message.splitlines()[1].startswith("  γ of the output is")
    assert gate.check(one_layer, BLOB, max_share=0.8, width=60).max_gamma is None
    assert gate.check(one_layer, BLOB, width=60).max_gamma == 1.0
    assert both.to_dict()["max_share"] == 0.6


@pytest.mark.parametrize("share", [0.0, 1.0, -1, "½"])
def test_bad_shares_are_refused(share: object):
    with pytest.raises(fg.InvalidInput, match="a share between 0 and 1"):
        fg.assert_even("dense > tanh > dense", BLOB, share)  # type: ignore[arg-type]


class _Networks:
    """As many members of the distribution of γ as a gate asks for, always the same first ones: logits, guesses, γ."""

    def __init__(self, gamma: float, classes: int, seed: int) -> None:
        rng, self.points = np.random.default_rng(seed), 60
        centers = math.sqrt(gamma) * rng.standard_normal((400, 1, classes))
        logits = centers + rng.standard_normal((400, self.points, classes))
        best = logits.argmax(axis=2)
        self.fractions = np.stack([(best == c).mean(axis=1) for c in range(classes)], axis=1)
        logits -= logits.mean(axis=2, keepdims=True)
        mean, variance = logits.mean(axis=1), logits.var(axis=1, ddof=1)
        self.center, self.spread = (mean**2 - variance / self.points).mean(axis=1), variance.mean(axis=1)

    def measure(self, *_: object, inits: int, **__: object) -> Measurement:
        found = statistics.ratios(self.center[:inits, None], self.spread[:inits, None])
        numbers: Any = {"low": float(found.low[0]), "high": float(found.high[0]), "skew": float(found.skew[0])}
        head = layer("head", "Linear", float(found.value[0]), float(found.error[0]), **numbers)
        return Measurement(EmpiricalGuesses(self.fractions[:inits], self.points), (head,))


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "classes"), [(1.0, 2), (0.2, 10), (5.0, 2)])
def test_repeated_looks_do_not_make_it_sure_of_what_is_not_so(
    gamma: float, classes: int, monkeypatch: pytest.MonkeyPatch
):
    """True γ at the limit, up to four looks: sure with a chance of at most 5 % (one 95 % interval a look: 15 %).

    500 gates; the count may exceed that of a rate of 5 % once in 10⁶.
    """
    count, wrong = 500, {"gamma": 0, "share": 0}
    truth = float(np.mean([_Networks(gamma, classes, 10_000 + i).fractions.max(axis=1).mean() for i in range(200)]))
    monkeypatch.setattr(gate, "_where", lambda *_: "")
    for i in range(count):
        networks = _Networks(gamma, classes, i)
        monkeypatch.setattr(gate, "measure", networks.measure)
        wrong["gamma"] += gate.check("dense", BLOB, gamma).sure
        wrong["share"] += gate.check("dense", BLOB, max_share=truth).sure
    most = stats.binom.isf(1e-6, count, 0.05)
    assert max(wrong.values()) <= most
    assert max(wrong.values()) > 0  # it is certain at times


def test_more_networks_are_drawn_only_where_the_interval_holds_the_limit():
    sure = gate.check("dense > tanh > dense", BLOB, 1.0, width=60)
    close = gate.check("dense(weight_var=2) > relu > dense(weight_var=2)", BLOB, 0.47, width=60)
    assert sure.sure
    assert sure.measurement.inits == 50
    assert close.measurement.inits > 50


def test_a_failure_that_is_not_sure_says_so():
    """A limit just below the estimate, inside its interval: at most 50 networks leave no room to become sure."""
    text = "dense(weight_var=2) > relu > dense(weight_var=2)"
    gamma = gate.check(text, BLOB, 1.0, inits=50, width=60).measurement.gamma[-1]
    assert gate.check(text, BLOB, 0.99 * gamma, inits=50, width=60).passed
    found = gate.check(text, BLOB, 0.99 * gamma, inits=50, width=60, strict=True)
    assert not found.passed
    assert not found.sure
    assert "not clear after 50 initializations" in found.message


def test_a_zero_head_does_not_pass():
    with pytest.raises(fg.NotEven, match="ties"):
        fg.assert_even(_zeroed, BLOB)


def _zeroed() -> nn.Module:
    model = nn.Sequential(nn.Linear(30, 60), nn.Tanh(), nn.Linear(60, 3))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    return model


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), "1"])
def test_bad_limits_are_refused(limit: object):
    with pytest.raises(fg.InvalidInput, match="a drift ratio above 0"):
        fg.assert_even("dense > tanh > dense", BLOB, max_gamma=limit)  # type: ignore[arg-type]


def test_limits_may_be_numbers_of_numpy_and_torch():
    """`numpy.bool` cannot be subtracted, and a limit that was computed is often a numpy.float64."""
    for limit in (np.float64(0.9), np.float32(0.9), torch.tensor(0.9)):
        plain = gate.check("dense > tanh > dense", BLOB, max_share=0.9, max_gamma=2.0, inits=20, width=20)
        found = gate.check("dense > tanh > dense", BLOB, max_share=limit, max_gamma=np.float64(2.0), inits=20, width=20)  # type: ignore[arg-type]
        assert (found.passed, found.sure) == (plain.passed, plain.sure)
        assert found.max_share == pytest.approx(0.9)


@pytest.mark.parametrize("limit", [20_000.0, 0.5])
def test_an_interrupted_gate_neither_passes_nor_draws_on(limit: float):
    """`measure` keeps what it has when it is interrupted; a gate must not answer from that, whatever the limit."""
    calls: list[int] = []

    def once(done: int, total: int) -> None:
        calls.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fg.assert_even("dense(weight_var=2) > relu > dense", BLOB, max_gamma=limit, width=60, progress=once)
    assert len(calls) == 1


class Functional(nn.Module):
    """The bias is of a ReLU that is no module: 1/π of correlation between the embedding and the head (theory.md §4)."""

    def __init__(self) -> None:
        super().__init__()
        self.e, self.h = nn.Embedding(50, 64), nn.Linear(64, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.h(torch.relu(self.e(x).mean(1)))


TOKENS = torch.randint(0, 50, (300, 12), generator=torch.Generator().manual_seed(0))


def test_the_layer_behind_a_functional_activation_is_not_blamed():
    message = gate.check(Functional, TOKENS, 0.05).message
    assert "c rises most at mean over positions and ReLU (before `h`)" in message
    assert "Linear (`h`)" not in message


def test_where_no_trace_can_be_had_code_between_layers_is_not_left_out(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no graph")

    monkeypatch.setattr(gate, "trace_flow", fails)
    message = gate.check(Functional, TOKENS, 0.05).message
    assert "c rises most between the outputs of e (Embedding) and h (Linear)" in message


def test_data_that_can_be_read_once_are_read_once():
    """A limit inside the interval of 50 networks: more are drawn, on the same points."""
    model = nn.Sequential(nn.Linear(30, 60, bias=False), nn.ReLU(), nn.Linear(60, 2, bias=False))
    x = torch.tensor(BLOB.x)
    close = float(fg.measure(model, x, inits=50).gamma[-1])
    found = gate.check(model, (part for part in x.split(50)), close)
    assert found.measurement.points == 150
    assert found.measurement.inits > 50


def test_pytest_shows_the_message_and_not_our_source(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import firstguess as fg\nfrom firstguess.data import blob\n\n"
        "def test_even():\n    fg.assert_even('9 x [dense(weight_var=2) > relu] > dense', blob(100, 30), width=50)\n"
    )
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    found = subprocess.run(run, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)
    assert found.returncode == 1
    assert "NotEven: γ of the output is" in found.stdout
    assert "raise NotEven(" not in found.stdout
    assert "assert_even.py" not in found.stdout
    assert "checks.py" not in found.stdout
