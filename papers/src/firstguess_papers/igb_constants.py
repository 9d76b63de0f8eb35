"""IGB App. G.3: a constant added to an activation brings bias; subtracting a batch's own mean removes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from firstguess_papers.items import Entry, Outcome, item
from firstguess_papers.judging import Number, Truth, above, all_of, below, entry, same, stated
from firstguess_papers.running import Run
from firstguess_papers.sweeps import EVEN, FLIPS, KAIMING, beyond_flips, deep, gammas, line, measured, predicted
from firstguess_papers.tables import columns, gamma

CONSTANTS = (0.0, 0.25, 0.5, 1.0, 2.0)
NO_BIAS = 0.02  # γ that we cannot tell from none
PLAIN, WHOLE, BATCHES = "ReLU", "minus the mean of all data", "minus the mean of a batch of 16"
BLOCKS = {PLAIN: "relu", WHOLE: "relu > batchcenter", BATCHES: "relu > batchcenter(batch=16)"}


def judge_shift(found: Sequence[Number], theory: Sequence[float]) -> Entry:
    """I22, first half: γ of tanh + constant, over `CONSTANTS`."""
    return entry(
        "I22",
        f"tanh plus a constant of 0, ¼, ½, 1, 2: γ is 0 within {NO_BIAS} at 0 and grows at every step; without a limit "
        "within 10 % + 0.02 of the closed form",
        ", ".join(f"{g} at {a:g} (closed form {t:.4g})" for a, g, t in zip(CONSTANTS, found, theory, strict=True)),
        [same(found[0], 0.0, room=NO_BIAS), *(above(b, a) for a, b in pairwise(found))],
        within=[same(g, t, room=0.02 + 0.1 * t) for g, t in zip(found, theory, strict=True)],
        headline=f"tanh + {CONSTANTS[3]:g}: γ = {found[3]}",
        limit="at this width γ departs from the closed form by more",
    )


def judge_centre(found: Mapping[str, Sequence[Number]], left: Mapping[str, Number]) -> Entry:
    """I22, second half: γ by depth of ReLU, and with the batch's own mean taken off; `left` is beyond coin flips."""
    plain, whole, batches = found[PLAIN], found[WHOLE], found[BATCHES]
    return entry(
        "I22",
        f"ReLU minus the mean over all data, after every layer: γ even (within {EVEN} of 0) at every depth, and the "
        f"largest of ten fractions less than {FLIPS} above coin flips, where plain ReLU's γ grows and its "
        "largest fraction "
        "is above that; without a limit the same with means over batches of 16",
        f"after 1 and {len(plain)} layers: plain {plain[0]}, {plain[-1]}; all data {whole[0]}, {whole[-1]}; batches of "
        f"16 {batches[0]}, {batches[-1]}; largest fraction beyond coin flips: "
        + ", ".join(f"{name} {value}" for name, value in left.items()),
        [
            above(plain[0], EVEN),
            above(plain[-1], plain[0]),
            above(left[PLAIN], FLIPS),
            *_even(whole),
            below(left[WHOLE], FLIPS),
        ],
        within=[*_even(batches), below(left[BATCHES], FLIPS)],
        headline=f"largest fraction beyond coin flips: {left[PLAIN]} → {left[WHOLE]}",
        limit="with the means of small batches some bias is left",
    )


def _even(found: Sequence[Number]) -> list[Truth]:
    return [same(g, 0.0, room=EVEN) for g in found]


@item(
    "igb/constants",
    "A constant brings bias, a batch's own mean takes it away",
    claims=("I22",),
    where="IGB App. G.3",
    about="tanh + 0 to 2, one hidden layer of {width}; ReLU without and with its batch's mean taken off (all {n} "
    "points, or batches of 16), {depth} layers of {width} and one more (our sizes); Kaiming, blobs of that dimension; "
    "{inits} networks of ten outputs each.",
    quick=dict(width=200, n=320, inits=200, depth=6),
    full=dict(width=500, n=640, inits=300, depth=6),
    seconds=(8, 60),
)
def constants(run: Run) -> Outcome:
    """I22: γ over the constant and over depth, against the closed form."""
    import firstguess as fg
    from firstguess import figures

    width, n, inits, depth = run.take("width n inits depth")
    x = fg.data.blob(n, width, seed=run.seed)
    texts = [f"{KAIMING} > tanh > shift({a:g}) > {KAIMING}" for a in CONSTANTS]
    options: dict[str, Any] = {"inits": inits, "width": width, "classes": 10}
    shifted = [gamma(run.measure(t, x, probe="output", label=f"tanh + {a:g}", **options))
               for a, t in zip(CONSTANTS, texts, strict=True)]  # fmt: skip
    known = [float(fg.predict(t).gamma[-1]) for t in texts]
    all_of_them = {
        name: run.measure(deep(block, depth + 1), x, probe="weights", label=name, **options)
        for name, block in BLOCKS.items()
    }
    found = {name: gammas(m) for name, m in all_of_them.items()}
    left = {name: beyond_flips(m) for name, m in all_of_them.items()}
    lines = {name: fg.predict(deep(BLOCKS[name], depth)).gamma[1:].tolist() for name in (PLAIN, WHOLE)}
    entries = [judge_shift(shifted, known), judge_centre(found, left)]
    at = list(range(1, depth + 1))
    grows = all_of([same(shifted[0], 0.0, room=NO_BIAS), *(above(b, a) for a, b in pairwise(shifted))])
    constant = figures.lines_chart(
        [measured("tanh + constant", CONSTANTS, shifted), predicted("tanh + constant", CONSTANTS, known)],
        title=stated(
            grows, f"A constant gives an odd activation bias: tanh + 1 has γ = {shifted[3].value:.2g}",
            "tanh plus a constant: γ of the output",
        ),
        subtitle=[f"One hidden layer of {width}, random data. Points: measured ± 2 standard errors; line: "
                  "closed form."],
        x_title="Constant added behind tanh", y_title="Drift ratio γ of the output", width=560,
    )  # fmt: skip
    centred = figures.lines_chart(
        [s for name in BLOCKS for s in (
            *([predicted(name, at, lines[name])] if name in lines else []), measured(name, at, found[name]))],
        title=stated(
            all_of(_even(found[WHOLE])),
            f"Taking a batch's own mean off keeps ReLU even at every depth, where γ would be "
            f"{found[PLAIN][-1].value:.2g} after {depth} layers",
            "ReLU minus its batch's own mean: γ by depth",
        ),
        subtitle=[f"Layers of {width}, {n} random points. Points: measured ± 2 standard errors; lines: closed form."],
        x_title="Hidden layers", y_title="Drift ratio γ", x_domain=(0.7, depth + 0.3), dodge=True, width=640,
    )  # fmt: skip
    rows = [line("tanh + constant", g, at=a, theory=t) for a, g, t in zip(CONSTANTS, shifted, known, strict=True)]
    deeper = [line(name, g, depth=k) for name, values in found.items() for k, g in enumerate(values, start=1)]
    return Outcome(
        entries,
        {"constants": columns(rows), "centred": columns(deeper)},
        {"centred": centred, "constants": constant},
    )
