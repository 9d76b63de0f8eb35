"""What a layer needs to know to be written as PyTorch source."""

from __future__ import annotations

from dataclasses import dataclass, field

AFFINE = '''

class Affine(nn.Module):
    """scale * x + shift."""

    def __init__(self, scale: float = 1.0, shift: float = 0.0):
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x + self.shift
'''
FUNCTION = """

class {name}(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return {call}(x)
"""
RESIDUAL = '''

class ScaledResidual(nn.Module):
    """shortcut(x) + scale * branch(x)."""

    def __init__(self, branch: nn.Module, scale: float, shortcut: nn.Module | None = None):
        super().__init__()
        self.branch, self.scale, self.shortcut = branch, scale, shortcut or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + self.scale * self.branch(x)
'''


@dataclass
class SourceWriter:
    """Where in the text a layer stands: the size of what enters, as an expression, and of what has to come out."""

    size: str
    width: int  # of layers that name none
    out: str | None = None
    classes: dict[str, None] = field(default_factory=dict[str, None])  # their texts, each once, in order of use
