"""Predicted and drawn transformers and mixers, cell by cell: γ of every read-out and the average largest share.

    python benchmarks/token_table.py                               all cells that need no files, one process
    python benchmarks/token_table.py --data-dir data               CIFAR-10 patches and AG News too
    python benchmarks/token_table.py --print                       the table of what is there, for docs/transformers.md

A cell is a line of JSON in `--out`: a run that was stopped continues where it was. Predicted is the kernel on the same
sequences (theory.md §9) at infinite width. Measured are `--inits` networks of width 256: γ is a ratio of averages over
networks (error: jackknife), the largest share that of 16 heads of ten classes on each (error: over networks).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.theory.drawing import draw_guesses
from firstguess.theory.token_kernel import token_covariances

Array = NDArray[Any]
WIDTH, HEADS, SEQUENCES, LENGTH, CLASSES, DRAWN_HEADS = 256, 4, 24, 32, 10, 16
DRAWS = 40_000  # of the law of the guesses: 0.0008 on a largest share, beside at least 0.004 of 40 networks
DEPTHS, STDS = (2, 6, 12), (0.02, 0.05, 0.1, 0.2)
# What finite width may add: each of two sums over D nodes a block (attention and MLP) moves the correlation of two
# tokens by up to 1/4D (theory.md (45): |B| ≤ 0.24). A gate, F(k)·k with overlaps k that vary by v = 1/D to 2/D about
# their mean, by F'(0)·v ≈ 1/D. For the mean of T tokens, whose own variance is about 1/T, that is T times as much in γ.
FINITE, GATED = 0.25, 1.0


@dataclass(frozen=True)
class Cell:
    """One network, its sequences, and the read-outs that are looked at."""

    name: str
    group: str
    depth: int
    net: Callable[[int], Network]  # of a width
    data: Callable[[], Array]
    pools: tuple[str, ...]
    width: int = WIDTH


def zipf(shared: bool = False) -> Array:
    """Ids of a Zipf vocabulary of 5000 words; the first is the same in all sequences if `shared`."""
    rng = np.random.default_rng(20261117)
    p = 1.0 / np.arange(1, 5001)
    ids = rng.choice(5000, (SEQUENCES, LENGTH), p=p / p.sum()) + 1
    if shared:
        ids[:, 0] = 0
    return ids


def noise_images(side: int = 32) -> Array:
    return np.random.default_rng(20261117).standard_normal((SEQUENCES, 3, side, side)).astype(np.float32)


def styled(style: Any, depth: int, std: float | None = None) -> Callable[[int], Network]:
    def make(width: int) -> Network:
        patch = {"patch": 8} if style == "vit" else {}
        return fg.transformer(style, depth=depth, width=width, heads=HEADS, std=std, **patch)  # type: ignore[arg-type]

    return make


def block(kind: str, mlp: str, depth: int, std: float) -> Callable[[int], Network]:
    """post-LN, pre-LN or pre-RMS, with GELU or SwiGLU, all weights N(0, std²) and embeddings of unit size."""

    def make(width: int) -> Network:
        wide, deep = width * std**2, 4 * width * std**2
        attention = f"attention({HEADS}, weight_var={wide})"
        gate = mlp == "SwiGLU"
        inner = f"dense(weight_var={wide}, width={4 * width * (2 if gate else 1)}) > "
        inner += f"{'gated(silu)' if gate else 'gelu'} > dense(weight_var={deep})"
        norm = "rmsnorm" if "RMS" in kind else "layernorm"
        if kind.startswith("post"):
            text = f"residual[{attention}] > {norm} > residual[{inner}] > {norm}"
        else:
            text = f"residual[{norm} > {attention}] > residual[{norm} > {inner}]"
        end = "" if kind.startswith("post") else f"{norm} > "
        source = f"embed(1, width={width}) > {depth} x [{text}] > {end}pool_tokens(mean) > dense"
        return Network.parse(source, classes=CLASSES)

    return make


def mixer(norm: Any, depth: int, tokens: int) -> Callable[[int], Network]:
    return lambda width: fg.mixer(depth=depth, width=width, tokens=tokens, hidden=4 * width, patch=8, norm=norm)


def cells(data_dir: Path | None) -> Iterator[Cell]:
    """In the order in which they are worth having."""
    every: tuple[str, ...] = ("cls", "mean", "last")
    for depth in (12, 2, 6):
        for style in ("gpt2", "llama", "bert"):
            shared = style == "bert"
            pools = every if shared else every[1:]
            yield Cell(f"{style} L{depth}", "styles", depth, styled(style, depth), lambda s=shared: zipf(s), pools)
        yield Cell(f"vit L{depth}", "styles", depth, styled("vit", depth), noise_images, every[:2])
        for norm in ("layernorm", "rmsnorm"):
            yield Cell(f"mixer {norm} L{depth}", "styles", depth, mixer(norm, depth, 256), noise_images, ("mean",))
    if data_dir is not None:
        yield from real(data_dir)
    for depth in DEPTHS:
        for std in STDS:
            for kind in ("post-LN", "pre-LN", "pre-RMS"):
                for mlp in ("GELU", "SwiGLU"):
                    name = f"{kind} {mlp} L{depth} std {std}"
                    yield Cell(name, "blocks", depth, block(kind, mlp, depth, std), zipf, every[1:])


def real(data_dir: Path) -> Iterator[Cell]:
    def images() -> Array:
        found = fg.data.load("cifar10:test", data_dir=data_dir, points=SEQUENCES, seed=3)
        return np.array(found.x)

    def texts(style: str) -> Array:
        found = fg.data.ag_news(data_dir, length=LENGTH, first=style != "gpt2", points=SEQUENCES, seed=3)
        return found.x.astype(np.int64)

    for depth in (12, 2):
        yield Cell(f"vit L{depth} CIFAR-10", "real", depth, styled("vit", depth), images, ("cls", "mean"))
        for style in ("gpt2", "llama", "bert"):
            pools = ("cls", "mean", "last") if style == "bert" else ("mean", "last")
            yield Cell(
                f"{style} L{depth} AG News", "real", depth, styled(style, depth), lambda s=style: texts(s), pools
            )
        yield Cell(
            f"mixer layernorm L{depth} CIFAR-10", "real", depth, mixer("layernorm", depth, 256), images, ("mean",)
        )


def read_out(k: Array, n: int, pool: str) -> Array:
    """theory.md (28)."""
    blocks = k.reshape(n, len(k) // n, n, -1)
    if pool == "mean":
        return blocks.mean(axis=(1, 3))
    place = 0 if pool == "cls" else -1
    return blocks[:, place, :, place].copy()


def sums(k: Array) -> tuple[float, float]:
    """C and S: means beside and on the diagonal."""
    n = len(k)
    trace = float(np.trace(k))
    return (float(k.sum()) - trace) / (n * (n - 1)), trace / n


def ratio(pairs: Array) -> float:
    c, s = pairs.mean(axis=0)
    return float(c / (s - c))


def jackknife(pairs: Array) -> float:
    found = np.array([ratio(np.delete(pairs, i, axis=0)) for i in range(len(pairs))])
    return math.sqrt((len(pairs) - 1) * float(np.var(found)))


def largest(k: Array) -> float:
    """E max G of ten Gaussian logits of covariance `k`."""
    return float(draw_guesses(k, CLASSES, draws=DRAWS).fractions.max(axis=1).mean())


def measured(net: Network, x: Array, width: int, inits: int, pools: tuple[str, ...]) -> dict[str, Any]:
    pairs = {pool: np.empty((inits, 2)) for pool in pools}
    shares = {pool: np.empty(inits) for pool in pools}
    kernels = {pool: np.zeros((len(x), len(x))) for pool in pools}
    rng = np.random.default_rng(7)
    data = torch.from_numpy(x)
    for i in range(inits):
        with torch.inference_mode():
            y = data
            for module in list(build(net, x, width=width, seed=5, member=i))[:-2]:
                y = module(y)
        tokens = y.numpy().astype(np.float64)
        for pool in pools:
            f = tokens.mean(1) if pool == "mean" else tokens[:, 0 if pool == "cls" else -1]
            k = f @ f.T / f.shape[1]
            pairs[pool][i] = sums(k)
            kernels[pool] += k / inits
            logits = np.einsum("nd,hcd->hnc", f, rng.standard_normal((DRAWN_HEADS, CLASSES, f.shape[1])))
            counts = [np.bincount(one, minlength=CLASSES).max() / len(f) for one in logits.argmax(2)]
            shares[pool][i] = np.mean(counts)
    return {
        pool: {
            "gamma": ratio(pairs[pool]),
            "gamma_se": jackknife(pairs[pool]),
            "max": float(shares[pool].mean()),
            "max_se": float(shares[pool].std(ddof=1)) / math.sqrt(inits),
            "max_of_mean": largest(kernels[pool]),
        }
        for pool in pools
    }


def run(cell: Cell, inits: int, drawn: dict[str, Any] | None = None) -> dict[str, Any]:
    """One line; networks that were drawn already are given."""
    x, net, started = cell.data(), cell.net(cell.width), time.perf_counter()
    found = token_covariances(Network(net.layers[:-2], CLASSES), x, width=cell.width)
    predicted: dict[str, Any] = {}
    for pool in cell.pools:
        k = read_out(found.k, len(x), pool)
        c, s = sums(k)
        spread = (s - c) / float(found.k.diagonal().mean())
        predicted[pool] = {"gamma": c / (s - c), "max": largest(k), "spread": spread}
    middle = time.perf_counter()
    drawn = drawn or measured(net, x, cell.width, inits, cell.pools)
    return {
        "cell": cell.name,
        "group": cell.group,
        "depth": cell.depth,
        "width": cell.width,
        "inits": inits,
        "predicted": predicted,
        "measured": drawn,
        "remarks": [str(one) for one in found.remarks],
        "seconds": [middle - started, time.perf_counter() - middle],
    }


def room(line: dict[str, Any], pool: str) -> tuple[float, float]:
    """What finite width may add to γ and to the largest share: depth/2D (gated: 2·depth/D) of a token's q, in C.

    The mean of tokens varies by as much more between tokens of one sequence, single tokens do not.
    """
    gamma, spread = line["predicted"][pool]["gamma"], line["predicted"][pool]["spread"]
    each = GATED if "SwiGLU" in line["cell"] or "llama" in line["cell"] else FINITE
    apart = each * 2.0 * line["depth"] / line["width"] / spread * (1.0 if pool == "mean" else 1.0 + gamma)
    ends = max(gamma - apart, 0.0), gamma + apart
    shares = [fg.Guesses(max(one, 0.0), CLASSES, SEQUENCES).expected_max() for one in (ends[0], gamma, ends[1])]
    return apart, max(shares[1] - shares[0], shares[2] - shares[1])


def table(path: Path) -> str:
    head = "| network | read-out | γ predicted | measured | z | E max predicted | measured | z | |\n"
    out, good, count = [head + "|---|---|---|---|---|---|---|---|---|"], 0, 0
    for line in map(json.loads, path.read_text().splitlines()):
        for pool, p in line["predicted"].items():
            m = line["measured"][pool]
            z = [(m[what] - p[what]) / max(m[f"{what}_se"], 1e-12) for what in ("gamma", "max")]
            more = room(line, pool)
            fits = all(
                abs(m[what] - p[what]) <= 3.0 * m[f"{what}_se"] + add
                for what, add in zip(("gamma", "max"), more, strict=True)
            )
            inside = all(abs(one) <= 3.0 for one in z)
            said = "" if inside else "within 1/D" if fits else "**off**"
            good, count = good + fits, count + 1
            out.append(
                f"| {line['cell']} | {pool} | {p['gamma']:.4g} | {m['gamma']:.4g} ± {m['gamma_se']:.2g} | {z[0]:+.1f} "
                f"| {p['max']:.3f} | {m['max']:.3f} ± {m['max_se']:.3f} | {z[1]:+.1f} | {said} |"
            )
    return "\n".join([*out, "", f"{good} of {count} read-outs within 3 standard errors plus the 1/D term."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("token-table.jsonl"))
    parser.add_argument("--inits", type=int, default=40)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    parser.add_argument("--print", action="store_true")
    given = parser.parse_args()
    if given.print:
        print(table(given.out))
        return
    done = {json.loads(line)["cell"] for line in given.out.read_text().splitlines()} if given.out.exists() else set()
    for cell in cells(given.data_dir):
        if cell.name in done or given.only not in cell.name:
            continue
        try:
            line = run(cell, given.inits)
        except fg.FirstguessError as error:
            print(f"{cell.name}: {error}", flush=True)
            continue
        with given.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{cell.name}: {[round(s, 1) for s in line['seconds']]} s", flush=True)


if __name__ == "__main__":
    main()
