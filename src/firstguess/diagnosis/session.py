"""What is diagnosed: a network and its data, read once and used by every part."""

from __future__ import annotations

import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError
from firstguess.base.text import counted, four_digits, magnitude, spaced
from firstguess.data import Batch, Data, as_data, collect, load
from firstguess.data.streams import POINTS, cut_note, extent
from firstguess.diagnosis.answer import NAMELESS
from firstguess.diagnosis.causes import Removals, doing
from firstguess.diagnosis.expectation import OwnSize, sequences_of
from firstguess.diagnosis.faults.looking import look_into
from firstguess.diagnosis.rehearsal import by_class_means
from firstguess.diagnosis.remedies import Variant
from firstguess.diagnosis.remedies.base import Model, inputs_of
from firstguess.ensemble.gradient_statistics import Gradients
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import PARTLY, Finding, FindingKind
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.ablation import Effects, effects_of
from firstguess.modules.call_model import Caller, fed, fewer, first_forward
from firstguess.modules.flow import Flow, trace_flow
from firstguess.modules.guard import every_module_called, is_lazy
from firstguess.modules.hooks.examination import Examination
from firstguess.modules.measure import measure, recorded
from firstguess.modules.measure_gradients import measure_gradients
from firstguess.modules.members.sources import Source, named, source_of
from firstguess.modules.outputs import EPS, as_rows, find_logits
from firstguess.modules.read.read import read
from firstguess.modules.read.result import Structure, Unread
from firstguess.network.builders import as_network
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

Progress = Callable[[int, int], object]
_T = TypeVar("_T")
GRADIENT_POINTS = 256
_SOURCE = "init mode device dtype trained redraw scale logits"  # options that say where members come from
_TRAINED = "init device dtype trained redraw scale logits"  # those of copies in training
_FEWEST = 16  # points that a short time does not go below
_LARGE = 1e8  # bytes of a model from which on there is one copy of it at a time
_HOPELESS = 4.0  # times as long as a member may take
_MEMBERS = 8  # initializations that should fit into the time: else there are fewer points


