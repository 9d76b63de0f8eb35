"""Beyond the papers: what sequences share in real transformers, and what a tied language-model head guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import firstguess as fg
from firstguess_papers.charts import dots, lines
from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_simulation import mean, ratio
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.token_networks import CLASSES, ReadOut, different_tokens, drawn, predicted

if TYPE_CHECKING:
    from firstguess import Network

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
