"""What finite width adds to token networks, by width: γ of gated blocks, and the average largest share of LLaMA's.

    python benchmarks/token_widths.py [--engine ray --address auto]

Weight variances are held while the width grows, so the prediction stays and what is left must fall as 1/D. The largest
share is computed from every network's own covariance (400 draws of a head), and from the mean covariance of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from as_studies import line_options, lines
from numpy.typing import NDArray
from token_table import CLASSES, block, jackknife, largest, predicted, ratio, styled, sums, zipf

from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.theory.shares.argmax_sampling import draw_guesses

Array = NDArray[Any]


def net_of(name: str, width: int) -> Network:
    scale = (256 / width) ** 0.5
    if name == "llama L12":
        return styled("llama", 12, 0.02 * scale)(width)
    net = block("pre-RMS", "SwiGLU", 2, 0.2 * scale)(width)
    return net if name == "gated" else Network.parse(str(net).replace("attention(4,", "attention(16,"), classes=CLASSES)


def run(p: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name, width, inits, x = p["case"], p["width"], p["inits"], zipf()
    net = net_of(name, width)
    theory = predicted(Network(net.layers[:-2], CLASSES), x, width, ("mean",))[0]["mean"]
    pairs, shares, total, squares = np.empty((inits, 2)), np.empty(inits), np.zeros((len(x), len(x))), 0.0
    rows, columns = np.triu_indices(len(x), 1)
    apart: list[Array] = []
    for i in range(inits):
        with torch.inference_mode():
            y = torch.from_numpy(x)
            for module in list(build(net, x, width=width, seed=11, member=i))[:-2]:
                y = module(y)
        f = y.mean(1).double().numpy()
        k = f @ f.T / width
        pairs[i], total = sums(k), total + k / inits
        shares[i] = draw_guesses(k, CLASSES, draws=400, seed=i).fractions.max(axis=1).mean()
        size = np.sqrt(k.diagonal())
        apart.append((k / np.outer(size, size))[rows, columns])
    squares = float(np.var(np.array(apart), axis=0, ddof=1).mean())
    yield {
        "case": name,
        "width": width,
        "inits": inits,
        "gamma_predicted": theory["gamma"],
        "gamma": ratio(pairs),
        "gamma_se": jackknife(pairs),
        "max_predicted": theory["max"],
        "max_of_mean": largest(total),
        "max": float(shares.mean()),
        "max_se": float(shares.std(ddof=1)) / inits**0.5,
        "variance_of_correlation": squares,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line_options(parser, "out/token-widths")
    parser.add_argument("--inits", type=int, default=40)
    given = parser.parse_args()
    cases = [("gated", width) for width in (128, 256, 512, 1024)]
    cases += [("gated, 16 heads", 256), ("gated, 16 heads", 1024), *(("llama L12", w) for w in (64, 128, 256, 512))]
    made_of = [{"case": name, "width": width, "inits": given.inits} for name, width in cases]
    for line in lines("token widths", made_of, run, given):
        print({k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}, flush=True)


if __name__ == "__main__":
    main()
