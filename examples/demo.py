"""`make demo`: diagnose two small untrained networks on real digits, LayerNorm before and after ReLU."""

from __future__ import annotations

from pathlib import Path

from torch import nn

import firstguess as fg

OUT = Path("out")


def network(placement: str, *, depth: int = 5, width: int = 128) -> nn.Sequential:
    """An MLP with Kaiming weights, as many people would write it."""
    layers: list[nn.Module] = [nn.Flatten()]
    for i in range(depth):
        dense = nn.Linear(64 if i == 0 else width, width, bias=False)
        norm, relu = nn.LayerNorm(width), nn.ReLU()
        layers += [dense, norm, relu] if placement == "before" else [dense, relu, norm]
    return nn.Sequential(*layers, nn.Linear(width, 10, bias=False))


def main() -> None:
    OUT.mkdir(exist_ok=True)
    digits = fg.data.digits()  # standardized
    for placement, report in (("before", "report.html"), ("after", "report_after.html")):
        diagnosis = fg.diagnose(
            network(placement),
            digits,
            init="kaiming_normal",
            name=f"MLP, LayerNorm {placement} ReLU",
            data_name="digits",
        )
        print(f"-- LayerNorm {placement} ReLU " + "-" * 60)
        print(diagnosis)
        print(f"wrote {diagnosis.save(OUT / report)}\n")


if __name__ == "__main__":
    main()
