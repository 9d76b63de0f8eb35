"""Predict some architectures and draw γ by depth for every placement of a norm."""

from __future__ import annotations

from pathlib import Path

import firstguess as fg
from firstguess.cli.output import print_table

OUT = Path("out")

ARCHITECTURES = {
    "no norm": fg.mlp(depth=20),
    "LayerNorm before ReLU": fg.mlp(depth=20, norm="layernorm", placement="before"),
    "LayerNorm after ReLU": fg.mlp(depth=20, norm="layernorm", placement="after"),
    "BatchNorm before ReLU": fg.mlp(depth=20, norm="batchnorm", placement="before"),
    "BatchNorm after ReLU": fg.mlp(depth=20, norm="batchnorm", placement="after"),
    "RMSNorm after ReLU": fg.mlp(depth=20, norm="rmsnorm", placement="after"),
}
MORE = {
    "tanh, 20 layers": fg.mlp(depth=20, activation="tanh", weight_var=1.76, bias_var=0.05),
    "GELU, 20 layers": fg.mlp(depth=20, activation="gelu"),
    "centred ReLU, 20 layers": fg.mlp(depth=20, activation=fg.centered("relu")),
    "CNN, ReLU + max-pool": fg.cnn(depth=5, pool="maxpool(4)"),
    "CNN, tanh + average-pool": fg.cnn(depth=5, activation="tanh", pool="avgpool(4)"),
    "residual MLP, 20 blocks": fg.residual_mlp(depth=20),
    "PyTorch's own nn.Linear default, 7 layers": fg.mlp(depth=7, weight_var=1 / 3, bias_var=1 / (3 * 512)),
}


def main() -> None:
    OUT.mkdir(exist_ok=True)
    predictions = {name: fg.predict(net) for name, net in {**ARCHITECTURES, **MORE}.items()}
    print_table(
        "How untrained networks spread their guesses over two classes",
        ("network", "γ", "average largest fraction", "P(one class > 90 %)", "regime"),
        [
            (
                name,
                f"{p.gamma[-1]:.4g}",
                f"{p.guesses.expected_max():.3f}",
                f"{p.guesses.prob_max_above(0.9):.3f}",
                p.regime,
            )
            for name, p in predictions.items()
        ],
    )
    figures = {
        "gamma_by_depth": fg.figures.gamma_by_depth_chart({name: predictions[name] for name in ARCHITECTURES}),
        "guesses": fg.figures.guesses_chart(
            *(predictions[name] for name in ("BatchNorm before ReLU", "GELU, 20 layers", "no norm")),
            labels=("BatchNorm before ReLU", "GELU", "ReLU, no norm"),
        ),
        "phases_tanh": fg.figures.phase_diagram_chart(fg.phase_diagram("tanh")),
    }
    for name, chart in figures.items():
        path = OUT / f"{name}.png"
        fg.figures.save(chart, path)
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
