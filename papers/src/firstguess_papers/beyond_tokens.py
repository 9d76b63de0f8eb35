"""Beyond the papers: transformers. Which norm, where it stands, how deep, what is gated, what sequences share.

The norm paper opens with the question: the Transformer's design against LLaMA's. Here it is answered by covariances of
tokens (theory.md §9) and by networks; and by what a tied language-model head guesses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import dots, lines
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_simulation import mean, ratio
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.token_networks import (
    CLASSES,
    Design,
    Drawn,
    ReadOut,
    different_tokens,
    drawn,
    gamma_ratio,
    predicted,
)

if TYPE_CHECKING:
    from firstguess import Network

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
_PLACES: dict[str, Any] = {POST: "after", PRE: "before"}


def _blocks(run: Run, design: Design, x: Any, width: int, depth: int, inits: int, depths: Sequence[int]) -> Drawn:
    """Networks of the whole depth, read behind the blocks in `depths`."""
    return drawn(
        run,
        design.name,
        design.network(depth, width),
        x,
        width=width,
        inits=inits,
        behind=[design.ends(k) for k in depths],
        normed=design.place == "before",
    )


@item(
    "beyond/tokens-norm",
    "The kind of norm does not matter in transformers: LayerNorm against RMSNorm on the same weights",
    claims=("B2",),
    where="theory.md §9, (21)",
    about="Blocks of attention (4 heads) and GELU or gated SiLU, norms before the branches or after the sums, all "
    "variances 1, width {width}, {depth} blocks; {n} sequences of {length} different tokens; {inits} networks each "
    "with LayerNorm, and with RMSNorm and the same weights.",
    quick=dict(width=64, depth=4, n=12, length=8, inits=10),
    full=dict(width=256, depth=16, n=24, length=16, inits=60),
    seconds=(8, 200),
    version=2,
)
def tokens_norm(run: Run) -> Outcome:
    """B2: γ of a token with LayerNorm over that with RMSNorm, by depth; and what guesses are."""

    width, depth, n, length, inits = run.take("width depth n length inits")
    depths = [k for k in DEPTHS if k <= depth]
    x = different_tokens(n, length, seed=run.seed)
    ratios: dict[str, list[Number]] = {}
    shares: dict[str, list[Number]] = {}
    floors: dict[str, list[Number]] = {}
    rows: list[dict[str, Any]] = []
    for word, place in _PLACES.items():
        for gated in (False, True):
            name = f"{word}, {'gated SiLU' if gated else 'GELU'}"
            found = {
                norm: _blocks(run, Design(f"{name}, {norm}", place, norm, gated), x, width, depth, inits, depths)
                for norm in ("layernorm", "rmsnorm")
            }
            one, other = found["layernorm"], found["rmsnorm"]
            shares[name] = [mean(one.share[:, i] - other.share[:, i]) for i in range(len(depths))]
            if gated:
                floors[name] = [found[norm].gamma(i) for norm in found for i in range(len(depths))]
            else:
                ratios[name] = [gamma_ratio(one, other, i) for i in range(len(depths))]
            theory = [
                predicted(run, f"{name}, {k} blocks", Design(name, place, "layernorm", gated).network(k, width), x,
                          width=width)[0]
                for k in depths
            ]  # fmt: skip
            rows += [
                {"design": name, "norm": label, "blocks": k, "gamma": found[norm].gamma(i), "predicted": theory[i],
                 "largest": found[norm].largest(i).value}
                for norm, label in (("layernorm", "LayerNorm"), ("rmsnorm", "RMSNorm")) for i, k in enumerate(depths)
            ]  # fmt: skip
    judged = judge_norm(depths, ratios, floors, shares)
    chart = lines(
        rows, "blocks", "gamma", by="norm", panel="design", theory="predicted", x_title="Blocks",
        y_title="Drift ratio γ of a token", x_scale="log", width=430, height=220,
    )  # fmt: skip
    return Outcome(
        [judged],
        {"norms": columns(rows)},
        {"norms": chart},
        ["Sizes are ours. Blocks of one network are read one after the other: errors of different depths go together."],
        {"norms": Holds("In transformers LayerNorm and RMSNorm are the same", verdicts=("holds",))},
    )


def judge_norm(
    depths: Sequence[int],
    ratios: Mapping[str, Sequence[Number]],
    floors: Mapping[str, Sequence[Number]],
    shares: Mapping[str, Sequence[Number]],
) -> Entry:
    """`ratios` of γ where it is not 0, γ itself where gates keep it there, differences of largest shares."""
    must: list[Truth] = [same(r, 1.0, room=LIKE) for values in ratios.values() for r in values]
    must += [same(g, 0.0, room=FLOOR) for values in floors.values() for g in values]
    must += [same(d, 0.0, room=SHARE) for values in shares.values() for d in values]
    said = "; ".join(f"{name}: {', '.join(map(str, values))}" for name, values in ratios.items())
    least = max(abs(g.value) for values in floors.values() for g in values)
    apart = max((abs(d.value), d) for values in shares.values() for d in values)[1]
    return entry(
        "B2",
        "the same weights with LayerNorm and with RMSNorm, norms before the branches and behind the sums, "
        f"{', '.join(map(str, depths))} blocks: γ of a token is the same within {100 * LIKE:g} % with GELU and 0 "
        f"within {FLOOR:g} with gates; the average largest share of ten classes is the same within {SHARE:g}",
        f"γ with LayerNorm over γ with RMSNorm: {said}; |γ| with gates at most {least:.3f}; largest shares differ by "
        f"{apart} at most",
        must,
        otherwise="the two norms differ by more",
        headline=f"γ with LayerNorm over γ with RMSNorm, {depths[-1]} blocks: "
        + ", ".join(f"{values[-1]} ({name.partition(',')[0]})" for name, values in ratios.items()),
    )


@item(
    "beyond/tokens-depth",
    "Transformer or LLaMA: bias by depth with post-norm, pre-norm, RMSNorm and gates",
    claims=("B2",),
    where="theory.md §9; the question NORM §1 opens with",
    about="Blocks of attention (4 heads) and MLP, all variances 1, width {width}, {depth} blocks; {n} sequences of "
    "{length} different tokens; {inits} networks each of four designs.",
    quick=dict(width=64, depth=4, n=12, length=8, inits=10),
    full=dict(width=256, depth=16, n=24, length=16, inits=60),
    seconds=(6, 130),
)
def tokens_depth(run: Run) -> Outcome:
    """B2: γ of a token by depth for four designs, predicted and measured."""

    width, depth, n, length, inits = run.take("width depth n length inits")
    depths = [k for k in DEPTHS if k <= depth]
    x = different_tokens(n, length, seed=run.seed)
    found: dict[str, list[Number]] = {}
    theory: dict[str, list[float]] = {}
    rows: list[dict[str, Any]] = []
    for design in DESIGNS:
        members = _blocks(run, design, x, width, depth, inits, depths)
        known = [predicted(run, f"{design.name}, {k} blocks", design.network(k, width), x, width=width) for k in depths]
        found[design.name] = [members.gamma(i) for i in range(len(depths))]
        theory[design.name] = [one[0] for one in known]
        rows += [
            {"design": design.name, "blocks": k, "gamma": members.gamma(i), "gamma_predicted": known[i][0],
             "largest": members.largest(i), "largest_predicted": known[i][1]}
            for i, k in enumerate(depths)
        ]  # fmt: skip
    judged = judge_depth(depths, found, theory)
    options: dict[str, Any] = {"by": "design", "x_title": "Blocks", "x_scale": "log", "width": 820, "height": 340}
    return Outcome(
        judged,
        {"depth": columns(rows)},
        {
            name: lines(rows, "blocks", y, theory=f"{y}_predicted", percent=y == "largest", **options)
            for name, y in (("gamma", "gamma"), ("shares", "largest"))
        },
        [
            "Sizes are ours. Nothing is shared by the sequences but the weights: no positions, no first token. What "
            "real models share is in beyond/tokens-shared."
        ],
        dict.fromkeys(("gamma", "shares"), "Blocks make a Transformer biased, not a LLaMA"),
    )


def judge_depth(
    depths: Sequence[int], found: Mapping[str, Sequence[Number]], theory: Mapping[str, Sequence[float]]
) -> list[Entry]:
    """Post against pre, then gates; `holds` without a limit where γ is predicted, too."""
    post, pre, gated, twin = found[TRANSFORMER], found[GPT2], found[LLAMA], found[RMS]
    apart = [a - b for a, b in zip(post, pre, strict=True)]
    at = {k: i for i, k in enumerate(depths)}
    steps = [k for k in (1, 4, 16) if k in at]
    must: list[Truth] = [above(apart[at[k]], 0.0) for k in depths if k >= 4]
    must += [above(apart[at[k]], apart[at[j]]) for j, k in pairwise(steps)]
    close = [
        same(g / Number(t), 1.0, room=PREDICTED)
        for name in (TRANSFORMER, GPT2, RMS)
        for k, g, t in zip(depths, found[name], theory[name], strict=True)
        if k >= 4
    ]
    off = max(
        (abs(g.value / t - 1.0), name, k)
        for name in (TRANSFORMER, GPT2, RMS)
        for k, g, t in zip(depths, found[name], theory[name], strict=True)
        if k >= 4
    )
    deep = depths[-1]
    both = ", ".join(
        f"{k}: {a} and {b} ({theory[TRANSFORMER][i]:.3f} and {theory[GPT2][i]:.3f})"
        for i, (k, a, b) in enumerate(zip(depths, post, pre, strict=True))
    )
    return [
        entry(
            "B2",
            f"γ of a token is larger with norms behind the sums (post) than before the branches (pre) from 4 blocks "
            f"on, and their difference grows from {' to '.join(map(str, steps))} blocks; without a limit also: from 4 "
            f"blocks on γ is predicted within {100 * PREDICTED:g} %, with RMSNorm too",
            f"post and pre by blocks (predicted): {both}; measured over predicted is off by {100 * off[0]:.1f} % at "
            f"most ({off[1]}, {off[2]} blocks)",
            must,
            within=close,
            limit=f"γ is not predicted within {100 * PREDICTED:g} % everywhere",
            headline=f"γ behind {deep} blocks: post-norm {post[-1]}, pre-norm {pre[-1]}",
        ),
        entry(
            "B2",
            f"gates create no bias: γ of a token with gated SiLU is 0 within {FLOOR:g} at every depth, and behind "
            f"{deep} blocks less than a tenth of that with GELU",
            f"gated: {', '.join(map(str, gated))}; GELU: {', '.join(map(str, twin))}",
            [*(same(g, 0.0, room=FLOOR) for g in gated), below(gated[-1] / twin[-1], 0.1)],
            otherwise=f"γ of gated blocks reaches {max(g.value for g in gated):.3f} at this width",
            headline=f"γ behind {deep} blocks: gated {gated[-1]}, GELU {twin[-1]}",
        ),
    ]


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


def bare(network: Network) -> Network:
    """The same without positions, first token and types: what the blocks alone make."""
    from firstguess import Network
    from firstguess_papers.library import Embed, FirstToken, Positions

    kept = [layer for layer in network.layers if not isinstance(layer, (FirstToken, Positions))]
    return Network(tuple(replace(one, types=0.0) if isinstance(one, Embed) else one for one in kept), network.classes)


@item(
    "beyond/tokens-shared",
    "In real transformers it is what sequences share that makes the bias: positions, CLS, BOS, types",
    claims=("B2",),
    where="theory.md §9, (20)",
    about="GPT-2, BERT, LLaMA and ViT as Hugging Face starts them, {depth} blocks of width {width}, {n} sequences of "
    "{length} different tokens or random images; as they are, and without positions, CLS, BOS and types; {inits} "
    "networks each.",
    quick=dict(width=64, depth=2, n=12, length=8, inits=8),
    full=dict(width=256, depth=12, n=24, length=16, inits=40),
    seconds=(8, 120),
)
def tokens_shared(run: Run) -> Outcome:
    """B2: γ of four styles, with and without shared embeddings, for their own read-out and the mean over tokens."""
    from firstguess import Network

    width, depth, n, length, inits = run.take("width depth n length inits")
    images = np.random.default_rng((run.seed, 0x1336)).standard_normal((n, 3, 32, 32)).astype(np.float32)
    own: dict[str, tuple[Number, Number]] = {}
    averaged: dict[str, tuple[Number, Number]] = {}
    rows: list[dict[str, Any]] = []
    for style, (kind, label) in STYLES.items():
        patch: dict[str, Any] = {"patch": 8} if style == "vit" else {}
        net = fg.transformer(style, depth=depth, width=width, heads=4, **patch)  # type: ignore[arg-type]
        body = Network(net.layers[:-2], CLASSES)
        data = images if style == "vit" else different_tokens(n, length, seed=run.seed, shared=style != "gpt2")
        plain = images if style == "vit" else different_tokens(n, length, seed=run.seed)
        read_outs: tuple[ReadOut, ReadOut] = kind, "mean"
        found: dict[str, list[Number]] = {}
        for how, one, x in ((AS_IS, body, data), (WITHOUT, bare(body), plain)):
            name = f"{label.partition(' (')[0]}, {how}"
            members = drawn(run, name, one, x, width=width, inits=inits, read_outs=read_outs)
            found[how] = [members.gamma(0), members.gamma(1)]
            for index, read in enumerate(read_outs):
                gamma, share = predicted(run, f"{name}, {read}", one, x, width=width, read_out=read)
                rows.append(
                    {"model": label, "read_out": read, "how": how, "gamma": found[how][index],
                     "gamma_predicted": gamma, "largest": members.largest(index), "largest_predicted": share}
                )  # fmt: skip
        own[label], averaged[label] = zip(found[AS_IS], found[WITHOUT], strict=True)
    judged = judge_shared(own, averaged)
    chart = dots(
        [row | {"panel": "mean over tokens" if row["read_out"] == "mean" else "their own read-out"} for row in rows],
        "model", "largest", by="how", panel="panel", theory="largest_predicted", x_domain=(0.0, 1.0), percent=True,
        x_title="Average largest share of ten classes",
    )  # fmt: skip
    notes = ["Sizes are ours; starts are the models'."]
    return Outcome([judged], {"shared": columns(rows)}, {"shared": chart}, notes, {
        "shared": "Without positions, CLS, BOS and types little of real transformers' bias is left",
    })  # fmt: skip


def _left(found: Mapping[str, tuple[Number, Number]]) -> list[str]:
    """Models of which a quarter of γ may be left."""
    return [
        name.partition(",")[0] for name, (as_is, without) in found.items()
        if below(without / as_is, QUARTER) is not True
    ]  # fmt: skip


def judge_shared(own: Mapping[str, tuple[Number, Number]], averaged: Mapping[str, tuple[Number, Number]]) -> Entry:
    """(γ as it is, γ without) by model, for the read-out that the model has, and for the mean over tokens."""
    left = {name: without / as_is for name, (as_is, without) in own.items()}
    also = {name: without / as_is for name, (as_is, without) in averaged.items()}
    said = "; ".join(f"{name.partition(' (')[0]} {a} and {b}" for name, (a, b) in own.items())
    means = "; ".join(f"{name.partition(',')[0]} {a} and {b}" for name, (a, b) in averaged.items())
    return entry(
        "B2",
        "GPT-2, BERT, LLaMA and ViT as they start: once positions, CLS, BOS and types are taken away, γ of their own "
        f"read-out is less than {QUARTER:g} of what it was; without a limit also: so is γ of the mean over tokens",
        f"γ as it is and without: {said}; of the mean: {means}",
        [below(part, QUARTER) for part in left.values()],
        within=[below(part, QUARTER) for part in also.values()],
        limit=f"with the mean over tokens as the read-out more than that is left in {', '.join(_left(averaged))}",
        headline="γ left without shared embeddings: "
        + ", ".join(f"{100 * part.value:.1f} % ({name.partition(',')[0]})" for name, part in left.items()),
    )


@item(
    "beyond/tokens-own",
    "How often a tied language-model head guesses its own input does not depend on γ",
    claims=("B3",),
    where="theory.md §9, (30)",
    about="Tokens' vectors, a vector that all share and a gated block, whose sizes add up so that the own logit stands "
    "3.5 standard deviations higher; five parts of the shared one; width {width}, vocabulary {vocabulary}, {tokens} "
    "tokens; {inits} networks each.",
    quick=dict(width=128, vocabulary=300, tokens=128, inits=40),
    full=dict(width=256, vocabulary=2000, tokens=256, inits=400),
    seconds=(5, 60),
)
def tokens_own(run: Run) -> Outcome:
    """B3: five networks of one z and γ from 0 to 20, the share of tokens that guess themselves."""
    from firstguess_papers.library import own_guess_chance

    width, vocabulary, tokens, inits = run.take("width vocabulary tokens inits")
    ids = np.random.default_rng((run.seed, 0x0)).permutation(vocabulary)[:tokens].reshape(8, -1)
    chance = own_guess_chance(_SHIFT, vocabulary)
    found: list[tuple[float, Number, Number]] = []
    rows: list[dict[str, Any]] = []
    for part in PARTS:
        hits, gamma = _own(run, part, ids, width, vocabulary, inits)
        found.append((part, gamma, hits))
        rows.append({"shared": part, "gamma": gamma, "own": hits, "predicted": chance})
    judged = judge_own(found, chance)
    chart = lines(
        [row | {"name": "networks", "γ of two tokens": row["gamma"].value} for row in rows], "γ of two tokens", "own",
        theory="predicted", y_title="Share of tokens that guess themselves", x_scale="symlog", y_domain=(0.0, 1.0),
        percent=True, dodge=False, width=620,
    )  # fmt: skip
    return Outcome([judged], {"own": columns(rows)}, {"own": chart}, ["Networks and sizes are ours."], {
        "own": "A tied head guesses its own input as often whatever γ is",
    })  # fmt: skip


def judge_own(found: Sequence[tuple[float, Number, Number]], chance: float) -> Entry:
    """(part that is shared, γ, share of tokens that guess themselves) of networks that have the same z."""
    first, last = found[0], found[-1]
    must: list[Truth] = [same(hits, chance, room=OWN) for _, _, hits in found]
    must += [same(last[2] - first[2], 0.0, room=OWN), above(last[1], FAR), below(first[1], 0.1)]
    said = "; ".join(f"γ = {gamma}: {hits}" for _, gamma, hits in found)
    return entry(
        "B3",
        f"networks whose own logit stands z = {_SHIFT:g} standard deviations higher, γ from below 0.1 to above "
        f"{FAR:g}: the share of tokens that guess themselves is ∫φ(t−z)Φ(t)^(V−1)dt within {OWN:g} in all, and the "
        f"same within {OWN:g} at both ends",
        f"{said}; predicted {chance:.4f}",
        must,
        headline=f"{first[2]} at γ = {first[1].value:.2g}, {last[2]} at γ = {last[1].value:.3g}; predicted "
        f"{chance:.3f}",
    )


def own_network(part: float, width: int, vocabulary: int) -> Network:
    """One z for every `part`: beside the own vector (variance 1) stands what makes z² = width/q, shared or not."""
    from firstguess import Network
    from firstguess_papers.library import registry

    rest = width / _SHIFT**2 - 1.0
    bent = registry.activation("silu").moments(0.0, 1.0)
    square = bent.mean**2 + bent.between + bent.spread
    branch = ""
    if part < 1.0:
        size = (1.0 - part) * rest / square
        branch = f"residual[rmsnorm > dense(width={4 * width}) > gated(silu) > dense(weight_var={size!r})] > "
    text = f"embed(1, width={width}, vocabulary={vocabulary}, types={math.sqrt(part * rest)!r}) > {branch}"
    return Network.parse(f"{text}layernorm > unembed(tied)", classes=vocabulary)


def _own(run: Run, part: float, ids: Any, width: int, vocabulary: int, inits: int) -> tuple[Number, Number]:
    """The share of tokens that guess themselves, and γ over pairs of tokens in front of the head."""
    net = own_network(part, width, vocabulary)
    name = f"{100 * part:.0f} % shared"

    def compute() -> dict[str, Any]:
        import torch

        from firstguess_papers.library import build

        hits, c, s = np.empty(inits), np.empty(inits), np.empty(inits)
        data = torch.from_numpy(ids)
        for member in range(inits):
            with torch.inference_mode():
                y = data
                for module in (modules := list(build(net, ids, width=width, seed=run.seed, member=member)))[:-1]:
                    y = module(y)
                nodes = y.numpy().astype(np.float64).reshape(-1, width)
                guesses = modules[-1](y).argmax(dim=-1)
            hits[member] = float((guesses == data).double().mean())
            n = len(nodes)
            s[member] = (nodes**2).mean()
            c[member] = ((nodes.sum(axis=0) ** 2).sum() / width - n * s[member]) / (n * (n - 1))
            run.progress(name, member + 1, inits)
        return {"hits": hits, "c": c, "s": s}

    key = {"own": str(net), "tokens": ids.size, "width": width, "inits": inits}
    piece = {k: np.asarray(v) for k, v in run.piece(key, compute, label=name).items()}
    return mean(piece["hits"]), ratio(piece["c"], piece["s"] - piece["c"])
