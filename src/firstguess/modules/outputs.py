"""What a model returns, as logits, and how they are counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from firstguess.base.errors import InvalidInput
from firstguess.base.statistics import settle
from firstguess.data import Batch
from firstguess.ensemble.seeds import tie_stream
from firstguess.modules.call_model import Caller, leaves, mask_of

Ending: TypeAlias = Literal["", "softmax", "log-softmax", "sigmoid", "probability"]  # the last: of whatever
Pick: TypeAlias = "str | int | Callable[[Any], torch.Tensor] | None"
_OUTPUT, _PICK = "the model's output", "logits=lambda output: … to pick them"


def find_logits(output: Any, pick: Pick) -> torch.Tensor:
    """The logits in what a model returned: `pick` says which (key, attribute, index or function), else the usual ones.

    Without `pick`: the tensor itself, `.logits` or ["logits"] (Hugging Face), the only float tensor of a mapping, the
    first item of a tuple.
    """
    if pick is not None:
        return _tensor(_picked(output, pick), pick)
    if isinstance(output, torch.Tensor):
        return _tensor(output, None)
    if isinstance(output, Mapping):
        named = cast("Mapping[str, Any]", output)
        if "logits" in named:
            return _tensor(named["logits"], None)
        floats = [name for name, value in named.items() if is_float(value)]
        if len(floats) == 1 and not hasattr(output, "last_hidden_state"):
            return named[floats[0]]
        names = list(named)
        hint = f"logits={names[0]!r}, or a model with a classification head" if names else "a model with a head"
        raise InvalidInput("logits in the model's output", got=f"{names}", where=_OUTPUT, hint=hint)
    if hasattr(output, "logits"):
        return _tensor(output.logits, None)
    if isinstance(output, (tuple, list)) and output:
        return find_logits(cast("Sequence[Any]", output)[0], None)
    raise InvalidInput("a model that returns logits", got=f"a {type(output).__name__}", where=_OUTPUT, hint=_PICK)


def is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _picked(output: Any, pick: str | int | Callable[[Any], torch.Tensor]) -> Any:
    if callable(pick):
        return pick(output)
    try:
        if isinstance(pick, str) and not (isinstance(output, Mapping) and pick in output):
            return getattr(output, pick)
        return output[pick]
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        names = list(output) if isinstance(output, Mapping) else f"a {type(output).__name__}"
        raise InvalidInput(f"an output that logits={pick!r} picks from", got=f"{names}", where=_OUTPUT) from error


def _tensor(value: Any, pick: Pick) -> torch.Tensor:
    if is_float(value):
        return value
    got = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    hint = _PICK if pick is None else "another logits="
    raise InvalidInput("logits as a float tensor", got=got, where=_OUTPUT, hint=hint)


def as_rows(logits: torch.Tensor, batch: Batch, pick: Pick) -> torch.Tensor:
    """Logits as (points, classes), or (points,) for a head with one logit.

    (batch, classes); (batch,) and (batch, 1): one logit, two classes by its sign; (batch, tokens, vocabulary): each
    token that the batch's mask keeps is a point. Labels with a class at every position tell whether the classes are
    the last axis or axis 1, as for CrossEntropyLoss. More axes only with such labels, or where logits= is a function,
    whose last axis is the classes.
    """
    shape = tuple(logits.shape)
    if not shape or shape[0] != batch.size:
        hint = "x[None] for one point, torch.stack(x) for a list of them: the data seem to have no batch axis"
        if len(shape) > 2 and batch.size in shape:
            hint = "logits=lambda output: output.transpose(0, 1) for a model that puts tokens first"
        expected = f"logits of {batch.size} points along their first axis"
        raise InvalidInput(expected, got=f"shape {shape}", where=_OUTPUT, hint=hint)
    axis = None if callable(pick) else _axis_by_labels(shape, batch.labels)
    if logits.ndim > 3 and not callable(pick) and axis is None:
        hint = "for a class at every position: logits=lambda output: output.movedim(1, -1)"
        expected = "logits (points, classes) or (points, tokens, classes)"
        raise InvalidInput(expected, got=f"shape {shape}", where=_OUTPUT, hint=hint)
    if axis == 1:
        logits = logits.movedim(1, -1)
    mask = mask_of(batch)
    if logits.ndim >= 3 and mask is not None and mask.shape == logits.shape[:2]:
        logits = logits[mask.to(logits.device)]
        if not len(logits):
            got, hint = "an attention_mask that hides every token of a batch", "1 for tokens that count, 0 for padding"
            raise InvalidInput("a mask that keeps some tokens", got=got, where="the data", hint=hint)
    if logits.ndim == 1 or logits.shape[-1] == 1:
        return logits.reshape(-1)
    return logits.reshape(-1, logits.shape[-1])


def own_tokens(batch: Batch, rows: torch.Tensor) -> torch.Tensor | None:
    """The input token at every row of logits, of a model that guesses one of the same vocabulary; None of others."""
    found = leaves(batch.inputs)
    ids = found.get("input_ids", next(iter(found.values())) if len(found) == 1 else None)
    if ids is None or ids.ndim != 2 or ids.is_floating_point() or ids.is_complex() or rows.ndim < 2:
        return None
    mask = mask_of(batch)
    kept = ids[mask.to(ids.device)] if mask is not None and mask.shape == ids.shape else ids.reshape(-1)
    if ids.shape[1] < 2 or len(kept) != rows.shape[-2] or int(kept.min()) < 0 or int(kept.max()) >= rows.shape[-1]:
        return None
    return kept.to(rows.device, torch.int64)


class LogitCaller(Caller):
    """Calls models on batches, and reads what they return as logits; `pick` says which part of it that is."""

    def __init__(self, pick: Pick = None) -> None:
        super().__init__()
        self.pick = pick

    def raw(self, model: nn.Module, batch: Batch, *, copies: bool = True) -> torch.Tensor:
        """The logits as they are."""
        return find_logits(self(model, batch, copies=copies), self.pick)

    def rows(self, model: nn.Module, batch: Batch, *, copies: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        """The logits as they are, and as (points, classes) or (points,)."""
        raw = self.raw(model, batch, copies=copies)
        return raw, as_rows(raw, batch, self.pick)


def _axis_by_labels(shape: tuple[int, ...], labels: torch.Tensor | None) -> int | None:
    """Which axis is the classes, 1 or −1, where labels have a class for every position; None if they do not tell."""
    if labels is None or len(shape) < 3 or len(labels) != shape[0]:
        return None
    positions = tuple(labels.shape[1:])
    if labels.ndim == len(shape):  # a label for each of one class, as BCEWithLogitsLoss has them
        positions = positions[1:] if shape[1] == 1 else positions[:-1] if shape[-1] == 1 else ()
    fits = [axis for axis, rest in ((1, shape[2:]), (-1, shape[1:-1])) if rest == positions]
    return fits[0] if len(fits) == 1 else None


def check_classes_known(raw: torch.Tensor, batch: Batch, pick: Pick, head: torch.Tensor | None) -> None:
    """Raise where nothing tells which axis of (points, …, …) is the classes: both readings give plausible numbers.

    `head` is what the last layer returned, if its last axis is its channels.
    """
    shape = tuple(raw.shape)
    if len(shape) < 3 or callable(pick) or _axis_by_labels(shape, batch.labels) is not None:
        return
    other = head is not None and (head.data_ptr() != raw.data_ptr() or head.stride() == raw.stride())
    if head is not None and tuple(head.shape) == shape and other:
        return
    tokens = [leaf for leaf in leaves(batch.inputs).values() if leaf.ndim == 2 and not leaf.is_floating_point()]
    if any(leaf.shape[1] == shape[1] != shape[2] for leaf in tokens):
        return
    output = "output" if pick is None else f"output[{pick!r}]"
    hint = f"labels with a class at every position, logits=lambda output: {output}.movedim(1, -1) for classes on "
    hint += f"axis 1, as CrossEntropyLoss has them, or logits=lambda output: {output} for the last axis"
    expected = "logits (points, classes), or something that tells which axis is the classes"
    raise InvalidInput(expected, got=f"shape {shape}", where=_OUTPUT, hint=hint)


def contrasts(rows: torch.Tensor) -> torch.Tensor:
    """Logits (points, classes) minus their mean over classes, point by point: arg-max does not see it (theory.md (38)).

    Times √(C/(C − 1)), as a sample variance divides by C − 1: then center and spread of independent logits are on
    average those of the logits themselves. One logit (points,) is compared with 0, and stays: (points, 1).
    """
    wide = rows if rows.device.type == "mps" else rows.double()  # which has no float64
    if rows.ndim == 1:
        return wide[:, None]
    return (wide - wide.mean(1, keepdim=True)) * math.sqrt(rows.shape[1] / (rows.shape[1] - 1))


def by_class(rows: torch.Tensor) -> torch.Tensor:
    """A logit for every class: one logit z is the pair (0, z)."""
    return torch.stack((torch.zeros_like(rows), rows), 1) if rows.ndim == 1 else rows


def classes_of(rows: torch.Tensor) -> int:
    return 2 if rows.ndim == 1 else rows.shape[1]


def ending_of(rows: torch.Tensor, before: torch.Tensor | None, told: Callable[[], bool | None], pick: Pick) -> Ending:
    """Whether outputs are the softmax, its logarithm or the sigmoid of what the head returned (`before`); else, where
    it did not return these very outputs, whether they are `told` to be probabilities. Raise where nothing tells."""
    if before is not None and len(rows):
        if rows.ndim == 2 and torch.allclose(rows, torch.softmax(before, 1), atol=1e-6):
            return "softmax"
        logs = rows.ndim == 2 and torch.allclose(rows, torch.log_softmax(before, 1), atol=1e-6)
        if logs and not torch.equal(rows, before):  # logits that sum to 1 as probabilities are their own log-softmax
            return "log-softmax"
        if not logs and torch.allclose(rows, torch.sigmoid(before), atol=1e-6):
            return "sigmoid"
    known = told()
    if known is None and before is not None and torch.equal(rows, before):
        return ""  # as the head returned them; a clamp that changes nothing here is known by its operation
    if known is None and not callable(pick):
        expected = "one output that is a logit, or a probability by its last operations"
        got = "numbers between 0 and 1 on all points, which could be either"
        hint = "logits=torch.logit for probabilities, logits=lambda output: output for logits, decided at 0"
        raise InvalidInput(expected, got=got, where=_OUTPUT, hint=hint)
    return "probability" if known else ""


class Tally:
    """Counts one member's guesses, batch by batch; a shared largest logit is broken at random and counted."""

    def __init__(self, classes: int, seed: int, member: int) -> None:
        self.counts: NDArray[np.int64] = np.zeros(classes, np.int64)
        self.ties = 0
        self.points = 0
        self.undefined = False  # a NaN among the logits
        self.level = True  # all classes share one logit, on every point so far
        self.own: int | None = 0  # points of a language model that guess their own token; None: there are none
        self._seed, self._member = seed, member
        self._stream: np.random.Generator | None = None

    def add(self, rows: torch.Tensor, tokens: torch.Tensor | None = None) -> None:
        self.points += len(rows)
        if rows.ndim == 1:
            positive, negative = rows > 0, rows < 0
            top = torch.stack((negative, positive), 1)
            top |= (rows == 0)[:, None]
        else:
            top = rows == rows.amax(1, keepdim=True)  # all False where there is a NaN
        self.own = None if tokens is None or self.own is None else self.own + int(top.gather(1, tokens[:, None]).sum())
        shared = top.sum(1)
        counts = top.sum(0)
        if int(shared.min()) == 0:
            self.undefined = True
        if int(shared.max()) > 1:
            tied = top[shared > 1]
            counts = counts - tied.sum(0)
            self.ties += len(tied)
            if self._stream is None:
                self._stream = tie_stream(self._seed, self._member)
            broken = tied.cpu().numpy().T
            settle(broken, self._stream)
            self.counts += broken.sum(1)
        self.level = self.level and int(shared.min()) == len(self.counts)
        self.counts += counts.cpu().numpy()

    @property
    def fractions(self) -> NDArray[np.float64]:
        """Share of the points in each class; NaN throughout if a logit was NaN."""
        return np.full(len(self.counts), np.nan) if self.undefined else self.counts / max(self.points, 1)


