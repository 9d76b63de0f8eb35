"""The ensemble reading of any `nn.Module`: many initializations of it, seen through forward hooks."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Unpack, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.ensemble import member_statistics
from firstguess.ensemble.member_statistics import Finding, FindingKind, Members, Probe, ProbedLayer
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.modules import outputs
from firstguess.modules.call_model import fewer, leaves, left_aside, mask_of, not_run, part, signature
from firstguess.modules.guard import every_module_called, restored
from firstguess.modules.hooks.accumulators import LayerRecorder
from firstguess.modules.hooks.session import OUTPUT, Finder, Hooks, Node, Spec
from firstguess.modules.members.initializers import BATCH_NORMS, hooks_of
from firstguess.modules.members.sources import Mode, Source, source_of
from firstguess.modules.options import MEMORY, ModelOptions
from firstguess.modules.outputs import Ending, LogitCaller, Tally
from firstguess.modules.stacked import FrozenBody, Strategy, StrategyChoice, Way, brief, frozen_body, run_stacked

# What an ensemble of models shows that a user should know: of one member, and of its BatchNorms.

_TIES = 1e-3  # share of tied points from which they are a finding: below it is rounding


def remarks(
    layers: Sequence[ProbedLayer], tally: Tally, record: LayerRecorder, stats: NDArray[np.float64]
) -> Iterator[Finding]:
    """Findings of one member. Their words hold no numbers of it, so that the same finding is the same."""
    head = next((layer.name for layer in reversed(layers) if layer.weights), OUTPUT)
    if tally.undefined or record.nonfinite:
        layer = record.nonfinite or OUTPUT
        yield Finding(
            FindingKind.NONFINITE, "NaN or Inf in some initialization: this layer is the first that has one", layer
        )
    elif tally.level:
        message = "all logits are equal on every point: the network guesses nothing; ties are broken at random"
        yield Finding(FindingKind.ZERO_HEAD, message, head)
    elif tally.ties > _TIES * tally.points:
        yield Finding(FindingKind.TIES, "points whose largest logit is shared by classes: broken at random", head)
    for layer, dead in zip(layers, stats[:, member_statistics.DEAD], strict=True):
        if dead == 1.0 and not (tally.level and layer.name in (head, layers[-1].name)):
            yield Finding(FindingKind.DEAD, "the same output for all data in some initialization", layer.name)
    for name in sorted(record.surprises):
        message = "called, or shaped, in another way in some initialization or batch"
        yield Finding(FindingKind.CONTROL_FLOW, message, name)
    for name in record.missed:
        yield Finding(FindingKind.CONTROL_FLOW, "not called in some initialization", name)


def batchnorm_remarks(model: nn.Module, mode: Mode, sizes: set[int]) -> tuple[bool, list[Finding]]:
    """Whether BatchNorms normalize over each batch, of these sizes, and what to say about it."""
    norms = [(n, m) for n, m in model.named_modules() if isinstance(m, BATCH_NORMS)]
    if not norms:
        return False, []
    place, most, least = norms[0][0], max(sizes), min(sizes)
    if mode != "train" and all(m.track_running_stats for _, m in norms):
        message = "BatchNorm in eval mode uses the running statistics of a network without data (mean 0, variance 1), "
        message += "so it does nothing yet; mode='train' is what the first training step sees"
        fresh = any(n.running_mean is not None and not bool(n.running_mean.any()) for _, n in norms)
        return False, [Finding(FindingKind.EVAL_BATCHNORM, message, place)] if fresh else []
    several = f"{most}" if most == least else f"{most} (the smallest has {least})"
    message = f"BatchNorm normalizes over each batch of {several} points, as in training"
    found = [Finding(FindingKind.BATCHNORM, message, place)]
    if least < 2:
        found.append(Finding(FindingKind.BATCH_OF_ONE, "BatchNorm over one point removes all that it says", place))
    return True, found


_OF_SOURCES = ("init", "device", "dtype", "redraw", "logits", "trained", "scale")
_TRIAL = 0.05  # of the time: a pass that takes more is not tried on a second member
_GROUP = 16  # most members of one vmapped call: more only enlarge what has to stay in cache


class ModuleEngine:
    """Runs initializations of a model, a class or a factory on batches of data (`Engine` of member_statistics.py).

    An instance is re-initialized on a private copy, a class or a function called once per initialization; member i
    depends on (seed, i) only. `seconds`: what two members should fit into, else all get fewer points, and a finding
    says so (`cut=False`: all points stay). Large batches are split, and vmap takes fewer members, to stay below
    `memory`; without a `strategy` channels last are tried for images, too.

    >>> from firstguess.data import blob, collect
    >>> engine = ModuleEngine(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2)), collect(blob(100, 20)))
    >>> [layer.name for layer in engine.layers], engine.classes, engine.points
    (['0', '1', '2'], 2, 100)
    >>> engine.run(0, 3).fractions.shape
    (3, 2)
    """

    def __init__(
        self,
        what: nn.Module | Callable[[], nn.Module] | Source,
        batches: Sequence[Batch],
        *,
        seed: int = 0,
        seconds: float = math.inf,
        cut: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        self._seconds, self._deadline = seconds, time.perf_counter() + seconds
        mode, node = options.get("mode") or "train", options.get("node") or "position"
        strategy, probe = options.get("strategy") or "auto", options.get("probe") or "all"
        checks.choice(mode, get_args(Mode), "mode", "mode")
        checks.choice(node, get_args(Node), "node", "node")
        checks.choice(strategy, get_args(Strategy), "strategy", "strategy")
        checks.choice(probe, get_args(Probe), "probe", "probe")
        if sum(batch.size for batch in batches) < 2:
            raise InvalidInput("at least two data points", got=f"{sum(batch.size for batch in batches)}", where="data")
        self._seed = check_seed(seed)
        self._pick, self._order = options.get("logits"), options.get("moments") or 2
        self._memory = MEMORY if (memory := options.get("memory")) is None else memory
        self._mode: Mode = mode
        self._batches = list(batches)
        self._call = LogitCaller(self._pick)
        known: dict[str, Any] = {name: value for name, value in options.items() if name in _OF_SOURCES}
        self._source = source_of(what, self._batches, mode=mode, **checks.given(**known))
        # Else what a model caches would be unusable in training, or for the source's other users.
        self._inference = self._source.shared_copy is not None and self._source is not what
        self._findings: dict[Finding, None] = dict.fromkeys((*self._source.findings, *left_aside(self._batches)))
        self.classes = self.points = 0
        self._a_pass = 0.0  # seconds of the latest trial
        self._fitted = seconds == math.inf or not cut
        self._ending: Ending = ""
        self._endings: set[Ending] = set()
        self._state_bytes = 0
        self._whole = False  # the model takes whole batches only
        self._bytes = 0  # of the largest output of a layer, for one sample
        self.layers = self._discover(node, probe)
        self._node: Node = "channel" if self._ragged else node
        self._kept = member_statistics.members_with_logits(self.points, self.classes)  # members whose logits are
        self._split_large_batches()
        self._padded = any(mask_of(batch) is not None for batch in self._batches)
        ways: list[Way] = ["loop"]
        self._body = frozen_body(self._source, self._memory / 2) if strategy != "vmap" else None
        self._body_checked = False
        images = any(leaf.ndim == 4 for leaf in leaves(self._batches[0].inputs).values())
        if self._body is None and self._convolves and images:
            ways.append("channels last")
        if self._body is None and self._group > 1:
            ways.append("vmap")
        self._choice = StrategyChoice(strategy, ways)
        self._vmap_checked = False
        if strategy == "vmap" and (problem := self._vmap_problem()):
            raise InvalidInput("a model that vmap can run", got=problem, where="strategy", hint="strategy='loop'")

    # Finding out what there is

    def _discover(self, node: Node, probe: Probe) -> tuple[Spec, ...]:
        """Forwards over two and three samples: which axis grows tells samples from tokens and channels."""
        groups = {signature(batch): batch for batch in reversed(self._batches)}
        self._ragged = len(groups) > 1
        first = self._batches[0]
        finder = Finder()
        self._tokens = tokens = dict[Any, int]()
        for member in (0, 1):  # two of them, for models whose calls depend on their weights
            if member and self._a_pass > _TRIAL * self._seconds:
                break
            with self._member(member) as model:
                if member == 0:
                    self._look(model)
                with Hooks(model, finder.see) as hooks:
                    for size in (3, 2) if first.size >= 3 and not self._whole else (first.size,):
                        tokens[signature(first)] = self._first_call(model, first, size, finder, hooks)
                        if self._whole:
                            break
                for key, batch in groups.items() if member == 0 else ():
                    if key not in tokens:
                        few = self._few(batch, 2)
                        with restored(model, parameters=False):
                            raw, _ = self._forward(model, few, copies=True)
                        tokens[key] = raw.numel() // (few.size * self._nodes)
        self.points = self._count_points()
        result = finder.result
        found = [spec for spec in finder.specs("channel" if self._ragged else node) if spec.name != result]
        self._ending = next(iter(self._endings)) if len(self._endings) == 1 else ""
        labels = [b.labels for b in self._batches if b.labels is not None and b.labels.is_floating_point()]
        if self._nodes == 1 and not self._ending and any(bool((y != y.round()).any()) for y in labels):
            message = "labels are numbers, not classes, as in regression: one output is read as two classes by its sign"
            self._note(FindingKind.REGRESSION, message)
        if self._ending == "probability":
            message = "one output between 0 and 1 is a probability: decided at ½; γ is that of its logit, ln p/(1 − p)"
            self._note(FindingKind.PROBABILITIES, message)
        elif self._ending:  # γ is that of logits: probabilities have a common mean, whatever the guesses
            head = max(i for i, spec in enumerate(found) if spec.weights)
            result, found = found[head].name, found[:head]
            message = f"the outputs are the {self._ending} of this layer's: γ is that of its own outputs, the logits"
            self._note(FindingKind.PROBABILITIES, message, result)
        if probe != "all":
            found = [spec for spec in found if spec.weights and probe == "weights"]
        found.append(finder.output_spec(result, self._nodes))
        self._ignored = [name for name in finder.order if name not in {spec.name for spec in found}]
        for sizes in finder.shapes.values():
            self._bytes = max(self._bytes, *(4 * int(np.prod(shape)) // size for size, shape in sizes.items()))
        if self._ragged:
            message = "batches have points of different shapes: a node is a channel, and positions are points"
            self._note(FindingKind.NODE, message)
        return tuple(found)

    def _count_points(self) -> int:
        total = 0
        for batch in self._batches:
            mask, tokens = mask_of(batch), self._tokens[signature(batch)]
            total += int(mask.sum()) if mask is not None and tokens == mask.shape[1] else batch.size * tokens
        return total

    def _few(self, batch: Batch, size: int) -> Batch:
        """A few points of a batch, for a trial; all of them for a model that takes no other number (a whole graph)."""
        return batch if self._whole else part(batch, 0, min(size, batch.size))

    def _first_call(self, model: nn.Module, batch: Batch, size: int, finder: Finder, hooks: Hooks) -> int:
        """A forward over a few samples; over the whole batch for a model that takes no other. Gives tokens a sample.

        A trial that fails leaves no trace: neither layers that were called before it failed, nor what the model keeps.
        """
        errors: list[Exception] = []
        for inference, count in ((self._inference, size), (False, size), (False, batch.size)):
            self._inference = inference
            finder.begin(count)
            hooks.begin()
            few = part(batch, 0, count)
            began = time.perf_counter()
            try:
                with restored(model, parameters=False):
                    raw, rows = self._forward(model, few, copies=True)
                self._a_pass = time.perf_counter() - began
            except Exception as error:  # whatever a user's model raises, or what its output is on a part of a graph
                finder.undo()
                errors.append(error)
                continue
            self._whole = self._whole or (len(errors) > 1 and count == batch.size)
            finder.output(raw)
            outputs.check_classes_known(raw, few, self._pick, finder.head)
            with hooks.paused(), restored(model, parameters=False):
                self._endings.add(self._ending_of(model, raw, finder.last, few))
            if self.classes not in (0, outputs.classes_of(rows)):
                raise InvalidInput(f"{self.classes} classes from every member", got=f"{outputs.classes_of(rows)}")
            self.classes = outputs.classes_of(rows)
            self._nodes = 1 if rows.ndim == 1 else self.classes
            return raw.numel() // (count * self._nodes)
        if isinstance(errors[-1], FirstguessError):
            raise errors[-1]
        raise not_run(errors[-1], batch) from errors[-1]

    def _ending_of(self, model: nn.Module, raw: torch.Tensor, last: torch.Tensor | None, batch: Batch) -> Ending:
        rows, head = outputs.as_rows(raw, batch, self._pick), None
        if last is not None and last.numel() == raw.numel():
            head = outputs.as_rows(last.to(raw.dtype).reshape(raw.shape), batch, self._pick)

        def probability() -> bool | None:
            few = outputs.is_probability(rows, lambda: self._forward(model, batch, copies=True)[1])
            if few is not None:  # on all points they are within 0 and 1 by chance less often
                return few
            return outputs.is_probability(self._forward(model, self._batches[0], copies=True)[1], None)

        return outputs.ending_of(rows, head, probability, self._pick)

    def _look(self, model: nn.Module) -> None:
        """What to say about BatchNorm, and how large the model is."""
        if next(model.parameters(), None) is None and next(model.buffers(), None) is None:  # buffers may be drawn, too
            message = "the model has no parameters: a class by accident (nn.Sequential for a model of yours)?"
            self._note(FindingKind.NOT_REDRAWN, message)
        self._state_bytes = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
        self._convolves = any(isinstance(module, nn.Conv2d) for module in model.modules())
        self._by_batch, said = batchnorm_remarks(model, self._mode, {batch.size for batch in self._batches})
        self._findings.update(dict.fromkeys(said))

    def _note(self, kind: FindingKind, message: str, layer: str = "") -> None:
        self._findings[Finding(kind, message, layer)] = None

    def _split_large_batches(self) -> None:
        """Batches whose activations would not fit in memory, unless BatchNorm or the model makes them one unit."""
        most = max(1, int(self._memory / 2 / max(4 * self._bytes, 1)))  # input, output and two temporaries
        if self._by_batch or self._whole or all(batch.size <= most for batch in self._batches):
            return
        self._batches = [part(b, i, min(i + most, b.size)) for b in self._batches for i in range(0, b.size, most)]

    # Running members

    def _member(self, member: int) -> AbstractContextManager[nn.Module]:
        return self._source.member(int(member_seeds(self._seed, member, member + 1)[0]))

    def _forward(self, model: nn.Module, batch: Batch, *, copies: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode() if self._inference else torch.no_grad(), every_module_called():
            return self._call.rows(model, batch, copies=copies)

    def _logits(self, output: Any, batch: Batch, returned: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """What is counted and the logits, which are other numbers where the outputs are probabilities."""
        raw = outputs.find_logits(output, self._pick)
        rows = logits = outputs.as_rows(raw, batch, self._pick)
        if self._ending and returned is not None:
            logits = outputs.as_rows(returned.reshape(raw.shape), batch, self._pick)
        if self._ending == "probability":
            return rows - 0.5, torch.logit(rows.float(), outputs.EPS)
        # One probability is decided at ½; one logit at 0.
        return rows - 0.5 if self._ending == "sigmoid" and rows.ndim == 1 else rows, logits

    def _recorder(self) -> LayerRecorder:
        known: dict[str, Any] = {"padded": self._padded, "order": self._order, "keep": self._kept > 0}
        return LayerRecorder(self.layers, self._node, self._ignored, **known)

    def _with_body(self, member: int, recorder: LayerRecorder) -> Tally:
        """One member on the body's outputs; the second one in full too, which has to give the same numbers."""
        body = self._body
        tally = self._loop(member, self._batches, recorder, body)
        if body is None or body.off or member == 0 or self._body_checked:
            return tally
        self._body_checked = True
        stats = recorder.stats()
        again = self._loop(member, self._batches, recorder)
        if not np.array_equal(stats, recorder.stats(), equal_nan=True) or (again.counts != tally.counts).any():
            body.forget()
        return again

    def _loop(
        self, member: int, batches: Sequence[Batch], recorder: LayerRecorder, body: FrozenBody | None = None
    ) -> Tally:
        tally = Tally(self.classes, self._seed, member)
        recorder.start()
        began = time.perf_counter()
        remembering = nullcontext(lambda number: None) if body is None else body.used(recorder)
        with self._member(member) as model, Hooks(model, recorder.see) as hooks, remembering as begin:
            for number, batch in enumerate(batches):
                begin(number)
                hooks.begin()
                recorder.begin(batch.size, mask_of(batch))
                with torch.inference_mode() if self._inference else torch.no_grad(), every_module_called():
                    rows, logits = self._logits(self._call(model, batch), batch, recorder.returned)
                recorder.logits(logits)
                if outputs.classes_of(rows) != self.classes:
                    raise InvalidInput(
                        f"{self.classes} classes", got=f"{outputs.classes_of(rows)}", where=f"member {member}"
                    )
                tally.add(rows, outputs.own_tokens(batch, rows))
                if batches is self._batches and not self._fitted and self._cut(number + 1, began):
                    break
            else:
                return tally
        return self._loop(member, self._batches, recorder, self._body)

    def _cut(self, done: int, began: float) -> bool:
        """Cut the data to as many points as the first member has seen in `done` batches, if two members on more would
        take too long; the points are spread over all of the data."""
        now, total = time.perf_counter(), len(self._batches)
        self._fitted = done == total or now + (2 * done + 3) * (now - began) / done > self._deadline
        if not self._fitted or done == total:
            return False
        first, points = self._batches[:done], self.points
        self._batches = first if self._whole else fewer(self._batches, sum(b.size for b in first), first[0].size)
        self.points = self._count_points()
        if self._body is not None:  # which knows the first batches only
            self._body = frozen_body(self._source, self._memory / 2)
        message = f"{self.points} of {points} points, for two initializations within {self._seconds:g} s"
        self._note(FindingKind.TIME_IS_UP, message)
        return True

    def _vmap(self, members: range, batches: Sequence[Batch]) -> tuple[list[LayerRecorder], list[Tally]]:
        recorders = [self._recorder() for _ in members]
        tallies = [Tally(self.classes, self._seed, member) for member in members]
        seeds = [int(seed) for seed in member_seeds(self._seed, members.start, members.stop)]
        with torch.no_grad(), every_module_called(), warnings.catch_warnings():
            # vmap's own remark that an operation has no batching rule: whether that is slow is timed here.
            warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
            run_stacked(self._source, seeds, batches, self._call, self._logits, recorders, tallies)
        return recorders, tallies

    def _vmap_problem(self) -> str:
        """Why vmap cannot be used, from two members on a few points; empty if it can."""
        if self._group < 2:
            return "no private copy to stack parameters on, or too little memory"
        stacked = self._source.shared_copy
        if stacked is not None and any(hooks_of(module) for module in stacked.modules()):
            return "a hook writes weights into the model (nn.utils.spectral_norm, weight_norm)"
        few = [self._few(self._batches[0], 4)]
        recorder = self._recorder()
        try:
            recorders, tallies = self._vmap(range(2), few)
        except Exception as error:  # any operation without a rule, or control flow that depends on data
            return brief(error)
        for member in range(2):
            tally = self._loop(member, few, recorder)
            close = np.allclose(recorders[member].stats(), recorder.stats(), rtol=1e-3, atol=1e-6, equal_nan=True)
            if not close or np.abs(tally.counts - tallies[member].counts).sum() > 2:
                return "it gives other numbers than one member at a time"
        return ""

    @property
    def _group(self) -> int:
        """Members of one vmapped call."""
        if self._source.shared_copy is None:
            return 0
        size = max(batch.size for batch in self._batches)
        return max(0, min(_GROUP, int(self._memory / 2 / max(2 * self._state_bytes + 8 * self._bytes * size, 1))))

    @property
    def batch_hint(self) -> int:
        """Members of about a second."""
        seconds = self._choice.seconds()
        if seconds == np.inf:
            return 4
        members = max(1, min(512, int(1.0 / max(seconds, 1e-4))))
        return members if self._choice.way() != "vmap" else max(self._group, members // self._group * self._group)

    @property
    def bitwise_group(self) -> int:  # 1 one by one, by request; 0 where the clock decides how, and so the last digit
        return int(self._choice.asked and self._choice.way() == "loop")

    @property
    def notes(self) -> tuple[str, ...]:
        cast = f"inputs cast from {self._call.cast}" if self._call.cast else ""
        body = self._body
        parts = () if body is None or body.off else tuple(path for path in body.parts if path in body.reused)
        more = ", …" if len(parts) > 3 else ""
        once = f"what is kept ({', '.join(parts[:3])}{more}) was run once, for all members" if parts else ""
        unlabelled = any(batch.labels is None for batch in self._batches)
        sign = outputs.BY_SIGN if self._nodes == 1 and not self._ending and unlabelled else ""
        return tuple(note for note in (self._choice.note, once, cast, sign) if note)

    def run(self, start: int, stop: int) -> Members:
        """Compute members start … stop − 1."""
        tallies: list[Tally] = []
        rows: list[NDArray[np.float64]] = []
        shapes: list[NDArray[np.float64]] = []
        logits: list[NDArray[np.float32]] = []
        findings: dict[Finding, None] = {}
        recorder = self._recorder()

        def finished(count: int) -> Members:
            # Of a language model: the share of tokens that guess themselves, of every member.
            own = np.array([t.own / max(t.points, 1) for t in tallies[:count] if t.own is not None])
            return Members(
                start,
                np.array([tally.fractions for tally in tallies[:count]]).reshape(-1, self.classes),
                np.array([tally.ties for tally in tallies[:count]], np.int64),
                np.array(rows[:count]).reshape(-1, len(self.layers), 4),
                tuple(self._findings | findings),
                np.array(shapes[:count]) if self._order == 4 else None,
                np.array(logits[:count]) if logits else None,
                own=own if len(own) == count > 0 else None,
            )

        try:
            while start + len(tallies) < stop:
                for tally, record in self._next(start + len(tallies), stop, recorder):
                    stats = record.stats()
                    findings.update(dict.fromkeys(remarks(self.layers, tally, record, stats)))
                    if start + len(tallies) < self._kept:
                        logits.append(record.all_logits())
                    tallies.append(tally)
                    shapes.append(record.shapes())
                    rows.append(stats)
        except KeyboardInterrupt:
            if not rows:
                raise
            raise member_statistics.Interrupted(finished(len(rows))) from None
        return finished(len(rows))

    def _next(self, member: int, stop: int, recorder: LayerRecorder) -> list[tuple[Tally, LayerRecorder]]:
        """One member, or several by vmap, in the way that is being tried or has been chosen."""
        way = self._choice.way(stop - member)
        if way == "vmap" and not self._vmap_checked:
            if problem := self._vmap_problem():
                self._choice.drop("vmap", problem)
                return self._next(member, stop, recorder)
            self._vmap_checked = True
        self._call.channels_last = way == "channels last"
        began = time.perf_counter()
        try:
            if way == "vmap":
                # Two of a large model are enough to see a gain, and little is lost if there is none.
                size = min(2 if self._choice.seconds("loop") > 0.5 else self._group, stop - member)
                recorders, tallies = self._vmap(range(member, member + size), self._batches)
                pairs = list(zip(tallies, recorders, strict=True))
            else:
                pairs = [(self._with_body(member, recorder), recorder)]
        except Exception as error:
            if way == "loop" or self._choice.asked:
                raise
            self._choice.drop(way, brief(error))  # e.g. control flow by data, or `view` on channels-last memory
            return self._next(member, stop, recorder)
        finally:
            self._call.channels_last = False
        self._choice.record(way, (time.perf_counter() - began) / len(pairs))
        return pairs
