"""`diagnose`: measure, trace, read, predict, differentiate, try remedies; one page about all of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput, NotFinite
from firstguess.base.text import counted
from firstguess.data import Batch, Data, as_data, collect, load
from firstguess.data.streams import POINTS, cut_note
from firstguess.diagnosis.advising import Advised, Trial, advise, case_of, growth
from firstguess.diagnosis.causes import causes_of, without_ending
from firstguess.diagnosis.expectation import expectation
from firstguess.diagnosis.faults import named
from firstguess.diagnosis.faults.looking import look_into
from firstguess.diagnosis.remedies import Case, Variant
from firstguess.diagnosis.remedies.base import Model, inputs_of
from firstguess.diagnosis.result import Diagnosis, Expected
from firstguess.diagnosis.training import GRADIENT_POINTS, in_parts, trainability_of, with_measured
from firstguess.diagnosis.verdict import broken, check_fresh, verdict_of
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_module import build
from firstguess.ensemble.members import PARTLY, Finding, FindingKind, Probe
from firstguess.modules.choice import Strategy
from firstguess.modules.engines import recorded
from firstguess.modules.examination import Examination
from firstguess.modules.feeding import Forward, fed
from firstguess.modules.flow import Flow, trace_flow
from firstguess.modules.fresh import Redrawn
from firstguess.modules.gradients import measure_gradients
from firstguess.modules.initializers import Init
from firstguess.modules.measuring import measure
from firstguess.modules.outputs import Pick
from firstguess.modules.probes import Node
from firstguess.modules.reader import read
from firstguess.modules.sources import Mode, Source, source_of
from firstguess.modules.structure import Structure
from firstguess.network.network import Network

Progress = Callable[[int, int], object]
_T = TypeVar("_T")
_SOURCE = "init mode device dtype trained redraw scale logits"  # options that say where members come from
_STAGES, _KERNEL_POINTS = 5, 1000

# Parts of the time allowed: most of it draws networks, for the verdict and for the remedies.
_LOOK, _MEASURE, _FLOW, _EXPECT, _GRADIENTS, _ADVICE = 0.02, 0.36, 0.07, 0.05, 0.1, 0.25


@checks.known_options
@torch.inference_mode(False)  # a copy made in a caller's inference mode could not be differentiated
def diagnose(
    what: object,
    data: object,
    *,
    inits: int = 100,
    seed: int = 0,
    points: int = POINTS,
    seconds: float = 60.0,
    classes: int | None = None,
    width: int = 1000,
    batch_size: int | None = None,
    advice: bool = True,
    progress: Progress | None = None,
    precision: float | None = None,
    reduce: bool = True,
    memory: float = 2e9,
    probe: Probe = "all",
    dtype: torch.dtype | None = None,
    init: Init = None,
    logits: Pick = None,
    forward: Forward | None = None,
    mode: Mode | None = None,
    node: Node | None = None,
    device: torch.device | str | None = None,
    strategy: Strategy | None = None,
    trained: bool = False,
    redraw: Redrawn = None,
    scale: float | None = None,
    threads: int | None = None,
) -> Diagnosis:
    """Say whether a network is biased before training, which layer does it, whether that is expected, what to change.

    Ctrl-C keeps the parts that are done, once there is a measurement: a finding then says what was left out.

    >>> d = diagnose("5 x [dense(weight_var=2) > relu] > dense", "blob:n=200,d=50", inits=30, width=200, advice=False)
    >>> d.verdict.name, d.causes[0].kind, d.causes[0].name
    ('biased', 'ReLU', '1')

    Args:
        what: An `nn.Module` (re-drawn, never changed), a class, a factory, a `Network` or its text.
        data: Anything that `fg.measure` takes: a loader, arrays, `Data`, a name.
        inits: Initializations at most.
        seed: Of everything that is drawn.
        points: Data points at most, always the same ones.
        seconds: About how long it may take: fewer initializations are drawn when time is up, and a finding says so.
        classes: For a text, the number of classes (default: that of the labels, or 2).
        width: Of the layers of a description that name none.
        batch_size: Of the batches that a model gets; BatchNorm depends on it.
        advice: Try remedies.
        progress: Called with (stages done, stages).
        precision: As for `fg.measure`, and so are all further options: a description takes no init, logits, forward,
            mode, node, device, strategy, trained, redraw and scale, a model no threads.
    """
    started = time.perf_counter()
    if not checks.number(seconds) > 0:
        raise InvalidInput("a time in seconds", got=seconds, where="diagnose(seconds)", hint="seconds=60")
    points = checks.count(points, 2, "number of points", "diagnose(points)", "points=1000")
    options = {"reduce": reduce, "memory": memory, "probe": probe} | checks.given(
        precision=precision,
        dtype=dtype,
        init=init,
        logits=logits,
        forward=forward,
        mode=mode,
        node=node,
        device=device,
        strategy=strategy,
        trained=trained or None,
        redraw="all" if redraw is None and trained else redraw,
        scale=scale,
        threads=threads,
    )
    subject = _Subject(what, data, points, classes, width, batch_size, seed, options)
    tick = progress or (lambda done, total: None)
    tick(0, _STAGES)
    look = subject.look(max(_LOOK * seconds, min(1.0, 0.3 * seconds)))
    try:
        m = subject.measure(inits=inits, seconds=_MEASURE * seconds)
    except NotFinite as error:
        return replace(_broken(subject, error, started), faults=named(look))
    check_fresh(m)
    partly = any(finding.kind in PARTLY for finding in m.findings)
    notes: list[str] = [subject.note] if subject.note else []
    parts = _Parts(m, tick)
    parts.tick(1)
    flow = parts.do("causes", lambda: _attempt(lambda: subject.flow(_FLOW * seconds), "causes", notes))
    if flow is not None:
        flow = without_ending(flow, m)
    parts.tick(2)
    structure, why = parts.do("structure", lambda: subject.structure(m), quick=True) or (None, "it was interrupted")
    expected = parts.do(
        "theory",
        lambda: expectation(
            subject.network, why, subject.data(_KERNEL_POINTS), m, seed=seed, seconds=_EXPECT * seconds
        ),
        quick=True,
    ) or Expected(None, None, "it was interrupted")
    parts.tick(3)
    gradients = parts.do(
        "gradients", lambda: _attempt(lambda: subject.gradients(_GRADIENTS * seconds, m), "gradients", notes)
    )
    theory = math.nan if subject.network is None else growth(subject.network)
    train = None if gradients is None else trainability_of(gradients, plain=subject.is_plain(), predicted=theory)
    parts.tick(4)
    verdict = verdict_of(m)
    tried = Advised()
    if advice and partly:
        notes.append("no remedies: they change layers and how these are drawn, and part of the model keeps its values")
    elif advice:
        case = Case(subject.network, subject.model, subject.batches, m, flow, subject.study, logits)
        trial = Trial(case, expected.prediction, subject.convert, subject.variant, _ADVICE * seconds, seed)
        tried = parts.do("remedies", lambda: advise(trial)) or tried
        if tried.interrupted:
            parts.interrupt("some remedies" if tried.advice else "remedies")
    parts.tick(_STAGES)
    hidden = max(0, len(m.weights_layers) - 1)
    return Diagnosis(
        verdict,
        causes_of(flow) if flow is not None else (),
        expected,
        train,
        with_measured(tried.advice, train),
        "" if partly else case_of(verdict, train, hidden),  # what is known is known of training from scratch
        subject.name,
        m,
        structure,
        parts.findings(m),
        (*(structure.notes if structure is not None else ()), *notes, *tried.notes),
        m.provenance,
        time.perf_counter() - started,
        named(look, m),
    )


class _Parts:
    """What comes after the measurement, part by part: once there was a Ctrl-C, only what is quick is still done."""

    def __init__(self, m: Measurement, progress: Progress) -> None:
        self._progress = progress
        self._said = [finding.message for finding in m.findings if finding.kind == FindingKind.INTERRUPTED]
        self._interrupted = bool(self._said)
        self._left_out: list[str] = []

    def do(self, name: str, work: Callable[[], _T], *, quick: bool = False) -> _T | None:
        if self._interrupted and not quick:
            self._left_out.append(name)
            return None
        try:
            return work()
        except KeyboardInterrupt:
            self.interrupt(name)
            return None

    def tick(self, stages: int) -> None:
        try:
            self._progress(stages, _STAGES)
        except KeyboardInterrupt:
            self._interrupted = True

    def interrupt(self, name: str) -> None:
        self._interrupted = True
        self._left_out.append(name)

    def findings(self, m: Measurement) -> tuple[Finding, ...]:
        """Those of the measurement, and what was left out."""
        if not self._left_out:
            return m.findings
        words = "; ".join([*self._said, f"left out: {', '.join(self._left_out)}"])
        return (*(f for f in m.findings if f.kind != FindingKind.INTERRUPTED), Finding(FindingKind.INTERRUPTED, words))


def _attempt(work: Callable[[], Any], name: str, notes: list[str]) -> Any:
    """A part of the diagnosis, which may fail for a model that the measurement could handle."""
    try:
        return work()
    except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        notes.append(f"no {name}: {first}")
        return None


def _broken(subject: _Subject, error: NotFinite, started: float) -> Diagnosis:
    place = error.where if isinstance(error.where, str) else ""
    return Diagnosis(
        broken("every initialization gives NaN or Inf", place),
        (),
        Expected(None, None, "the network gives no finite logits"),
        None,
        (),
        "",
        subject.name,
        None,
        None,
        (Finding(FindingKind.NONFINITE, str(error), place),),
        seconds=time.perf_counter() - started,
    )


class _Subject:
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
        self._options, self._width, self._seed = options, width, seed
        self._batch_size, self._classes = batch_size, classes
        self.network: Network | None = None
        self.model: Model | None = None
        text = isinstance(what, str)
        what = Network.parse(what) if isinstance(what, str) else what  # a typing error is told before data are read
        data = load(data) if isinstance(data, str) else data
        if isinstance(what, Network):
            self._data = as_data(data, most=points)
            if text:
                wanted = classes if classes is not None else max(2, self._data.classes or 2)
                what = replace(what, classes=wanted)
            self.network = what
            self.batches = collect(self._data, batch_size=batch_size or points)
            self.name = str(what)
        elif callable(what):
            self.model = cast(Model, what)
            self.batches = fed(what, collect(data, points, batch_size=batch_size), options.pop("forward", None))
            self.name = getattr(what, "__name__", type(what).__name__)
        else:
            raise InvalidInput(
                "an nn.Module, a class or factory, a Network or its text",
                got=f"a {type(what).__name__}",
                where="diagnose",
                hint="fg.diagnose(model, loader)",
            )
        self._points = sum(batch.size for batch in self.batches)
        self.note = cut_note(data, None if points == POINTS else points, self._points)
        self._origin = recorded(data)

    def measure(self, *, inits: int, seconds: float) -> Measurement:
        if self.model is None:
            return measure(
                self.network,
                self._data,
                points=self._points,
                inits=inits,
                seed=self._seed,
                seconds=seconds,
                width=self._width,
                batch_size=self._batch_size,
                **self._options,
            )
        with self._source.lent():
            m = measure(
                self._source,
                self.batches,
                inits=inits,
                seed=self._seed,
                seconds=seconds,
                classes=self._classes,
                **self._options,
            )
        return replace(m, provenance=m.provenance | {"data": m.provenance["data"] | self._origin})

    def variant(self, variant: Variant, seconds: float) -> Measurement:
        batches = variant.batches if variant.batches is not None else self.batches
        if variant.model is None:
            known: dict[str, Any] = {"inits": 40, "seed": self._seed, "seconds": seconds, "width": self._width}
            return measure(variant.network, self.convert(batches), points=self._points, **known)
        options: dict[str, Any] = self._options | {"probe": "output"}
        members = self._source if variant.model is self.model else variant.source or self.study(variant.model)
        with members.lent():
            return measure(members, list(batches), inits=40, seed=self._seed, seconds=seconds, **options)

    @cached_property
    def _source(self) -> Source:
        """Where modules come from, for every stage: the model, or a factory of the description's."""
        return source_of(self._factory(), self.batches) if self.model is None else self.study(self.model)

    def look(self, seconds: float) -> Examination | None:
        """What one pass of the model, as it is, shows."""
        what = self._factory() if self.model is None else self.model
        return look_into(what, self.batches, seconds=seconds, seed=self._seed, **self._known("logits", "init"))

    def study(self, model: Model) -> Source:
        """Members of a model, as the options have it."""
        return source_of(model, self.batches, **self._known(*_SOURCE.split()))

    def _factory(self) -> Callable[[], nn.Module]:
        network, shape, width = cast(Network, self.network), self._data.x, self._width
        return lambda: build(network, shape, width=width, seed=int(torch.randint(2**31, (1,))))

    def _known(self, *names: str) -> dict[str, Any]:
        return {name: self._options[name] for name in names if name in self._options}

    def flow(self, seconds: float) -> Flow:
        with self._source.lent():
            return trace_flow(
                self._source, self.batches, inits=20, seed=self._seed, seconds=seconds, **self._known("logits")
            )

    def gradients(self, seconds: float, m: Measurement) -> Any:
        # A backward pass costs about two forward passes, gradients by point two more; how long one took is known.
        a_member = m.seconds / max(1, m.inits) * min(1.0, GRADIENT_POINTS / max(1, m.points)) * 5
        count = int(min(20, max(4, seconds / max(a_member, 1e-3))))
        known: dict[str, Any] = {"inits": count, "seed": self._seed} | self._known("logits")
        if self.model is None:
            return measure_gradients(self.network, self._data, width=self._width, **known)
        with self._source.lent():
            return in_parts(lambda b, n: measure_gradients(self._source, b, points=n, **known), self.batches)

    def structure(self, m: Measurement) -> tuple[Structure | None, str]:
        """What could be read of the model, and why it could not be read as a whole."""
        if self.model is None:
            return None, ""
        if any(finding.kind in PARTLY for finding in m.findings):
            return None, "part of the model keeps its values, and theory is about weights that are drawn"
        try:
            with self._source.lent():
                found = read(self._source, self.batches[0], said=m.findings, **self._known("init"))
        except FirstguessError as error:
            return None, f"its structure could not be read: {error}"
        self.network = found.network
        if found.network is None:
            each = counted(str(part) for part in found.unread)
            first = "; ".join(each[:2])
            more = f"; and {len(each) - 2} more" if len(each) > 2 else ""
            return found, f"its structure could not be read as a whole: {first}{more}"
        return found, ""

    def is_plain(self) -> bool:
        """Whether phases mean something, of a network that was read."""
        return self.network is not None and self.network.plain

    def data(self, most: int) -> Data | None:
        found = self.convert(self.batches)
        return found if found is None or found.n <= most else found.subset(most, self._seed)

    def convert(self, batches: Sequence[Batch]) -> Data | None:
        """Inputs as one array, which the kernel reading needs; None where they are not (token ids, several inputs)."""
        x = inputs_of(batches)
        if x is None:
            return None
        labels = [b.labels for b in batches if b.labels is not None]
        known = len(labels) == len(batches) and all(v.ndim == 1 and not v.is_floating_point() for v in labels)
        y = torch.cat(labels).numpy() if known else None
        name = self._data.name if self.model is None else "data"
        return Data(np.asarray(x), y, name=name) if y is not None else Data(np.asarray(x), name=name)