Range: TypeAlias = "tuple[float, float] | None"  # what a number can be; None: nobody knows

BY_SIGN = "one output is read as two classes by its sign: a regression has no guesses to judge"
EPS = 1e-7  # probabilities this near 0 or 1 are that near, as logits
_FREE = (-math.inf, math.inf)
_ENDS: dict[str, Range] = {
    **dict.fromkeys(("sigmoid", "special_expit", "softmax", "_softmax", "_safe_softmax", "hardsigmoid"), (0.0, 1.0)),
    **dict.fromkeys(("log_softmax", "_log_softmax", "log_sigmoid", "log_sigmoid_forward"), (-math.inf, 0.0)),
    **dict.fromkeys(("tanh", "erf", "sin", "cos"), (-1.0, 1.0)),
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "embedding"), _FREE),
    **dict.fromkeys(("linear", "matmul", "conv1d", "conv2d", "conv3d"), _FREE),  # whole in inference mode
}
_KEEPS = {
    "mean", "stack", "cat", "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "select", "slice", "index",
    "index_select", "gather", "expand", "permute", "transpose", "t", "clone", "_to_copy", "detach", "alias", "amax",
    "amin", "max", "min", "maximum", "minimum", "split", "split_with_sizes", "unbind", "lerp",
}  # fmt: skip