class Subject:
    """A network and its data, read once and used by every stage."""

    def __init__(
        self,
        what: object,
        data: object,
        points: int,
        classes: int | None,
        width: int,
        batch_size: int | None,
        seed: int,
        options: dict[str, Any],
    ) -> None:
        self._options, self.width, self.seed = options, width, seed
        self._batch_size, self._classes, self._at_half = batch_size, classes, False
        self.name = self.data_name = ""
        self.network: Network | None = None
        self.model: Model | None = None
        self.own_size = OwnSize(width)
        what = named(what)
        text = isinstance(what, str)
        what = as_network(what, where="diagnose") if isinstance(what, str) else what  # told before data are read
        if not (isinstance(what, Network) or callable(what)):
            swapped = ": the model comes first" if callable(data) or isinstance(data, str) else ""
            raise checks.no_model(what, "diagnose", f"fg.diagnose(model, data){swapped}")
        data = load(data) if isinstance(data, str) else data
        if isinstance(what, Network):
            self._data = as_data(data, most=points)
            if text:
                wanted = classes if classes is not None else max(2, self._data.classes or 2)
                what = replace(what, classes=wanted)
            self.network = what
            self.batches = collect(self._data, batch_size=batch_size or points)
            self.name = four_digits(what)
        else:
            self.model = cast(Model, what)
            self.batches = fed(what, collect(data, points, batch_size=batch_size), options.pop("forward", None))
            self.name = ""  # as the caller has it
        self._points = sum(batch.size for batch in self.batches)
        self.whole = self._points < points  # else there may be more of them
        self.note = cut_note(data, None if points == POINTS else points, self._points)
        self._origin, self._given = recorded(data), data

    @property
    def total(self) -> int:
        """Points of the data, all of them where that is known: an epoch."""
        size, _ = extent(self._given)
        return self._points if size is None else size

    @property
    def maker(self) -> Model:
        """What copies that are trained come from."""
        return self._factory() if self.model is None else self.model

    @property
    def drawn_by(self) -> dict[str, Any]:
        """The options that say how."""
        return {} if self.model is None else self._known(*_TRAINED.split())

    def easy(self) -> float:
        """Balanced accuracy of the nearest class mean; NaN where inputs are no numbers, or points have no labels."""
        x, labels = inputs_of(self.batches), [b.labels for b in self.batches if b.labels is not None]
        whole = torch.cat([y.reshape(-1) for y in labels]) if labels else torch.empty(0)
        return math.nan if x is None or len(whole) != len(x) else by_class_means(x.cpu(), whole.cpu())

    def fit(self, look: Examination | None, seconds: float) -> str:
        """Fewer points where a few initializations would not fit into the time; what to say then."""
        wanted = seconds / _MEMBERS
        if look is None or self.model is None or not look.a_point * self._points > wanted:
            return ""  # a look is slower than a forward: where even that is fast enough, nothing has to be timed
        # One that takes many times as long on the fewest points leaves no choice: a pass to time it would be one more.
        most = _FEWEST if look.a_point * _FEWEST > _HOPELESS * wanted else self._points_within(wanted)
        if most >= self._points:
            return ""
        total, self.batches = self._points, list(fewer(self.batches, most))
        self._points = sum(batch.size for batch in self.batches)
        return f"{spaced(self._points)} of {spaced(total)} points"

    def _points_within(self, seconds: float) -> int:
        """How many points per member, with its draw, can take in this time; from ever larger parts of the data."""
        call = Caller()
        with self._source.isolated():
            began = time.perf_counter()
            with self._source.member(self.seed) as model, torch.no_grad(), every_module_called():
                drawn = time.perf_counter() - began
                times: list[tuple[int, float]] = []
                size = 4
                while True:
                    few = fewer(self.batches, size)
                    began = time.perf_counter()
                    for batch in few:
                        call(model, batch, copies=True)
                    times.append((sum(batch.size for batch in few), time.perf_counter() - began))
                    if times[-1][1] > seconds / 4 or times[-1][0] >= self._points or size > self._points:
                        break
                    size *= 2
        (count, taken), (less, least) = times[-1], times[-2] if len(times) > 1 else (0, 0.0)
        a_point = max(taken - least, 0.1 * taken) / max(count - less, 1)  # a call has costs of its own
        left = seconds - drawn - (taken - a_point * count)
        return max(_FEWEST, int(left / a_point))

    def measure(self, **options: Any) -> Measurement:
        """`inits`, `seconds` and `progress` are those of `fg.measure`."""
        options = {"seed": self.seed, **self._options, **options}
        if self.model is None:
            own: dict[str, Any] = {"points": self._points, "width": self.width, "batch_size": self._batch_size}
            return measure(self.network, self._data, **own, **options)
        with self._source.isolated():
            m = measure(self._source, self.batches, classes=self._classes, **options)
        origin = m.provenance["data"] | self._origin | {"name": self.data_name}
        return replace(m, provenance=m.provenance | {"data": origin})

    def decide_at_half(self) -> None:
        """One output is a probability: what follows reads its logit, whose sign decides."""
        pick = self._options.get("logits")
        self._options = self._options | {"logits": lambda output: torch.logit(find_logits(output, pick), EPS)}
        self._at_half = True

    def loss_of_logits(self, loss: Any) -> Any:
        """A loss of the user's gets what the model returns, also where its logit is read."""
        if not self._at_half or isinstance(loss, str):
            return loss
        return lambda logits, labels: loss(torch.sigmoid(logits), labels)

    def release(self) -> None:
        """A large model's copy, before others are made: it is made again if it is needed."""
        if self._large:
            self.__dict__.pop("_source", None)

    def variant(self, variant: Variant, seconds: float) -> Measurement:
        batches = variant.batches if variant.batches is not None else self.batches
        if variant.model is None:
            known: dict[str, Any] = {"inits": 40, "seed": self.seed, "seconds": seconds, "width": self.width}
            known["batch_size"] = self._batch_size
            return measure(variant.network, self.convert(batches), points=self._points, **known)
        options: dict[str, Any] = self._options | {"probe": "output"}
        same = self._source if variant.model is self.model else None
        if same is None:
            self.release()
        members = variant.source or same or self.study(variant.model)
        with members.isolated(), first_forward():  # it may run on its own inputs only
            return measure(members, list(batches), inits=40, seed=self.seed, seconds=seconds, **options)

    @cached_property
    def _large(self) -> bool:
        """Whether copies of the model count."""
        known = self.model.parameters() if isinstance(self.model, nn.Module) and not is_lazy(self.model) else ()
        return sum(p.numel() * p.element_size() for p in known) > _LARGE

    @cached_property
    def _source(self) -> Source:
        """Where modules come from, for every stage: the model, or a factory of the description's."""
        return source_of(self._factory(), self.batches) if self.model is None else self.study(self.model)

    def look(self, seconds: float) -> Examination | None:
        """What one pass of the model, as it is, shows."""
        what = self._factory() if self.model is None else self.model
        return look_into(what, self.batches, seconds=seconds, seed=self.seed, **self._known("logits", "init"))

    def study(self, model: Model, **others: Any) -> Source:
        """Members of a model, as the options have it."""
        return source_of(model, self.batches, **(self._known(*_SOURCE.split()) | others))

    def _factory(self) -> Callable[[], nn.Module]:
        network, shape, width = cast(Network, self.network), self._data.x, self.width
        return lambda: build(network, shape, width=width, seed=int(torch.randint(2**31, (1,))))

    def _known(self, *names: str) -> dict[str, Any]:
        return {name: self._options[name] for name in names if name in self._options}

    def flow(self, seconds: float) -> Flow:
        known = self._known("logits")
        with self._source.isolated():
            return trace_flow(self._source, self.batches, inits=20, seed=self.seed, seconds=seconds, **known)

    def fresh_part(self, flow: Flow) -> Flow:
        """The steps from the first one whose weights are drawn: what comes before it is given."""
        held, whole = self._source.held, self._source.shared_copy
        drawn = () if whole is None else (name for name, _ in whole.named_parameters() if name not in held)
        fresh = {name.rpartition(".")[0] for name in drawn}
        first = next((i for i, step in enumerate(flow.steps) if step.name.partition("#")[0] in fresh), 0)
        return replace(flow, data=math.nan if first else flow.data, steps=flow.steps[first:])

    def effects(self, flow: Flow, removals: Removals, m: Measurement, *, seconds: float) -> Effects:
        with self._source.isolated():
            lost = any(finding.kind == FindingKind.LEFT_OUT for finding in m.findings)
            known: dict[str, Any] = {"seed": self.seed, "shares": None if lost else m.guesses.largest}
            known |= self._known("logits")
            return effects_of(self._source, self.batches, flow, removals, seconds=seconds, **known)

    def gradients(self, seconds: float, m: Measurement) -> Any:
        # A backward pass costs about two forward passes, gradients by point two more; how long one took is known.
        a_member = m.seconds / max(1, m.inits) * min(1.0, GRADIENT_POINTS / max(1, m.points)) * 5
        count = int(min(20, max(2, seconds / max(a_member, 1e-3))))
        known: dict[str, Any] = {"inits": count, "seed": self.seed, "seconds": seconds} | self._known("logits")
        if self.model is None:
            return measure_gradients(self.network, self._data, width=self.width, **known)
        with self._source.isolated():
            batches = self.batches[:1] if self._large else self.batches  # whose gradients need not be kept to be added
            return in_parts(lambda b, n: measure_gradients(self._source, b, points=n, **known), batches)

    def starts(self, data: Data) -> Generator[tuple[nn.Module, torch.Tensor]]:
        """Initializations, those of the measurement, with their logits on these points as one batch."""
        x = torch.tensor(data.x)
        batch = replace(self.batches[0], inputs=x, labels=None, size=len(x))
        call, pick = Caller(), self._options.get("logits")
        with self._source.isolated():
            for i in itertools.count():
                with self._source.member(int(member_seeds(self.seed, i, i + 1)[0])) as model, torch.enable_grad():
                    yield model, as_rows(find_logits(call(model, batch, copies=True), pick), batch, pick)

    def logits(self, *, seconds: float) -> Generator[torch.Tensor]:
        """Logits of the measurement's initializations on all points, one after the other, while there is time."""
        call, pick, began = Caller(), self._options.get("logits"), time.perf_counter()
        with self._source.isolated():
            for i in itertools.count():
                if i > 1 and time.perf_counter() - began > seconds:
                    return
                with self._source.member(int(member_seeds(self.seed, i, i + 1)[0])) as model, torch.no_grad():
                    rows = (as_rows(find_logits(call(model, b, copies=True), pick), b, pick) for b in self.batches)
                    yield torch.cat(list(rows))

    def structure(self, m: Measurement) -> tuple[Structure | None, str]:
        """What could be read of the model, and why it could not be read as a whole."""
        if self.model is None:
            return None, ""
        if any(finding.kind in PARTLY for finding in m.findings):
            return None, "part of the model keeps its values, and theory is about weights that are drawn"
        if any(finding.kind == FindingKind.REPAIRED for finding in m.findings):
            return None, "the model was repaired, and theory is about networks as they are drawn"
        try:
            with self._source.isolated():
                found = read(self._source, self.batches[0], said=m.findings, **self._known("init"))
        except FirstguessError as error:
            return None, f"its structure could not be read: {error.reason}"
        except Exception as error:  # of a user's model, which could be measured all the same
            return None, f"its structure could not be read: {type(error).__name__}: {error}".splitlines()[0]
        self.network = found.network
        self.own_size = OwnSize(law=found.law)
        if found.network is None:
            each = counted(map(_unread, found.unread))
            first = "; ".join(each[:2])
            more = f"; and {len(each) - 2} more" if len(each) > 2 else ""
            return found, f"its structure could not be read as a whole: {first}{more}"
        return found, ""

    def data(self, most: int) -> Data | None:
        found = self.convert(self.batches)
        return found if found is None or found.n <= most else found.subset(most, self.seed)

    def convert(self, batches: Sequence[Batch]) -> Data | None:
        """Inputs as one array, which the kernel reading needs; None where they are not (padded, several inputs)."""
        tokens = self.network is not None and needs_tokens(self.network.layers)
        padding = getattr(cast(Network, self.network).layers[0], "padding", None) if tokens else None
        x = sequences_of(batches, padding) if tokens else inputs_of(batches)
        if x is None:
            return None
        labels = [b.labels for b in batches if b.labels is not None]
        known = len(labels) == len(batches) and all(v.ndim == 1 and not v.is_floating_point() for v in labels)
        y = torch.cat(labels).numpy() if known else None
        return Data(np.asarray(x), y, name=self._data.name if self.model is None else "data")


