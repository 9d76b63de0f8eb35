"""Ten of the zoo's architectures: as a plain loop has it, back bit for bit, no fault named; and what an audit finds."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import pytest
import torch
from torch import nn

from firstguess.base.errors import InvalidInput

pytest.importorskip("transformers", reason="transformers is not installed")
from firstguess.studies import zoo

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

TEN = (
    "sequence/bert", "sequence/electra", "language/llama", "language/gpt2", "masked/roberta", "choice/electra",
    "image/vit", "image/poolformer", "token/distilbert", "language/opt",
)  # fmt: skip


@pytest.mark.parametrize("name", TEN)
def test_it_is_measured_as_a_plain_loop_has_it(name: str) -> None:
    check(name)


def test_a_resnet_is_measured_as_a_plain_loop_has_it() -> None:
    check("image/resnet")


def check(name: str) -> None:
    """Within 6.5 standard errors of 16 and 16 initializations: Student's t is beyond once in 1e6 for both."""
    if not _BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not here")
    sys.path.insert(0, str(_BENCHMARKS))
    from zoo_visit import visit  # pyright: ignore[reportMissingImports]

    row = visit(zoo.shrunk(name), seconds=20.0, seed=zlib.crc32(name.encode()))
    assert not row["failed"]
    assert row["came_back"]
    assert abs(row["class_z"]) < 6.5
    assert abs(row["instance_z"]) < 6.5
    assert row["faults"] == []
    assert row["never_initialized"] == []


def test_all_that_transformers_has_is_listed() -> None:
    names = zoo.architectures()
    assert len(names) > 300
    assert set(TEN) <= set(names)
    with pytest.raises(InvalidInput, match="an architecture that can be shrunk"):
        zoo.shrunk("sequence/layoutlmv2")


class Forgotten(nn.Module):
    """Of three parameters one is never written to, and one is zero, so that its layer is dead."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.empty(3))
        nn.init.zeros_(self.body.weight)
        nn.init.zeros_(self.body.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x[:, :6].repeat(1, 2)[:, :8] + self.body(x))


def test_an_audit_names_what_nobody_initializes() -> None:
    x = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    found = zoo.audit(zoo.ZooModel(Forgotten, x))
    assert found["never_initialized"] == ["scale"]
    assert found["dead"] == ["body"]
    assert zoo.never_initialized(lambda: nn.Linear(3, 3)) == []
    assert not torch.are_deterministic_algorithms_enabled()
