"""The coordinate check: sizes over width and first steps, compared with a plain loop and what is known on paper."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run_here
from torch import nn

import firstguess as fg
from firstguess.ensemble.seeds import member_seeds
from firstguess.errors import InvalidInput
from firstguess.modules.coordinates import coordinates

pytestmark = pytest.mark.usefixtures("one_thread")
X = np.random.default_rng(3).standard_normal((64, 20))
TEXT = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


def net(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))


def test_sizes_are_those_of_a_plain_loop() -> None:
    """The same model, batch and optimizer by hand: outputs and gradients at every step."""
    y = np.arange(64) % 3
    found = coordinates(net, (X, y), widths=(16, 32), steps=2, inits=2, lr=0.01, optimizer="sgd", seed=5)
    sizes = []
    for i in range(2):
        torch.manual_seed(int(member_seeds(5, i, i + 1)[0]))
        model = net(32)
        steps = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            h = model[0](torch.as_tensor(X, dtype=torch.float32))
            h.retain_grad()
            steps.zero_grad()
            nn.functional.cross_entropy(model[1:](h), torch.as_tensor(y)).backward()
            assert h.grad is not None
            sizes.append([h.square().mean().sqrt().item(), h.grad.square().mean().sqrt().item()])
            steps.step()
    by_hand = np.reshape(sizes, (2, 3, 2)).mean(axis=0)
    np.testing.assert_allclose(found.outputs[1, :, 0], by_hand[:, 0], rtol=1e-5)
    np.testing.assert_allclose(found.gradients[1, :, 0], by_hand[:, 1], rtol=1e-4)


def test_outputs_at_initialization_are_predicted() -> None:
    """At the start sizes are √q at any width. Four numbers within 7 standard errors of 30 initializations: a false
    alarm has a chance below 1e-6 (Student's t with 29 degrees of freedom)."""
    found = coordinates(TEXT, X, widths=(256, 512), steps=0, inits=30)
    assert found.predicted is not None
    q = fg.predict(TEXT, data=X).q
    np.testing.assert_allclose(found.predicted, np.sqrt(q), rtol=1e-9)
    z = (found.outputs[:, 0] - found.predicted) / found.outputs_se[:, 0]
    assert np.abs(z[:, :2]).max() < 7


def test_adam_lets_sizes_grow_with_width_and_sgd_with_smaller_rates_does_not() -> None:
    """One step of Adam moves every weight by the learning rate: what a hidden layer gains grows with its fan-in."""
    grown = coordinates(TEXT, X, widths=(64, 128, 256, 512), steps=2, inits=4, lr=0.01)
    assert "grows with width" in grown.verdict
    assert grown.exponents[2, 1] > 0.3
    still = coordinates(TEXT, X, widths=(64, 128, 256), steps=1, inits=4, lr=1e-9)
    assert still.verdict == "sizes do not depend on width"


def test_a_model_that_can_be_read_has_its_prediction() -> None:
    found = coordinates(net, (X, np.arange(64) % 3), widths=(16, 64), steps=0, inits=2)
    assert found.layers == ("0", "2", "4")
    assert found.predicted is not None

    class Own(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(20, width), nn.Linear(width, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(torch.special.i0(self.a(x)))

    assert coordinates(Own, (X, np.arange(64) % 3), widths=(16, 32), steps=0, inits=2).predicted is None


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        (lambda: net(8), {}, "takes a width"),
        (lambda width: width, {}, "returns an nn.Module"),
        (TEXT, {"widths": (64,)}, "at least two widths"),
        (TEXT, {"optimizer": "lion"}, "'adam' or 'sgd'"),
        (lambda width: nn.ReLU(), {}, "a model with weights"),
        (lambda width: nn.Linear(20, 1), {}, "logits"),
    ],
)
def test_bad_input_is_one_clear_line(what: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        coordinates(what, (X, np.arange(64) % 3), inits=2, **options)  # type: ignore[arg-type]


def test_random_numbers_of_the_user_stay() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    coordinates(net, (X, np.arange(64) % 3), widths=(8, 16), steps=1, inits=2)
    assert torch.equal(before, torch.get_rng_state())


def test_the_command_prints_json_and_draws(tmp_path: Path) -> None:
    line = ["coordinates", TEXT, "--data", "blob:n=64,d=20", "--widths", "16,32", "--steps", "1", "--inits", "2"]
    done = run_here(*line, "--json", "--figure", str(tmp_path / "c.svg"))
    shown = json.loads(done.stdout)
    assert shown["widths"] == [16, 32]
    assert np.shape(shown["outputs"]) == (2, 2, 3)
    assert "Width" in (tmp_path / "c.svg").read_text()
    assert "power of width" in run_here(*line).stdout
    assert "whole numbers" in run_here(*line[:4], "--widths", "a,b", code=2).stderr