def _unread(part: Unread) -> str:
    """What could not be read, in words where it is code between modules.

    >>> _unread(Unread("bert.embeddings", "add", "a parameter meets the signal"))
    'bert.embeddings (sum): a parameter meets the signal'
    """
    code = part.path and part.kind[:1].islower()
    return str(replace(part, kind=doing(f"code: {part.kind.replace('_', '')}")) if code else part)


def in_parts(work: Callable[[list[Batch], int], Gradients], batches: list[Batch]) -> Gradients:
    """Gradients of some points; where a model takes whole batches only (a graph, a size in its code), of whole ones."""
    try:
        return work(batches, GRADIENT_POINTS)
    except (FirstguessError, RuntimeError):
        sizes = [batch.size for batch in batches]
        count = next((i for i in range(1, len(sizes)) if sum(sizes[:i]) >= GRADIENT_POINTS), len(sizes))
        if sum(sizes[:count]) <= GRADIENT_POINTS:
            raise
        return work(batches[:count], sum(sizes[:count]))


# The parts of a diagnosis: what they may take of the time, and what is kept of them after Ctrl-C.

# Of the time allowed, in percent, by the end of each part: how far a diagnosis is.
LOOKED, MEASURED, CAUSES, EXPECTED, DIFFERENTIATED, LASTED, REHEARSED, ADVISED = 3, 38, 52, 58, 68, 73, 82, 100


