"""Why mixers on correlated patches come out low: networks whose mixing weights all nodes share, and others.

    python benchmarks/mixers.py --data-dir data

Mixers of two blocks with RMSNorm on 16 patches of CIFAR-10 images and of noise, by the width of token mixing. Shared:
the mixer as it is. Own: the same, but every node has mixing weights of its own, so that sums over nodes average over
them, as theory.md (29) does. γ is that of the mean over tokens. A case is a task of a study, kept in `--out`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from as_studies import line_options, lines
from numpy.typing import NDArray
from token_table import jackknife, ratio, read_out, sums
from torch.nn.functional import gelu

import firstguess as fg
from firstguess.network.network import Network
from firstguess.theory.tokens import token_covariances

IMAGES, DEPTH = 16, 2


def patches(x: NDArray[Any]) -> torch.Tensor:
    """(images, 16 tokens, 192 numbers) of unit mean square at all, cut as `patches(8)` cuts."""
    n = len(x)
    cut = x.reshape(n, 3, 4, 8, 4, 8).transpose(0, 2, 4, 1, 3, 5).reshape(n, 16, -1)
    return torch.from_numpy(np.ascontiguousarray(cut, dtype=np.float32))


def normed(h: torch.Tensor) -> torch.Tensor:
    return h / h.square().mean(-1, keepdim=True).add(1e-6).sqrt()


def one(tokens: torch.Tensor, width: int, units: int, shared: bool, generator: torch.Generator) -> torch.Tensor:
    """What stands before the read-out of one network, (images, tokens, nodes)."""

    def draw(*size: int, fan: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator) / math.sqrt(fan)

    h = tokens @ draw(tokens.shape[2], width, fan=tokens.shape[2])
    places = tokens.shape[1]
    for _ in range(DEPTH):
        z = normed(h)
        if shared:
            bent = gelu(torch.einsum("ut,ntd->nud", draw(units, places, fan=places), z))
            h = h + torch.einsum("tu,nud->ntd", draw(places, units, fan=units), bent)
        else:
            bent = gelu(torch.einsum("dut,ntd->nud", draw(width, units, places, fan=places), z))
            h = h + torch.einsum("dtu,nud->ntd", draw(width, places, units, fan=units), bent)
        h = h + gelu(normed(h) @ draw(width, 4 * width, fan=width)) @ draw(4 * width, width, fan=4 * width)
    return normed(h)


def participation(tokens: torch.Tensor) -> float:
    """(tr K)²/tr K² of an image's tokens, the average over images: how many directions they have."""
    k = torch.einsum("ntd,nsd->nts", tokens, tokens).double()
    trace = k.diagonal(dim1=1, dim2=2).sum(1)
    return float((trace**2 / (k**2).sum((1, 2))).mean())


def run(p: dict[str, Any]) -> Iterator[dict[str, Any]]:
    x, width, units, shared, inits = (p[name] for name in ("x", "width", "units", "shared", "inits"))
    tokens = patches(x)
    net = fg.mixer(depth=DEPTH, width=width, tokens=units, hidden=4 * width, patch=8, norm="rmsnorm")
    k = read_out(token_covariances(Network(net.layers[:-2], 10), x, width=width).k, len(x), "mean")
    c, s = sums(k)
    pairs = np.empty((inits, 2))
    for i in range(inits):
        with torch.inference_mode():
            f = one(tokens, width, units, shared, torch.Generator().manual_seed(1000 + i)).mean(1).double().numpy()
        pairs[i] = sums(f @ f.T / width)
    yield {name: p[name] for name in ("data", "width", "units", "shared")} | {
        "predicted": c / (s - c),
        "measured": ratio(pairs),
        "error": jackknife(pairs),
        "participation": participation(tokens),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line_options(parser, "out/mixers")
    parser.add_argument("--inits", type=int, default=60)
    parser.add_argument("--data-dir", type=Path, help="without it: noise only")
    given = parser.parse_args()
    data = {"noise": np.random.default_rng(20261117).standard_normal((IMAGES, 3, 32, 32)).astype(np.float32)}
    if given.data_dir is not None:
        data["CIFAR-10"] = np.array(fg.data.load("cifar10:test", data_dir=given.data_dir, points=IMAGES, seed=3).x)
    cases = [(name, 256, units, shared) for shared in (True, False) for name in data for units in (16, 64, 256)]
    cases += [(name, 768, 64, True) for name in data if name == "CIFAR-10"]
    made_of = [
        {"data": name, "width": width, "units": units, "shared": shared, "inits": given.inits, "x": data[name]}
        for name, width, units, shared in cases
    ]
    for line in lines("mixers", made_of, run, given):
        z = (line["measured"] - line["predicted"]) / line["error"]
        key = {name: line[name] for name in ("data", "width", "units", "shared")}
        print(key, f"{line['predicted']:.4f} {line['measured']:.4f} ± {line['error']:.4f}, z {z:+.1f}", flush=True)


if __name__ == "__main__":
    main()
