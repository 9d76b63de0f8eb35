"""What a user passes by mistake is named without its place in memory, which says nothing and is new in every run."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg

X = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
THING = object()

MISTAKES: dict[str, Callable[[], object]] = {
    **{
        name: lambda name=name: fg.measure(nn.Linear(6, 3), X, **{name: THING})
        for name in ("init", "logits", "forward", "redraw", "mode", "seed", "inits")
    },
    "seconds": lambda: fg.diagnose(nn.Linear(6, 3), X, seconds=THING),  # type: ignore[arg-type]
    "layers": lambda: fg.Network(THING),  # type: ignore[arg-type]
    "layer": lambda: fg.Network([THING]),  # type: ignore[list-item]
    "activation": lambda: fg.mlp(3, activation=THING),  # type: ignore[arg-type]
    "load": lambda: fg.data.load(THING),  # type: ignore[arg-type]
    "model": lambda: fg.measure(THING, X),  # type: ignore[arg-type]
    "data": lambda: fg.measure(nn.Linear(6, 3), THING),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_messages_have_no_address(name: str) -> None:
    with pytest.raises(fg.FirstguessError) as caught:
        MISTAKES[name]()
    assert not re.search("0x[0-9a-f]{4}", str(caught.value) + caught.value.reason)


def test_what_has_an_address_of_another_kind_keeps_it() -> None:
    error = fg.InvalidInput("a file that begins with 0x93", got="begins at 0x1f", hint="np.save")
    assert str(error) == "Expected a file that begins with 0x93, but got begins at 0x1f. Try: np.save"


class Scaled(nn.Module):
    """A number as a parameter, drawn at the start: `vit-pytorch`'s ViT for small data has a learned temperature."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)) * self.scale)


@pytest.mark.parametrize("shape", [(), (1,), (8,)])
def test_a_parameter_that_is_one_number_is_read_or_not_but_does_not_fail(shape: tuple[int, ...]) -> None:
    from firstguess.modules.members.weight_statistics import orthogonal_gain

    assert orthogonal_gain(torch.randn(shape)) is None
    assert fg.read(lambda: Scaled(shape), X).network is None
    assert np.isfinite(fg.measure(lambda: Scaled(shape), X, inits=3).gamma).all()
