"""Predicted and drawn transformers and mixers, cell by cell: γ of every read-out and the average largest share.

    python benchmarks/token_table.py                               all cells that need no files, one process
    python benchmarks/token_table.py --data-dir data               CIFAR-10 patches and AG News too
    python benchmarks/token_table.py --print                       the table of what is there, for docs/transformers.md

    python benchmarks/token_table.py --engine ray --address auto

A cell is a task of a study (docs/studies.md), kept in `--out`: a run that was stopped continues where it was. Predicted
is the kernel on the same sequences (theory.md §9) at infinite width. Measured are `--inits` networks of width 256: γ is
a ratio of averages over networks (error: jackknife), the largest share that of 16 heads of ten classes on each (error:
over networks).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from as_studies import line_options, lines
from numpy.typing import NDArray

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.network.network import Network
from firstguess.theory.shares.argmax_sampling import draw_guesses
from firstguess.theory.tokens import token_covariances

Array = NDArray[Any]
WIDTH, HEADS, SEQUENCES, LENGTH, CLASSES, DRAWN_HEADS = 256, 4, 24, 32, 10, 16
DRAWS = 40_000  # of the distribution of the guesses: 0.0008 on a largest share, next to at least 0.004 of 40 networks
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
    looks: tuple[int, ...] = ()  # depths at which it is read, too: its first blocks are a network of that depth


def zipf(shared: bool = False, size: tuple[int, int] = (SEQUENCES, LENGTH)) -> Array:
    """Ids of a Zipf vocabulary of 5000 words; the first is the same in all sequences if `shared`."""
    rng = np.random.default_rng(20261117)
    p = 1.0 / np.arange(1, 5001)
    ids = rng.choice(5000, size, p=p / p.sum()) + 1
    if shared:
        ids[:, 0] = 0
    return ids


def few() -> Array:
    """16 sequences of 16 tokens, for the deepest."""
    return zipf(size=(16, 16))


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
    for looks in ((DEPTHS[0],), DEPTHS[1:]):  # weights do not know how deep a network is: the deepest has all depths
        for std in STDS:
            for kind in ("post-LN", "pre-LN", "pre-RMS"):
                for mlp in ("GELU", "SwiGLU"):
                    depth = looks[-1]
                    net, data = block(kind, mlp, depth, std), zipf if depth == DEPTHS[0] else few
                    name = f"{kind} {mlp} L{depth} std {std}"
                    yield Cell(name, "blocks", depth, net, data, every[1:], looks=looks[:-1])


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
    """C and S: means next to and on the diagonal."""
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


def measured(
    net: Network, x: Array, width: int, inits: int, pools: tuple[str, ...], ends: list[int], normed: bool
) -> list[Any]:
    """What every read-out has, behind as many layers as `ends` says, and the last norm if `normed`."""
    pairs = np.empty((len(ends), len(pools), inits, 2))
    shares = np.empty((len(ends), len(pools), inits))
    kernels = np.zeros((len(ends), len(pools), len(x), len(x)))
    rng = np.random.default_rng(7)
    data = torch.from_numpy(x)
    for i in range(inits):
        modules = list(build(net, x, width=width, seed=5, member=i))[:-2]
        y = data
        for index, module in enumerate(modules, start=1):
            with torch.inference_mode():
                y = module(y)
                if index not in ends:
                    continue
                tokens = (modules[-1](y) if normed and index < len(modules) else y).numpy().astype(np.float64)
            for j, pool in enumerate(pools):
                where = ends.index(index), j
                f = tokens.mean(1) if pool == "mean" else tokens[:, 0 if pool == "cls" else -1]
                k = f @ f.T / f.shape[1]
                pairs[where][i] = sums(k)
                kernels[where] += k / inits
                logits = np.einsum("nd,hcd->hnc", f, rng.standard_normal((DRAWN_HEADS, CLASSES, f.shape[1])))
                counts = [np.bincount(one, minlength=CLASSES).max() / len(f) for one in logits.argmax(2)]
                shares[where][i] = np.mean(counts)
    return [
        {
            pool: {
                "gamma": ratio(pairs[e, j]),
                "gamma_se": jackknife(pairs[e, j]),
                "max": float(shares[e, j].mean()),
                "max_se": float(shares[e, j].std(ddof=1)) / math.sqrt(inits),
                "max_of_mean": largest(kernels[e, j]),
            }
            for j, pool in enumerate(pools)
        }
        for e in range(len(ends))
    ]


def predicted(net: Network, x: Array, width: int, pools: tuple[str, ...]) -> tuple[dict[str, Any], list[str]]:
    """The same for infinite width, and how attention was followed."""
    found = token_covariances(net, x, width=width)
    out: dict[str, Any] = {}
    for pool in pools:
        k = read_out(found.k, len(x), pool)
        c, s = sums(k)
        spread = (s - c) / float(found.k.diagonal().mean())
        out[pool] = {"gamma": c / (s - c), "max": largest(k), "spread": spread}
    return out, [str(one) for one in found.remarks]


def run(p: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A cell: a line for every depth."""
    cell = next(one for one in cells(Path()) if one.name == p["cell"])
    inits, x, net = p["inits"], p["x"], cell.net(cell.width)
    body = net.layers[:-2]
    normed = body[-1:] if (len(body) - 1) % cell.depth else ()  # behind blocks that do not end in a norm
    blocks = len(body) - 1 - len(normed)
    ends = [1 + blocks * depth // cell.depth for depth in cell.looks] + [len(body)]
    theory = [
        predicted(Network((*body[:end], *normed) if end < len(body) else body, CLASSES), x, cell.width, cell.pools)
        for end in ends
    ]
    drawn = measured(net, x, cell.width, inits, cell.pools, ends, bool(normed))
    for depth, (said, remarks), seen in zip((*cell.looks, cell.depth), theory, drawn, strict=True):
        yield {
            "cell": cell.name.replace(f"L{cell.depth} ", f"L{depth} ") if cell.looks else cell.name,
            "group": cell.group,
            "depth": depth,
            "width": cell.width,
            "inits": inits,
            "points": len(x),
            "predicted": said,
            "measured": seen,
            "remarks": remarks,
        }


def room(line: dict[str, Any], pool: str) -> tuple[float, float]:
    """What finite width may add to γ and to the largest share: depth/2D (gated: 2·depth/D) of a token's q, in C.

    The mean of tokens varies by as much more between tokens of one sequence, single tokens do not.
    """
    gamma, spread = line["predicted"][pool]["gamma"], line["predicted"][pool]["spread"]
    each = GATED if "SwiGLU" in line["cell"] or "llama" in line["cell"] else FINITE
    apart = each * 2.0 * line["depth"] / line["width"] / spread * (1.0 if pool == "mean" else 1.0 + gamma)
    ends = max(gamma - apart, 0.0), max(gamma, 0.0), gamma + apart
    shares = [fg.Guesses(one, CLASSES, line.get("points", SEQUENCES)).expected_max() for one in ends]
    return apart, max(shares[1] - shares[0], shares[2] - shares[1])


def table(lines: list[dict[str, Any]]) -> str:
    head = "| network | read-out | γ predicted | measured | z | E max predicted | measured | z | |\n"
    out, good, count = [head + "|---|---|---|---|---|---|---|---|---|"], 0, 0
    for line in lines:
        for pool, p in line["predicted"].items():
            m = line["measured"][pool]
            z = [(m[what] - p[what]) / max(m[f"{what}_se"], 1e-12) for what in ("gamma", "max")]
            inside = all(abs(one) <= 3.0 for one in z)
            fits = inside or all(
                abs(m[what] - p[what]) <= 3.0 * m[f"{what}_se"] + add
                for what, add in zip(("gamma", "max"), room(line, pool), strict=True)
            )
            said = "" if inside else "within 1/D" if fits else "**off**"
            good, count = good + fits, count + 1
            out.append(
                f"| {line['cell']} | {pool} | {p['gamma']:.4g} | {m['gamma']:.4g} ± {m['gamma_se']:.2g} | {z[0]:+.1f} "
                f"| {p['max']:.3f} | {m['max']:.3f} ± {m['max_se']:.3f} | {z[1]:+.1f} | {said} |"
            )
    return "\n".join([*out, "", f"{good} of {count} read-outs within 3 standard errors plus the 1/D term."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line_options(parser, "out/token-table")
    parser.add_argument("--inits", type=int, default=40)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", default="", help="cells whose name has this in it")
    parser.add_argument("--print", action="store_true", help="compute nothing")
    given = parser.parse_args()
    chosen = [cell for cell in cells(given.data_dir) if given.only in cell.name]
    made_of = [{"cell": cell.name, "inits": given.inits, "x": cell.data()} for cell in chosen]
    print(table(lines("token table", made_of, run, given, compute=not given.print)))


if __name__ == "__main__":
    main()