class _Ranges(TorchDispatchMode):
    """Interval arithmetic on every tensor that an operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[torch.Tensor, Range]] = {}  # tensors are kept: an id is then nobody else's

    def of(self, value: Any) -> Range:
        if isinstance(value, torch.Tensor):
            if id(value) in self._known:
                return self._known[id(value)][1]
            if value.ndim or isinstance(value, nn.Parameter):
                return _FREE
            value = float(value)
        return (float(value), float(value))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket.__name__)
        found = self._range(name[:-1] if name.endswith("_") else name, args, kwargs or {})
        for tensor in floats([out]):
            self._known[id(tensor)] = (tensor, found)
        return out

    def _range(self, name: str, args: Any, kwargs: Any) -> Range:
        if name in _ENDS:
            return _ENDS[name]
        tensors = [self.of(x) for x in floats(args)]
        known = [x for x in tensors if x is not None]
        if not known or len(known) < len(tensors):
            return None
        if name in _KEEPS:
            return min(low for low, _ in known), max(high for _, high in known)
        if name == "exp":
            return 0.0, max(math.exp(min(high, 700.0)) for _, high in known)
        if name in ("clamp", "hardtanh", "clamp_min", "relu"):
            given = (0.0,) if name == "relu" else (*args[1:], *kwargs.values())
            ends = [float(x) for x in given if isinstance(x, (int, float))]
            return (ends[0], ends[1]) if len(ends) == 2 else (max(known[0][0], ends[0]), known[0][1]) if ends else None
        if _FREE in known and name in ("add", "sub", "rsub", "mul", "div", "sum", "neg", "leaky_relu", "pow", "where"):
            return _FREE
        if name in ("add", "sub", "rsub", "mul", "div") and len(args) > 1:
            return _arithmetic(name, known[0], self.of(args[1]), float(kwargs.get("alpha", 1)))
        return (-known[0][1], -known[0][0]) if name == "neg" else None


def _arithmetic(name: str, x: tuple[float, float], y: Range, alpha: float) -> Range:
    if y is None:
        return None
    if name in ("add", "sub", "rsub"):
        by = alpha if name != "sub" else -alpha
        one, other = (x, y) if name != "rsub" else ((-x[1], -x[0]), y)
        ends = [a + by * b for a in one for b in other]
    elif name == "div" and y[0] <= 0.0 <= y[1]:
        return _FREE
    else:
        ends = [a * b if name == "mul" else a / b for a in x for b in y]
    return min(ends), max(ends)


def floats(values: Any) -> Iterator[torch.Tensor]:
    """Every float tensor in a list or tuple, and in those within it."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value
        elif isinstance(value, (list, tuple)):
            yield from floats(value)


def is_probability(rows: torch.Tensor, forward: Callable[[], torch.Tensor] | None) -> bool | None:
    """Whether one output of a model is within 0 and 1 by its last operations (`forward` runs them once more).

    None: it is within on all of these points, and operations do not tell.
    """
    if rows.ndim != 1 or not len(rows) or not bool(((rows >= 0) & (rows <= 1)).all()):
        return False
    try:
        with _Ranges() as ranges:
            found = None if forward is None else ranges.of(forward())
    except Exception:  # an operation that a mode of torch's cannot look at
        return None
    if found is None and bool((rows == rows[0]).all()):
        return False  # one value for all points: whichever it is, it says nothing
    return None if found is None else found[0] >= 0.0 and found[1] <= 1.0
