"""Beyond the papers: transformers. Which norm, where it stands, how deep, what is gated, what sequences share.

The norm paper opens with the question: the Transformer's design against LLaMA's. Here it is answered by covariances of
tokens (theory.md §9) and by networks drawn block by block; and by what a tied language-model head guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

import firstguess as fg
from firstguess_papers.charts import dots, lines
from firstguess_papers.items import Entry, Holds, Item
from firstguess_papers.judging import Array, Number, average, check, claimed, each, jackknife
from firstguess_papers.measured import Found
from firstguess_papers.mf import ratio
from firstguess_papers.running import Run

CLASSES = 10
_HEADS = 16  # classifiers that are drawn on one network: its average largest share
_DRAWS = 40_000  # of the predicted law: 0.001 on a largest share
Progress: TypeAlias = Callable[[int, int], object]
ReadOut = Literal["token", "mean", "first", "last"]  # "token": any one, if none is special


@dataclass(frozen=True)
class Design:
    """A block of attention and MLP: where its norms stand, which they are, and what bends the MLP.

    All variances are 1 (σ² of theory.md §9), embeddings of unit size, no positions: whatever two sequences of
    different tokens share, the blocks have made.
    """

    name: str
    place: Literal["before", "after"]  # of a branch (pre-norm), or after its sum (post-norm)
    norm: Literal["layernorm", "rmsnorm"]
    gated: bool = False

    def network(self, depth: int, width: int) -> fg.Network:
        """Without a read-out; after blocks that do not end in a norm there is one more."""
        hidden = f"dense(width={2 * (8 * width // 3)}) > gated(silu)" if self.gated else f"dense(width={4 * width})"
        mlp = f"{hidden} > dense" if self.gated else f"{hidden} > gelu > dense"
        if self.place == "after":
            block = f"residual[attention(4)] > {self.norm} > residual[{mlp}] > {self.norm}"
        else:
            block = f"residual[{self.norm} > attention(4)] > residual[{self.norm} > {mlp}]"
        end = f" > {self.norm}" if self.place == "before" else ""
        return fg.Network.parse(f"embed(1, width={width}) > {depth} x [{block}]{end}", classes=CLASSES)

    def ends(self, blocks: int) -> int:
        """The number of layers up to the end of block `blocks`, the embedding with them."""
        return 1 + blocks * (4 if self.place == "after" else 2)


def different_tokens(sequences: int, length: int, *, seed: int = 0, shared: bool = False) -> NDArray[np.int64]:
    """Ids (sequences, length), no two alike but, if `shared`, the first of every sequence, which is 0.

    >>> different_tokens(2, 3, shared=True)[:, 0].tolist(), len(np.unique(different_tokens(2, 3)))
    ([0, 0], 6)
    """
    ids = np.random.default_rng((seed, 0x70C)).permutation(sequences * length).reshape(sequences, length) + 1
    if shared:
        ids[:, 0] = 0
    return ids


def pair_sums(tokens: Array, read_out: ReadOut) -> tuple[float, float]:
    """C and S of one network from nodes (sequences, tokens, D): theory.md (28); "token" averages over places."""
    n, _, width = tokens.shape
    if read_out == "mean":
        tokens = tokens.mean(axis=1, keepdims=True)
    elif read_out != "token":
        tokens = tokens[:, :1] if read_out == "first" else tokens[:, -1:]
    places = tokens.shape[1]
    own = float((tokens**2).sum()) / (n * places * width)
    both = float((tokens.sum(axis=0) ** 2).sum()) / (places * width)
    return (both - n * own) / (n * (n - 1)), own


def covariance_of(k: Array, sequences: int, read_out: ReadOut) -> tuple[float, float, Array]:
    """C, S and the covariance (sequences, sequences) of a read-out from that of all tokens; of "token" the last's."""
    blocks = k.reshape(sequences, len(k) // sequences, sequences, -1)
    if read_out == "mean":
        found = blocks.mean(axis=(1, 3))
        means = found
    else:
        place = 0 if read_out == "first" else -1
        found = blocks[:, place, :, place].copy()
        means = np.einsum("asbs->ab", blocks) / blocks.shape[1] if read_out == "token" else found
    own = float(np.trace(means)) / sequences
    return (float(means.sum()) - sequences * own) / (sequences * (sequences - 1)), own, found


@dataclass(frozen=True)
class Drawn:
    """Networks that were drawn: C, S and the average largest share, (networks, places and read-outs) each."""

    c: Array
    s: Array
    share: Array

    def gamma(self, index: int = -1) -> Number:
        """γ = C/(S − C), averages over networks first."""
        return ratio(self.c[:, index], (self.s - self.c)[:, index])

    def largest(self, index: int = -1) -> Number:
        """The average largest share."""
        return average(self.share[:, index])


def gamma_ratio(one: Drawn, other: Drawn, index: int = -1) -> Number:
    """γ of one over γ of the other, networks that share their weights: the error leaves out one pair at a time."""

    def value(c: Array, s: Array, d: Array, t: Array) -> float:
        return float(c.mean() / (s - c).mean() / (d.mean() / (t - d).mean()))

    return jackknife(value, *(a[:, index] for a in (one.c, one.s, other.c, other.s)))


def drawn(run: Run, name: str, network: fg.Network, x: NDArray[Any], **given: Any) -> Drawn:
    """Networks as `_drawn` draws them; columns are by place, and at each by read-out."""
    piece = run.keep(_drawn, label=name, network=network, x=x, seed=run.seed, **given)
    return run.later(Drawn, lambda: Drawn(*(piece[part] for part in ("c", "s", "share"))))


def _drawn(
    network: fg.Network, x: NDArray[Any], *, width: int, inits: int, seed: int, behind: Sequence[int] = (),
    read_outs: Sequence[ReadOut] = ("token",), normed: bool = False, progress: Progress = lambda done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Networks read after as many layers as `behind` says (and their last norm, if `normed`), or after all of them."""
    import torch

    from firstguess_papers.library import build

    whole = fg.Network((*network.layers, *fg.Network.parse("pool_tokens(mean) > dense").layers), CLASSES)
    marks = list(behind) or [len(network.layers)]
    found = np.empty((3, inits, len(marks), len(read_outs)))
    for member in range(inits):
        heads = np.random.default_rng((seed, member, 0x4EAD)).standard_normal((_HEADS, CLASSES, width))
        modules = list(build(whole, x, width=width, seed=seed, member=member))[:-2]
        y = torch.from_numpy(x)
        for index, module in enumerate(modules, start=1):
            with torch.inference_mode():
                y = module(y)
                if index not in marks:
                    continue
                nodes = (modules[-1](y) if normed else y).numpy().astype(np.float64)
            for column, read_out in enumerate(read_outs):
                numbers = *pair_sums(nodes, read_out), _share(nodes, read_out, heads)
                found[:, member, marks.index(index), column] = numbers
        progress(member + 1, inits)
    return dict(zip(("c", "s", "share"), found.reshape(3, inits, -1), strict=True))


def _share(nodes: Array, read_out: ReadOut, heads: Array) -> float:
    """The average largest share of classes among sequences, over the heads that are drawn."""
    features = nodes.mean(axis=1) if read_out == "mean" else nodes[:, 0 if read_out == "first" else -1]
    guesses = np.einsum("nd,hcd->hnc", features, heads).argmax(axis=2)
    return float(np.mean([np.bincount(one, minlength=CLASSES).max() for one in guesses])) / len(nodes)


def predicted(
    run: Run, name: str, network: fg.Network, x: NDArray[Any], *, width: int, read_out: ReadOut = "token"
) -> tuple[float, float]:
    """γ of a read-out and the average largest share, by the covariances of tokens: theory.md (20)-(28)."""
    given: dict[str, Any] = {"network": network, "x": x, "width": width, "read_out": read_out}
    piece = run.keep(_by_covariances, label=f"{name}, predicted", **given)
    return piece["gamma"], piece["share"]


def _by_covariances(network: fg.Network, x: NDArray[Any], width: int, read_out: ReadOut) -> dict[str, float]:
    from firstguess_papers.library import draw_guesses, token_covariances

    c, s, k = covariance_of(token_covariances(network, x, width=width).k, len(x), read_out)
    law = draw_guesses(k, CLASSES, draws=_DRAWS)
    return {"gamma": c / (s - c), "share": float(law.fractions.max(axis=1).mean())}


LIKE, FLOOR, PREDICTED = 0.05, 0.05, 0.1  # LN/RMS, γ where 0 is predicted (D = 256), and measured/predicted: rooms
SHARE = 0.01  # of a largest share: a difference that nobody would see
POST, PRE = "post-norm", "pre-norm"
DEPTHS = (1, 2, 4, 8, 16)
TRANSFORMER, GPT2, RMS, LLAMA = (
    "post-LayerNorm, GELU (Transformer)",
    "pre-LayerNorm, GELU (GPT-2)",
    "pre-RMSNorm, GELU",
    "pre-RMSNorm, gated SiLU (LLaMA)",
)
DESIGNS = (
    Design(TRANSFORMER, "after", "layernorm"),
    Design(GPT2, "before", "layernorm"),
    Design(RMS, "before", "rmsnorm"),
    Design(LLAMA, "before", "rmsnorm", gated=True),
)


def _depths(c: Found) -> list[int]:
    return [k for k in DEPTHS if k <= c.depth]


def _tokens(c: Found, *, shared: bool = False) -> Any:
    return different_tokens(c.n, c.length, seed=c.run.seed, shared=shared)


def _blocks(c: Found, design: Design) -> Drawn:
    """Networks of the whole depth, read after the blocks that are looked at."""
    return drawn(
        c.run, design.name, design.network(c.depth, c.width), _tokens(c), width=c.width, inits=c.inits,
        behind=[design.ends(k) for k in _depths(c)], normed=design.place == "before",
    )  # fmt: skip


def _known(c: Found, design: Design) -> list[tuple[float, float]]:
    """γ and the largest share after these blocks, by covariances."""
    return [
        predicted(c.run, f"{design.name}, {k} blocks", design.network(k, c.width), _tokens(c), width=c.width)
        for k in _depths(c)
    ]


BOTH: dict[str, tuple[Any, bool]] = {
    f"{word}, {'gated SiLU' if gated else 'GELU'}": (place, gated)
    for word, place in ((POST, "after"), (PRE, "before")) for gated in (False, True)
}  # fmt: skip
NORMS: dict[Any, str] = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}


def _norms(c: Found) -> dict[str, Any]:
    """γ with both norms on the same weights, by design and depth."""
    found = {
        (name, norm): _blocks(c, Design(f"{name}, {norm}", place, norm, gated))
        for name, (place, gated) in BOTH.items() for norm in NORMS
    }  # fmt: skip
    theory = {name: _known(c, Design(name, place, "layernorm", gated)) for name, (place, gated) in BOTH.items()}
    pairs = {name: (found[name, "layernorm"], found[name, "rmsnorm"]) for name in BOTH}
    many = range(len(_depths(c)))
    return {
        "ratios": {name: [gamma_ratio(*pairs[name], i) for i in many] for name in BOTH if not BOTH[name][1]},
        "floors": {name: [one.gamma(i) for one in pairs[name] for i in many] for name in BOTH if BOTH[name][1]},
        "shares": {name: [average(a.share[:, i] - b.share[:, i]) for i in many] for name, (a, b) in pairs.items()},
        "lines": [
            {"design": name, "norm": label, "blocks": k, "gamma": found[name, norm].gamma(i),
             "predicted": theory[name][i][0], "largest": found[name, norm].largest(i).value}
            for name in BOTH for norm, label in NORMS.items() for i, k in enumerate(_depths(c))
        ],
    }  # fmt: skip


By_design: TypeAlias = Mapping[str, Sequence[Number]]


def judge_norm(depths: Sequence[int], ratios: By_design, floors: By_design, shares: By_design) -> Entry:
    """`ratios` of γ where it is not 0, γ itself where gates keep it there, differences of largest shares."""

    def named(what: str, found: By_design) -> By_design:
        return {f"{what}, {name.replace(',', '')}": values for name, values in found.items()}

    return claimed(
        "B2", f"the same weights with LayerNorm and with RMSNorm, {', '.join(map(str, depths))} blocks: γ of a token "
        "and the average largest share of ten classes",
        [*each(named("ratio of γ", ratios), near=1.0, room=LIKE), *each(named("γ", floors), near=0.0, room=FLOOR),
         *each(named("difference of shares", shares), near=0.0, room=SHARE)],
        otherwise="the two norms differ by more",
        headline=f"γ with LayerNorm over γ with RMSNorm, {depths[-1]} blocks: "
        + ", ".join(f"{values[-1]} ({name.partition(',')[0]})" for name, values in ratios.items()),
    )  # fmt: skip


tokens_norm = Item(
    "beyond/tokens-norm",
    "The kind of norm does not matter in transformers: LayerNorm against RMSNorm on the same weights",
    "theory.md §9, (21)", claims=("B2",), version=2, seconds=(6, 200),
    about="Blocks of attention (4 heads) and GELU or gated SiLU, norms before the branches or after the sums, all "
    "variances 1, width {width}, {depth} blocks; {n} sequences of {length} different tokens; {inits} networks each "
    "with LayerNorm, and with RMSNorm and the same weights.",
    quick=dict(width=64, depth=4, n=12, length=8, inits=10),
    full=dict(width=256, depth=16, n=24, length=16, inits=60),
    quantities=_norms, judge=lambda c: [judge_norm(_depths(c), c.ratios, c.floors, c.shares)],
    tables=lambda c: {"norms": c.lines},
    charts=lambda c: {"norms": lines(
        c.lines, "blocks", "gamma", by="norm", panel="design", theory="predicted", x_title="Blocks",
        y_title="Drift ratio γ of a token", x_scale="log", width=430, height=220,
    )},
    holds={"norms": Holds("In transformers LayerNorm and RMSNorm are the same", verdicts=("holds",))},
    notes=["Blocks of one network are read one after the other: errors of depths go together."],
)  # fmt: skip


def _designs(c: Found) -> dict[str, Any]:
    found, known = {d.name: _blocks(c, d) for d in DESIGNS}, {d.name: _known(c, d) for d in DESIGNS}
    rows = [
        {"design": name, "blocks": k, "gamma": found[name].gamma(i), "gamma_predicted": known[name][i][0],
         "largest": found[name].largest(i), "largest_predicted": known[name][i][1]}
        for name in found for i, k in enumerate(_depths(c))
    ]  # fmt: skip
    gamma, theory = ({name: [row[what] for row in rows if row["design"] == name] for name in found}
                     for what in ("gamma", "gamma_predicted"))  # fmt: skip
    return {"gamma": gamma, "theory": theory, "lines": rows}


def judge_depth(depths: Sequence[int], found: By_design, theory: Mapping[str, Sequence[float]]) -> list[Entry]:
    """Post against pre, then gates; `holds` without a limit where γ is predicted, too."""
    post, pre, gated, twin = (found[name] for name in (TRANSFORMER, GPT2, LLAMA, RMS))
    apart = {k: a - b for k, a, b in zip(depths, post, pre, strict=True)}
    deep, from_4 = depths[-1], [i for i, k in enumerate(depths) if k >= 4]
    return [
        claimed(
            "B2", "γ of a token with norms after the sums (post) − before the branches (pre); without a limit γ over "
            "its prediction, from 4 blocks on",
            [*each({f"post − pre, {k} blocks": apart[k] for k in depths if k >= 4}, above=0.0),
             *(check(f"post − pre, {k} blocks", apart[k], above=apart[j], than=f"that at {j}")
               for j, k in pairwise(k for k in (1, 4, 16) if k in apart))],
            within=each({name.replace(",", ""): [found[name][i] / Number(theory[name][i]) for i in from_4]
                         for name in (TRANSFORMER, GPT2, RMS)}, near=1.0, room=PREDICTED),
            also="; ".join(f"{k} blocks: {a} and {b}" for k, a, b in zip(depths, post, pre, strict=True)),
            headline=f"γ after {deep} blocks: post-norm {post[-1]}, pre-norm {pre[-1]}",
        ),
        claimed(
            "B2", f"gates create no bias: γ of a token with gated SiLU, and over that with GELU after {deep} blocks",
            [check("γ with gates", gated, near=0.0, room=FLOOR), check("over GELU's", gated[-1] / twin[-1], below=0.1)],
            headline=f"γ after {deep} blocks: gated {gated[-1]}, GELU {twin[-1]}",
        ),
    ]  # fmt: skip


tokens_depth = Item(
    "beyond/tokens-depth", "Transformer or LLaMA: bias by depth with post-norm, pre-norm, RMSNorm and gates",
    "theory.md §9; the question NORM §1 opens with", claims=("B2",), seconds=(6, 130),
    about="Blocks of attention (4 heads) and MLP, all variances 1, width {width}, {depth} blocks; {n} sequences of "
    "{length} different tokens; {inits} networks each of four designs.",
    quick=dict(width=64, depth=4, n=12, length=8, inits=10),
    full=dict(width=256, depth=16, n=24, length=16, inits=60),
    quantities=_designs, judge=lambda c: judge_depth(_depths(c), c.gamma, c.theory),
    tables=lambda c: {"depth": c.lines},
    charts=lambda c: {
        name: lines(c.lines, "blocks", y, theory=f"{y}_predicted", percent=y == "largest", by="design",
                    x_title="Blocks", x_scale="log", width=820, height=340)
        for name, y in (("gamma", "gamma"), ("shares", "largest"))
    },
    holds=dict.fromkeys(("gamma", "shares"), "Blocks make a Transformer biased, not a LLaMA"),
    notes=["Nothing is shared by the sequences but the weights: no positions, no first token."],
)  # fmt: skip


QUARTER, OWN, FAR = 0.25, 0.03, 5.0  # of γ that may be left; room of a probability; γ's range in B3
# by style: what is read, and what two sequences share
STYLES: dict[str, tuple[ReadOut, str]] = {
    "gpt2": ("last", "GPT-2, last token (positions)"),
    "bert": ("first", "BERT, CLS (CLS, type, positions)"),
    "llama": ("last", "LLaMA, last token (BOS)"),
    "vit": ("first", "ViT, CLS (CLS, positions)"),
}
AS_IS, WITHOUT = "as it is", "without them"
PARTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of what stands beside the own vector: how much is common to all tokens
_SHIFT = 3.5  # z, standard deviations that the own logit stands higher


def bare(network: fg.Network) -> fg.Network:
    """The same without positions, first token and types: what the blocks alone make."""
    kept: list[Any] = [layer for layer in network.layers if layer.kind not in ("cls", "positions")]
    layers = tuple(replace(one, types=0.0) if one.kind == "embed" else one for one in kept)
    return fg.Network(layers, network.classes)


def _shared(c: Found) -> dict[str, Any]:
    """γ of four styles, with and without shared embeddings, for their own read-out and the mean over tokens."""
    images = np.random.default_rng((c.run.seed, 0x1336)).standard_normal((c.n, 3, 32, 32)).astype(np.float32)
    rows: list[dict[str, Any]] = []
    for style, (kind, label) in STYLES.items():
        patch: dict[str, Any] = {"patch": 8} if style == "vit" else {}
        net = fg.transformer(style, depth=c.depth, width=c.width, heads=4, **patch)  # type: ignore[arg-type]
        body = fg.Network(net.layers[:-2], CLASSES)
        data = images if style == "vit" else _tokens(c, shared=style != "gpt2")
        plain = images if style == "vit" else _tokens(c)
        read_outs: tuple[ReadOut, ReadOut] = kind, "mean"
        for how, one, x in ((AS_IS, body, data), (WITHOUT, bare(body), plain)):
            name = f"{label.partition(' (')[0]}, {how}"
            members = drawn(c.run, name, one, x, width=c.width, inits=c.inits, read_outs=read_outs)
            for index, read in enumerate(read_outs):
                gamma, share = predicted(c.run, f"{name}, {read}", one, x, width=c.width, read_out=read)
                rows.append(
                    {"model": label, "read_out": read, "how": how, "gamma": members.gamma(index),
                     "gamma_predicted": gamma, "largest": members.largest(index), "largest_predicted": share}
                )  # fmt: skip
    own, averaged = (
        {label: tuple(row["gamma"] for row in rows if row["model"] == label and (row["read_out"] == "mean") is of_mean)
         for _, label in STYLES.values()} for of_mean in (False, True)
    )  # fmt: skip
    return {"lines": rows, "own": own, "averaged": averaged}


def judge_shared(own: Mapping[str, tuple[Number, Number]], averaged: Mapping[str, tuple[Number, Number]]) -> Entry:
    """(γ as it is, γ without) by model, for the read-out that the model has, and for the mean over tokens."""
    left, also = (
        {name.partition(",")[0]: without / as_is for name, (as_is, without) in given.items()}
        for given in (own, averaged)
    )
    return claimed(
        "B2", "GPT-2, BERT, LLaMA and ViT as they start: what is left of γ of their own read-out once positions, CLS, "
        "BOS and types are taken away",
        each(left, below=QUARTER),
        within=each({f"mean over tokens of {name}": part for name, part in also.items()}, below=QUARTER),
        limit="more is left",
        also="γ as it is and without: "
        + "; ".join(f"{name.partition(' (')[0]} {a} and {b}" for name, (a, b) in own.items()),
        headline="γ left without shared embeddings: "
        + ", ".join(f"{100 * part.value:.1f} % ({name})" for name, part in left.items()),
    )  # fmt: skip


tokens_shared = Item(
    "beyond/tokens-shared",
    "In real transformers it is what sequences share that makes the bias: positions, CLS, BOS, types",
    "theory.md §9, (20)", claims=("B2",), seconds=(6, 120),
    about="GPT-2, BERT, LLaMA and ViT as Hugging Face starts them, {depth} blocks of width {width}, {n} sequences of "
    "{length} different tokens or random images; as they are, and without positions, CLS, BOS and types; {inits} "
    "networks each.",
    quick=dict(width=64, depth=2, n=12, length=8, inits=8),
    full=dict(width=256, depth=12, n=24, length=16, inits=40),
    quantities=_shared, judge=lambda c: [judge_shared(c.own, c.averaged)], tables=lambda c: {"shared": c.lines},
    charts=lambda c: {"shared": dots(
        [row | {"panel": "mean over tokens" if row["read_out"] == "mean" else "their own read-out"} for row in c.lines],
        "model", "largest", by="how", panel="panel", theory="largest_predicted", x_domain=(0.0, 1.0), percent=True,
        x_title="Average largest share of ten classes",
    )},
    holds={"shared": "Without positions, CLS, BOS and types little of real transformers' bias is left"},
)  # fmt: skip


def judge_own(found: Sequence[tuple[float, Number, Number]], chance: float) -> Entry:
    """(part that is shared, γ, share of tokens that guess themselves) of networks that have the same z."""
    (_, low, first), (_, high, last) = found[0], found[-1]
    return claimed(
        "B3", f"networks whose own logit stands z = {_SHIFT:g} standard deviations higher, share of tokens that guess "
        "themselves",
        [*each({f"{100 * part:.0f} % shared": hits for part, _, hits in found}, near=chance, room=OWN,
               than="∫φ(t−z)Φ(t)^(V−1)dt"),
         check("all shared − nothing shared", last - first, near=0.0, room=OWN),
         check("γ with all shared", high, above=FAR), check("γ with nothing shared", low, below=0.1)],
        headline=f"{first} at γ = {low.value:.2g}, {last} at γ = {high.value:.3g}; predicted {chance:.3f}",
    )  # fmt: skip


def _own_guesses(c: Found) -> dict[str, Any]:
    """Five networks of one z and γ from 0 to 20, the share of tokens that guess themselves."""
    from firstguess_papers.library import own_guess_chance

    ids = np.random.default_rng((c.run.seed, 0x0)).permutation(c.vocabulary)[: c.tokens].reshape(8, -1)
    found: list[tuple[float, Number, Number]] = []
    for part in PARTS:
        piece = c.run.keep(_own, label=f"{100 * part:.0f} % shared", network=own_network(part, c.width, c.vocabulary),
                           ids=ids, width=c.width, inits=c.inits, seed=c.run.seed)  # fmt: skip
        found.append((part, ratio(piece["c"], piece["s"] - piece["c"]), average(piece["hits"])))
    chance = own_guess_chance(_SHIFT, c.vocabulary)
    rows = [{"shared": part, "gamma": gamma, "own": hits, "predicted": chance} for part, gamma, hits in found]
    return {"found": found, "chance": chance, "lines": rows}


tokens_own = Item(
    "beyond/tokens-own", "How often a tied language-model head guesses its own input does not depend on γ",
    "theory.md §9, (30)", claims=("B3",), seconds=(4, 60),
    about="Tokens' vectors, a vector that all share and a gated block, whose sizes add up so that the own logit stands "
    "3.5 standard deviations higher; five parts of the shared one; width {width}, vocabulary {vocabulary}, {tokens} "
    "tokens; {inits} networks each.",
    quick=dict(width=128, vocabulary=300, tokens=128, inits=40),
    full=dict(width=256, vocabulary=2000, tokens=256, inits=400),
    quantities=_own_guesses, judge=lambda c: [judge_own(c.found, c.chance)], tables=lambda c: {"own": c.lines},
    charts=lambda c: {"own": lines(
        [row | {"name": "networks", "γ of two tokens": row["gamma"].value} for row in c.lines], "γ of two tokens",
        "own", theory="predicted", y_title="Share of tokens that guess themselves", x_scale="symlog",
        y_domain=(0.0, 1.0), percent=True, dodge=False, width=620,
    )},
    holds={"own": "A tied head guesses its own input as often whatever γ is"},
)  # fmt: skip


def own_network(part: float, width: int, vocabulary: int) -> fg.Network:
    """One z for every `part`: beside the own vector (variance 1) stands what makes z² = width/q, shared or not."""
    rest = width / _SHIFT**2 - 1.0
    bent = fg.activation("silu").moments(0.0, 1.0)
    square = bent.mean**2 + bent.between + bent.spread
    branch = ""
    if part < 1.0:
        size = (1.0 - part) * rest / square
        branch = f"residual[rmsnorm > dense(width={4 * width}) > gated(silu) > dense(weight_var={size!r})] > "
    text = f"embed(1, width={width}, vocabulary={vocabulary}, types={math.sqrt(part * rest)!r}) > {branch}"
    return fg.Network.parse(f"{text}layernorm > unembed(tied)", classes=vocabulary)


def _own(
    network: fg.Network, ids: Any, width: int, inits: int, seed: int, progress: Progress = lambda done, total: None
) -> dict[str, Any]:
    """C and S over pairs of tokens before the head, and the share of tokens that guess themselves."""
    import torch

    from firstguess_papers.library import build

    hits, c, s = np.empty(inits), np.empty(inits), np.empty(inits)
    data = torch.from_numpy(ids)
    for member in range(inits):
        with torch.inference_mode():
            *body, head = build(network, ids, width=width, seed=seed, member=member)
            y = data
            for module in body:
                y = module(y)
            hits[member] = float((head(y).argmax(dim=-1) == data).double().mean())
        nodes = y.numpy().astype(np.float64).reshape(-1, width)
        n = len(nodes)
        s[member] = (nodes**2).mean()
        c[member] = ((nodes.sum(axis=0) ** 2).sum() / width - n * s[member]) / (n * (n - 1))
        progress(member + 1, inits)
    return {"hits": hits, "c": c, "s": s}
