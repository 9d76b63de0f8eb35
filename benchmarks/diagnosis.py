"""What a diagnosis costs: time and memory next to the model's own, and a measurement next to the plain loop.

    python benchmarks/diagnosis.py                 all three models, some minutes
    python benchmarks/diagnosis.py mlp --seconds 30

Every number is of a process of its own. The peak is the resident memory above what Python and its libraries take,
in sizes of the model (its parameters); activations are what a plain forward of the same batches takes above the model.
A member of the plain loop: draw every layer again by its own reset_parameters, one forward over the data, arg-max.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import firstguess as fg


def mlp() -> tuple[nn.Module, Any]:
    """104 million parameters."""
    sizes = (3072, 5120, 5120, 5120, 5120, 1920)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 10)), torch.randn(256, 3072)


def resnet() -> tuple[nn.Module, Any]:
    """ResNet-18 on images of 32×32."""
    sys.path.insert(0, str(Path(__file__).parent))
    from modules import resnet18

    return resnet18(), torch.randn(256, 3, 32, 32)


def vit() -> tuple[nn.Module, Any]:
    """ViT-B/16 on images of 224×224: 86 million parameters."""

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 768, 16, 16)
            self.token = nn.Parameter(torch.randn(1, 1, 768) * 0.02)
            self.positions = nn.Parameter(torch.randn(1, 197, 768) * 0.02)
            self.blocks = nn.Sequential(
                *(
                    nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True, norm_first=True)
                    for _ in range(12)
                )
            )
            self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
            return self.head(self.norm(self.blocks(x)[:, 0]))

    return ViT(), torch.randn(32, 3, 224, 224)


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {"resnet": resnet, "vit": vit, "mlp": mlp}
BATCH = {"resnet": 128, "vit": 16, "mlp": 128}


def peak() -> float:
    """Bytes, of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def redraw(model: nn.Module) -> None:
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()


def member(model: nn.Module, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    redraw(model)
    with torch.inference_mode():
        return [model(x).argmax(1) for x in batches]


def job(name: str, part: str, seconds: float) -> dict[str, float]:
    """One row's number, in this process."""
    base = peak()
    model, x = MODELS[name]()
    size = float(sum(p.numel() * p.element_size() for p in model.parameters()))
    data = (x.numel() * x.element_size()) * 1.0
    batches = list(x.split(BATCH[name]))
    model.eval()
    began = time.perf_counter()
    if part == "loop":
        member(model, batches)
        taken = time.perf_counter() - began
    elif part == "pass":
        rows = model(batches[0])
        nn.functional.cross_entropy(rows, torch.zeros(len(rows), dtype=torch.long)).backward()
        taken = (time.perf_counter() - began) * len(x) / BATCH[name]
    elif part == "measure":
        return beside(name, model, batches)
    else:
        fg.diagnose(model, x, batch_size=BATCH[name], seconds=seconds)
        taken = time.perf_counter() - began
    return {"seconds": taken, "peak": peak() - base - data, "model": size}


def beside(name: str, model: nn.Module, batches: list[torch.Tensor]) -> dict[str, float]:
    """A member of `fg.measure` and of the plain loop, in turn: best of some rounds."""
    from firstguess.data import collect
    from firstguess.modules.engine import ModuleEngine

    engine = ModuleEngine(model, collect(torch.cat(batches), batch_size=BATCH[name]))
    engine.run(0, 6 if name == "resnet" else 3)  # it has chosen its way before it is timed
    ours: list[float] = []
    loops: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        member(model, batches)
        loops.append(time.perf_counter() - began)
        began = time.perf_counter()
        engine.run(3, 4)
        ours.append(time.perf_counter() - began)
    return {"ours": min(ours), "loop": min(loops)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), help=", ".join(MODELS))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(job(options.models[0], options.part, options.seconds)))
        return

    def apart(name: str, part: str) -> dict[str, float]:
        command = [sys.executable, __file__, name, "--part", part, "--seconds", str(options.seconds)]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])

    for name in options.models:
        loop, once, found = apart(name, "loop"), apart(name, "pass"), apart(name, "diagnose")
        both = apart(name, "measure")
        activations = max(loop["peak"], once["peak"] - loop["model"]) - loop["model"]
        allowed = 1.25 * options.seconds + once["seconds"]
        print(f"{name}: {loop['model'] / 4e6:.0f} million parameters, {loop['model'] / 1e6:.0f} MB")
        print(f"  diagnose(seconds={options.seconds:g}): {found['seconds']:.1f} s, allowed {allowed:.1f} s")
        print(f"  peak {found['peak'] / 1e6:.0f} MB, of which a batch's activations {activations / 1e6:.0f} MB: "
              f"{(found['peak'] - activations) / loop['model']:.2f} models, allowed 3")  # fmt: skip
        print(f"  a member: {both['ours']:.3f} s, of the plain loop {both['loop']:.3f} s: "
              f"{both['ours'] / both['loop']:.2f}x, allowed 1.2x")  # fmt: skip


if __name__ == "__main__":
    main()
