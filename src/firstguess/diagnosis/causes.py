"""Which steps cause the bias: ranked by what the guesses are without each; the data among them.

Correlations saturate: c from 0 to 0.77 in the data says nothing of what centred data would change after five ReLUs.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firstguess.base.record import Record
from firstguess.base.text import duration, elided
from firstguess.base.text import share_change as percents
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.ablation import Effects
from firstguess.modules.flow import DATA, Flow, FlowStep
from firstguess.modules.hooks.session import OUTPUT

_SHOWN, _HOLDING = 5, 3  # of the page: the report has more

# What operations of code between modules are called; what is not here says nothing to a reader.
_OPERATIONS = {
    "relu": "ReLU", "gelu": "GELU", "silu": "SiLU", "tanh": "tanh", "sigmoid": "sigmoid", "softmax": "softmax",
    "softplus": "softplus", "elu": "ELU", "leakyrelu": "leaky ReLU", "hardtanh": "clipping", "hardswish": "Hardswish",
    "mish": "Mish", "erf": "GELU", "logsoftmax": "log-softmax", "safesoftmax": "softmax",
    "add": "sum", "sub": "difference", "rsub": "difference", "mul": "product", "div": "division", "pow": "power",
    "exp": "exponential", "log": "logarithm", "sqrt": "root", "rsqrt": "root", "abs": "absolute value",
    "mm": "matrix product", "bmm": "matrix product", "addmm": "matrix product", "groupedmm": "experts",
    "convolution": "convolution", "cat": "concatenation", "stack": "concatenation", "constantpadnd": "padding",
    "mean": "mean over positions", "sum": "sum over positions", "max": "maximum", "maximum": "maximum",
    "amax": "maximum", "clamp": "clipping", "clampmin": "clipping", "linalgvectornorm": "norm",
    "select": "taking one position", "select first": "taking the CLS token", "select last": "taking the last token",
    "index": "picking rows", "slice": "taking a part", "split": "taking a part", "splitwithsizes": "taking a part",
    "nativelayernorm": "LayerNorm", "nativebatchnorm": "BatchNorm", "cumsum": "running sum", "embedding": "lookup",
    "avgpool1d": "average pool", "avgpool2d": "average pool", "adaptiveavgpool2d": "average pool",
    "maxpool2dwithindices": "max pool", "upsamplebilinear2d": "upsampling", "upsamplenearest2d": "upsampling",
}  # fmt: skip
_GATES = {"GELU", "SiLU", "sigmoid", "ReLU", "tanh"}
_PARTS = {"taking a part", "picking rows", "taking one position"}  # said where nothing else is
_WITHIN = {"attention", "taking the CLS token", "taking the last token"}  # what a whole module is for


@dataclass(frozen=True)
class Cause(Record):
    """A step that changes what inputs have in common, or all steps of a kind, and what the guesses are without it.

    `before` and `after` are c of two inputs before and after it, `added` their difference (of several steps, the sum).
    `largest_before` → `largest_after`: the average share of the largest class as it is, and where the step hands on as
    much correlation as it gets (biases: are 0), with the standard error of the change; γ likewise. The change is seen
    on `inits` initializations and `points` points; the share before it is that of all initializations, as elsewhere on
    the page. NaN: not tried, a note says why.

    `kind` is the module's class, "code: add > relu" for plain code between modules, "data" for the inputs' own
    correlation, "constant" for lookups that give the same for every point (positions, token types). `bias`: what raises
    c in these layers is their bias parameters, since random weights hand on what they get.
    """

    _also = ("words",)

    name: str
    kind: str
    before: float
    after: float
    added: float
    se: float
    steps: tuple[str, ...] = ()
    largest_before: float = math.nan
    largest_after: float = math.nan
    error: float = math.nan
    gamma_before: float = math.nan
    gamma_after: float = math.nan
    inits: int = 0
    points: int = 0
    bias: bool = False

    @property
    def tried(self) -> bool:
        """Whether its effect is known."""
        return not math.isnan(self.largest_after)

    @property
    def matters(self) -> bool:
        """Whether the guesses change beyond rounding and error without it; True where it was not tried."""
        change = abs(self.largest_before - self.largest_after)
        return not change <= max(0.005, 2 * self.error)

    @property
    def brings(self) -> bool:
        """Whether it raises c, and guesses were seen to be more even without it."""
        return self.added >= 0 and self.tried and self.matters and self.largest_after < self.largest_before

    @property
    def holds_down(self) -> bool:
        """Whether it lowers c, and guesses were seen to be less even without it."""
        less_even = self.largest_after > self.largest_before and not self.gamma_after < self.gamma_before
        return self.added < 0 and self.tried and self.matters and less_even

    @property
    def words(self) -> str:
        """The step in words."""
        return self.short()

    def short(self, width: int = 10_000) -> str:
        """The step in words, with the middle of a long path left out.

        >>> Cause("code before bert.pooler.dense", "code: select first", 0.8, 1.0, 0.2, 0.0).short()
        'taking the CLS token (`bert.pooler`)'
        >>> Cause("fc1 … fc3", "Linear", 0.0, 0.3, 0.3, 0.0, ("fc1", "fc2", "fc3"), bias=True).short()
        'bias parameters of the 3 Linear layers'
        """
        if self.kind == "data":
            return "the data themselves"
        if self.kind == "constant":
            names = [*dict.fromkeys(map(_lookup, self.steps))]
            same = all(name.endswith(" embeddings") for name in names[1:])
            text = " and ".join([*(name.removesuffix(" embeddings" * same) for name in names[:-1]), names[-1]])
            return elided(text if width < _ROOM else f"{text}, the same for all inputs", width)
        what, code = doing(self.kind), self.kind.startswith(f"{_CODE}: ")
        if len(self.steps) > 1:
            places = code or what == "attention"
            text = f"{what} in {len(self.steps)} places" if places else f"the {len(self.steps)} {what} layers"
            return elided(_of_biases(text, width) if self.bias else text, width)
        what = elided(what, max(width // 2, 16))
        start = f"bias parameters of the {what} layer (" if self.bias else f"{what} ("
        place, _, call = self.name.removeprefix(f"{_CODE} before ").partition("#")
        end = f", call {call})" if call else ")"
        if code:
            within = _attention(place) if what == "attention" else place.rpartition(".")[0]
            if place == OUTPUT:
                return f"{start}before the output)"
            start, place = (start, within) if what in _WITHIN and within else (f"{start}before ", place)
        return f"{start}`{elided(place, max(width - len(start) - len(end) - 2, 8))}`{end}"

    @property
    def change(self) -> str:
        """The change, with it → without it, in percent; nothing where it was not tried."""
        return percents(self.largest_before, self.largest_after) if self.tried else ""


_CODE = "code"
_ROOM = 60  # characters, with which a cause is explained


def _of_biases(text: str, width: int) -> str:
    """What raises c in these layers; in short where there is little room.

    >>> _of_biases("the 6 Linear layers", 100), _of_biases("the 6 Linear layers", 34)
    ('bias parameters of the 6 Linear layers', 'biases of the 6 Linear layers')
    """
    long = f"bias parameters of {text}"
    return long if len(long) <= width else f"biases of {text}"


def doing(kind: str) -> str:
    """What a step does, in words: the class of a module, or what operations of code come to.

    >>> doing("code: safesoftmax > mul > bmm"), doing("code: add > relu"), doing("code: silu > mul")
    ('attention', 'sum and ReLU', 'SiLU gate')
    >>> doing("GELUActivation"), doing("MultiheadAttention"), doing("code: yosocumulation")
    ('GELU', 'attention', 'plain code')
    """
    if not kind.startswith(f"{_CODE}: "):
        name = kind.removesuffix("Activation").removeprefix("New").removeprefix("Fast").removeprefix("Quick")
        return "attention" if name.endswith("Attention") else name or kind
    operations = kind.removeprefix(f"{_CODE}: ").removesuffix(", …").split(" > ")
    products = {"bmm", "mm", "matmul", "div"} & set(operations)
    if any("attention" in one for one in operations) or (products and any("softmax" in one for one in operations)):
        return "attention"
    words = list(dict.fromkeys(_OPERATIONS[one] for one in operations if one in _OPERATIONS))
    if "GELU" in words and "erf" in operations:
        words = [word for word in words if word not in ("division", "sum", "product")]
    gate = next((word for word in words if word in _GATES), "")
    if gate and "product" in words:
        words = [f"{gate} gate", *(word for word in words if word not in (gate, "product"))]
    telling = [word for word in words if word not in _PARTS] or words
    return " and ".join(telling[-2:]) or "plain code"


def _attention(path: str) -> str:
    """The path up to the module that attends.

    >>> _attention("encoder.layer.0.attention.output.dense"), _attention("blocks.0.proj")
    ('encoder.layer.0.attention', 'blocks.0')
    """
    parts = path.split(".")
    named = [i for i, part in enumerate(parts) if "att" in part.lower()]
    return ".".join(parts[: named[0] + 1] if named else parts[:-1])


def _lookup(step: str) -> str:
    """A lookup that is the same for every point, by its name.

    >>> _lookup("bert.embeddings.position_embeddings"), _lookup("transformer.wpe"), _lookup("embeddings.types")
    ('position embeddings', 'position embeddings', 'token type embeddings')
    """
    name = step.rpartition(".")[2].lower()
    if "pos" in name or name == "wpe":
        return "position embeddings"
    return "token type embeddings" if "type" in name or "segment" in name else name.replace("_", " ")


def lines_of(found: Sequence[Cause], causes: Sequence[Cause], columns: int) -> list[str]:
    """The lines of the page: what was found to bring the bias, then what holds it down; with it → without it."""
    read = next((f" (measured: {c.inits} initializations, {c.points} points)" for c in causes if c.tried), "")
    holding = [c for c in reversed(causes) if c.holds_down]
    what = "the largest share, without it" if read else "correlation c of two inputs, before → after"
    lines = textwrap.wrap(f"Where it comes from: {what}{read}", columns, subsequent_indent="  ")
    lines += [_line(f"{rank}. ", c, columns) for rank, c in enumerate(found[:_SHOWN], start=1)]
    tried = sum(c.tried and c.added >= 0 for c in causes)
    rest = f"… {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    if tried and not found:
        each = f"any one of {tried} steps that raise c" if tried > 1 else "the one step that raises c"
        rest = f"guesses are not clearly more even without {each}"
    lines += textwrap.wrap(rest, columns, initial_indent="  ", subsequent_indent="  ")
    lines += ["  what lowers it"] if holding else []
    return lines + [_line("", c, columns) for c in holding[:_HOLDING]]


def _line(rank: str, c: Cause, columns: int) -> str:
    error = 100 * c.error
    share = (
        f"{c.change} ± {error:{'.0f' if error >= 1 else '.1g'}}" if c.tried else f"c {c.before:z.2f} → {c.after:z.2f}"
    )
    row = f"  {rank}{share:<18}  "
    return row + c.short(columns - len(row))


_LEAST = 0.005  # of correlation: less is not a cause
_SURE = 3.0  # standard errors that an addition must stand out by
_RAISING, _LOWERING = 12, 4  # single steps that are tried

Removals = Mapping[Hashable, Sequence[str]]


@dataclass(frozen=True)
class Found:
    """Causes, the most important first, and notes on those whose effect is not known.

    `needed` is what `seconds=` would have to be to know all of them; NaN where more time would not help.
    """

    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()
    needed: float = math.nan


def causes_of(flow: Flow) -> tuple[Cause, ...]:
    """Steps that raise c by more than their error, largest first, without their effect.

    Linear layers only carry c on, up to noise of few nodes: what they add is not counted unless it is clear. Lookups
    that are the same for every point (positions, token types) are one cause together, and a sum with them is none.
    """
    return tuple(sorted((c for c in candidates(flow) if c.added > 0 and len(c.steps) < 2), key=lambda c: -c.added))


def ranked(flow: Flow, try_all: Callable[[Removals], Effects], part: float = 1.0) -> Found:
    """Steps that change c, and all steps of a kind, by how much the largest fraction falls without them.

    `part`: how many times as long everything takes as the trying may.
    """
    wanted = _wanted(candidates(flow))
    tried = try_all({cause: cause.steps for cause in wanted})
    causes = [replace(one, **vars(tried.found[one])) if one in tried.found else one for one in wanted]
    needed = part * tried.needed if tried.late else math.nan
    return Found(tuple(sorted(causes, key=_rank)), tuple(_notes(tried, needed)), needed)


def _rank(cause: Cause) -> tuple[bool, float, float, float]:
    """The rank, by the share in whole percents: below that γ decides, which continues where shares are at their end."""
    if not cause.tried:
        return True, 0.0, 0.0, -cause.added
    before, after = (max(gamma, 1e-3) for gamma in (cause.gamma_before, cause.gamma_after))
    ratio = math.log(after / before) if math.isfinite(after) and math.isfinite(before) else 0.0
    return False, -round(cause.largest_before - cause.largest_after, 2), ratio, -cause.added


def _notes(tried: Effects, needed: float) -> list[str]:
    notes: list[str] = []
    late = f"time was up ({in_time(needed)})" if math.isfinite(needed) else "time was up"
    for causes, why in ((tried.late, late), (tried.impossible, "its part cannot be separated from the rest")):
        names = [cause.words for cause in causes]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        notes += [f"not tried without {shown}: {why}"] if names else []
    return notes


def in_time(needed: float) -> str:
    """What to pass, for something that takes this long.

    >>> in_time(473.0), in_time(31.0)
    ('needs about 8 minutes: seconds=480', 'needs about 40 seconds: seconds=40')
    """
    seconds = 60 * math.ceil(needed / 60) if needed > 120 else 10 * math.ceil(needed / 10)
    return f"needs about {duration(seconds)}: seconds={seconds}"


def candidates(flow: Flow, least: float = _LEAST) -> list[Cause]:
    """The data, steps that are the same for every point, single steps, all steps of a kind.

    Single steps count from `least` on and beyond three standard errors; with a `least` of 0, all of them.
    """
    found: list[Cause] = []
    if math.isfinite(flow.data) and flow.data > least:
        found.append(Cause(DATA, "data", 0.0, flow.data, flow.data, 0.0, (DATA,)))
    constant = [step for step in flow.steps if step.constant and set(step.sources) <= {DATA}]
    if constant:
        names = tuple(step.name for step in constant)
        found.append(Cause(", ".join(names), "constant", 0.0, 1.0, 0.0, 0.0, names))
    fixed = {step.name for step in flow.steps if step.constant}
    # A plain sum with what is the same for every point raises c by that, which is counted already.
    steps = [s for s in flow.steps if not s.constant and not (s.kind == "code: add" and fixed & set(s.sources))]
    # Beyond three standard errors, where these are known; with a least of 0, all.
    singles = [s for s in steps if not least or abs(s.added) > max(least, _SURE * np.nan_to_num(s.se))]
    found += [_cause(step.kind, [step]) for step in singles]
    kinds: dict[str, list[FlowStep]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    # All of them, also those that add too little to be sure of: together they may matter.
    found += [_cause(k, all_of) for k, all_of in kinds.items() if len(all_of) > 1 and any(s in singles for s in all_of)]
    return found


def _cause(kind: str, steps: Sequence[FlowStep]) -> Cause:
    name = steps[0].name if len(steps) == 1 else f"{steps[0].name} … {steps[-1].name}"
    error = math.sqrt(sum(step.se**2 for step in steps))
    added = sum(step.added for step in steps)
    bias, names = any(step.bias for step in steps), tuple(step.name for step in steps)
    return Cause(name, kind, steps[0].before, steps[-1].after, added, error, names, bias=bias and added > 0)


def _wanted(causes: Sequence[Cause]) -> list[Cause]:
    """Those that are tried, the most telling first: the data, then steps by what they change."""
    inputs = sorted((c for c in causes if c.kind in ("data", "constant")), key=lambda c: c.kind != "data")
    steps = sorted((c for c in causes if c not in inputs), key=lambda c: -abs(c.added))
    raising = [c for c in steps if c.added > 0][:_RAISING]
    lowering = [c for c in steps if c.added < 0][:_LOWERING]
    return [*inputs[:1], *raising, *inputs[1:], *lowering]


def without_ending(flow: Flow, m: Measurement) -> Flow:
    """The steps up to the logits: a softmax or sigmoid after them raises c, and changes no guess."""
    head = next((finding.layer for finding in m.findings if finding.kind == FindingKind.PROBABILITIES), "")
    place = next((i for i, step in enumerate(flow.steps) if step.name == head), None)
    return flow if place is None else replace(flow, steps=flow.steps[: place + 1])