class Clock:
    """A time in seconds, and what is left of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started = time.perf_counter()

    @property
    def passed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def left(self) -> float:
        return self.seconds - self.passed

    def share(self, part: float) -> float:
        """Seconds that are a part of all, or what is left of them."""
        return max(0.0, min(part * self.seconds, self.left))

    def spare(self, part: float, *, reserve: float) -> float:
        """A part of all, and what those before did not need, up to a reserve for those after."""
        return max(self.share(part), self.left - reserve * self.seconds)


class Stages:
    """What comes after the measurement, part by part: once there was a Ctrl-C, only what is quick is still done; and
    nothing that would need more time than is left."""

    def __init__(self, m: Measurement, clock: Clock, progress: Progress, notes: list[str]) -> None:
        self._clock, self._progress, self._notes = clock, progress, notes
        self._said = [finding.message for finding in m.findings if finding.kind == FindingKind.INTERRUPTED]
        self._interrupted = bool(self._said)
        self._left_out: list[str] = []
        self._late: list[str] = []
        self._member = m.seconds / max(1, m.inits)

    def do(self, name: str, work: Callable[[], _T], *, quick: bool = False, members: float = 0.0) -> _T | None:
        """One part, which takes at least as long as this many `members`."""
        if self._interrupted and not quick:
            self._left_out.append(name)
            return None
        if members * self._member > self._clock.left:
            self._late.append(name)
            return None
        try:
            return work()
        except KeyboardInterrupt:
            self.interrupt(name)
            return None

    def attempt(self, name: str, work: Callable[[], _T], *, members: float, failed: str = "") -> _T | None:
        """A part that may fail for a model which the measurement could handle; a note says then why there is none."""

        def trying() -> _T | None:
            try:
                return work()
            except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
                said = error.reason if isinstance(error, FirstguessError) else str(error)
                first = said.splitlines()[0] if said else type(error).__name__
                self._notes.append(f"no {failed or name}: {first}")
                return None

        return self.do(name, trying, members=members)

    def tick(self, percent: int) -> None:
        try:
            self._progress(percent, 100)
        except KeyboardInterrupt:
            self._interrupted = True

    def interrupt(self, name: str) -> None:
        self._interrupted = True
        self._left_out.append(name)

    def findings(self, m: Measurement) -> tuple[Finding, ...]:
        """Those of the measurement, and what was left out."""
        found = m.findings
        if self._left_out:
            words = "; ".join([*self._said, f"left out: {', '.join(self._left_out)}"])
            found = (*(f for f in found if f.kind != FindingKind.INTERRUPTED), Finding(FindingKind.INTERRUPTED, words))
        if self._late:
            limit = f"stopped at the limit of {self._clock.seconds:g} s"
            words = f"{limit}; skipped: {', '.join(self._late)}. Raise seconds= for all of it"
            found = (*found, Finding(FindingKind.TIME_IS_UP, words))
        return found


# What a model and its data are called on the page: by the user's own names, and by their size where these say nothing.

_OURS = ("firstguess", "torch", "contextlib", "functools")  # packages whose names are not the user's
_LIBRARIES = ("torch", "builtins", "numpy", "pandas", "datasets", "functools", "collections")
_SAY_NOTHING = ("", "model", "net", "network", "m", "data", "x", "X", "inputs")  # names of variables


def model_name(what: object) -> str:
    """A description's own text; the name of a class of the user's, or of a function; else of the caller's variable, or
    what kind of model it is and how large, where that is "model".

    >>> model_name("dense > relu > dense"), model_name(nn.Sequential)
    ('dense > relu > dense', 'Sequential')
    >>> model_name(nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 2)))
    'Sequential, 2 layers, 1.7 k parameters'
    """
    if isinstance(what, (str, Network)):
        return four_digits(what)
    if isinstance(what, functools.partial):
        what = what.func
    name = str(getattr(what, "__name__", ""))  # of a class or a function
    if name and name != "<lambda>":
        return name
    kind = type(what)
    if isinstance(what, nn.Module) and not _is_from(kind, _LIBRARIES):
        return kind.__name__
    own = variable(what)
    if own not in _SAY_NOTHING or not isinstance(what, nn.Module):
        return own or "model"
    layers = sum(any(True for _ in module.parameters(recurse=False)) for module in what.modules())
    if not layers or is_lazy(what):
        return kind.__name__
    each = "1 layer" if layers == 1 else f"{layers} layers"
    return f"{kind.__name__}, {each}, {magnitude(sum(p.numel() for p in what.parameters()))} parameters"


def data_name(data: object) -> str:
    """The name that data have; of a loader that of its data set; else of the caller's variable.

    >>> data_name("digits"), data_name([[1.0, 2.0]])
    ('digits', 'your data')
    """
    if isinstance(data, str):
        return data
    if isinstance(data, Data) and data.name != "data":
        return data.name
    inner: Any = getattr(data, "dataset", data)  # of a DataLoader
    if not _is_from(type(inner), _LIBRARIES) and not isinstance(inner, Data):
        return type(inner).__name__
    own = variable(data) or variable(inner)
    if not own and isinstance(data, (tuple, list)) and data:
        own = variable(data[0])  # (x, y), written in the call
    return NAMELESS if own in _SAY_NOTHING else own


def variable(value: object) -> str:
    """The name of the variable in the first frame that is not ours, if this very object has one there.

    >>> variable(object())
    ''
    """
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # what `inspect.currentframe` is on CPython
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS:
        frame = frame.f_back
    if frame is None:
        return ""
    # Not `_12` of a notebook, nor what a test's assertions are rewritten to.
    own = (name for name, seen in frame.f_locals.items() if seen is value and name[:1] != "_" and name.isidentifier())
    return next(own, "")


def _is_from(kind: type, packages: tuple[str, ...]) -> bool:
    return kind.__module__.partition(".")[0] in packages
