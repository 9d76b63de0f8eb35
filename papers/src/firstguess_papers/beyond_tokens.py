"""Beyond the papers: transformers. Which norm, where it stands, how deep, what is gated, what sequences share.

The norm paper opens with the question: the Transformer's design against LLaMA's. Here it is answered by covariances of
tokens (theory.md §9) and by networks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from firstguess_papers.charts import lines
from firstguess_papers.items import Entry, Holds, Outcome, item
from firstguess_papers.judging import Number, Truth, above, below, entry, same
from firstguess_papers.mf_simulation import mean
from firstguess_papers.running import Run
from firstguess_papers.tables import columns
from firstguess_papers.token_networks import Design, Drawn, different_tokens, drawn, gamma_ratio, predicted

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
