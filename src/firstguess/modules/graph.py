"""From the graph of a forward to a chain of layers: one signal, residual sums closed into blocks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import fx, nn

from firstguess.modules import calls
from firstguess.modules.kinds import FLAT, Meaning, Place, is_whole
from firstguess.modules.site import Modules
from firstguess.modules.structure import Part, Unread
from firstguess.modules.tracing import Traced, path_of, trace
from firstguess.modules.variances import Draws
from firstguess.network.activations.lookup import activation
from firstguess.network.layers import Activate, AvgPool, Conv, Dense, Layer, MaxPool, Residual, Scale, Shift, text
from firstguess.network.layers.residual import unsigned

_SHAPE_METHODS = ("size", "dim", "numel", "ndimension")
_SHAPE_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda")
_LOGITS = "logits"
_RELU = (Activate(activation("relu")),)


@dataclass
class Step:
    """A node that carries the signal: what it means, and where the signal came from."""

    path: str
    kind: str
    meaning: Meaning
    before: fx.Node | None  # None: the input
    axes: int | None
    module: bool = False
    width: int | None = None  # nodes or channels, where layers around it say so
    broken: bool = False  # a sum whose branch has unread parts, which are listed by themselves

    @property
    def unread(self) -> bool:
        return self.broken or bool(self.meaning.why)


@dataclass
class Chain:
    """All steps of a graph in the order of their calls; `runs`: the stretches of layers that could be read."""

    runs: list[tuple[Layer, ...]]  # one, if everything was read
    parts: tuple[Part, ...]
    unread: tuple[Unread, ...]
    notes: list[str] = field(default_factory=list[str])


def read_chain(traced: Traced, modules: Modules, *, whole: bool = True) -> Chain:
    """`whole`: the graph's end is the network's, where a softmax makes no difference."""
    return _Reader(traced, modules).chain(whole)


class _Reader:
    def __init__(self, traced: Traced, modules: Modules) -> None:
        assert traced.graph is not None
        self.traced, self.modules = traced, modules
        self.steps: dict[fx.Node, Step] = {}
        self.aside: set[fx.Node] = set()  # shapes, devices: not signals
        self.notes: list[str] = []
        self.passed: dict[fx.Node, fx.Node] = {}  # sums with a branch that adds nothing: what they hand on
        self.idle: set[fx.Node] = set()  # in a branch that adds nothing, or after the last weights
        self.end, self.output_problem = _output(traced.graph)
        wanted = _ancestors(self.end) if self.end is not None else set[fx.Node]()
        self.wanted = wanted
        self.lost: list[Unread] = []  # changes in place whose result nobody names: the graph does not connect them
        for node in traced.graph.nodes:
            if node in wanted:
                self._visit(node)
            elif self._in_place(node) and any(n in wanted for n in node.all_input_nodes):
                why = "changes the signal in place without using its result; write x = ..."
                self.lost.append(Unread(_owner(node), calls.function_name(node), why))

    # One node at a time

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder" or _is_input(node):
            self.steps[node] = Step("", "input", Meaning(), None, self._axes(node))
            return
        signals = [n for n in node.all_input_nodes if n in self.steps]
        if not signals or _is_aside(node):
            # What is left has parameters or buffers in it, and is refused where it meets the signal.
            if node.op != "get_attr" and all(n in self.aside or n in signals for n in node.all_input_nodes):
                self.aside.add(node)
            return
        step = self._step(node, signals)
        if self._in_place(node) and not step.unread and self._used_again(node, signals[0]):
            step.meaning = Meaning(why="works in place on a signal that is used again, which so is changed as well")
        shape = self.traced.shapes.get(node.name)
        step.axes = len(shape) if shape is not None else step.meaning.axes or step.axes
        if not step.unread or node not in self.idle:
            self.notes += step.meaning.notes
        self.steps[node] = step
        self._set_width(node, step)

    def _in_place(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.modules.model.get_submodule(path_of(cast(str, node.target))), "inplace", False))
        return node.op in ("call_function", "call_method") and calls.in_place(node)

    def _used_again(self, node: fx.Node, source: fx.Node | None) -> bool:
        """Whether anything else uses the memory that a node writes into; views and left-out modules share theirs."""
        last = node
        while source is not None:
            if any(user is not last and user in self.wanted and not _is_aside(user) for user in source.users):
                return True
            step = self.steps[source]
            if step.meaning.layers or step.unread or step.before is None:
                return False
            before = step.before
            if calls.is_sum(source) and len(source.all_input_nodes) > 1:  # one whose branch adds nothing
                if not self._in_place(source):
                    return False
                before = source.all_input_nodes[0]
            last, source = source, before
        return False

    def _set_width(self, node: fx.Node, step: Step) -> None:
        """The width after a step; a layer with weights also says what the width before it was, back to the last one."""
        weights = step.meaning.layers[0] if _has_weights(step) else None
        if isinstance(weights, (Dense, Conv)):
            step.width = weights.width
            module = cast(Any, self.modules.model.get_submodule(step.path))
            given = module.in_channels if isinstance(weights, Conv) else module.in_features
            for before in self._trail(step.before):
                one = self.steps[before]
                if one.width is not None or one.unread:
                    return
                one.width = given
                if not _keeps_width(one):
                    return
        elif not step.unread and _keeps_width(step):
            terms = [self.steps[n].width for n in self._terms(node)]
            step.width = next((width for width in terms if width is not None), None)

    def _terms(self, node: fx.Node) -> list[fx.Node]:
        """The signals that a node is made from: both of a sum, unless one adds nothing."""
        if node in self.passed:
            return [self.passed[node]]
        return [n for n in node.all_input_nodes if n in self.steps]

    def _axes(self, node: fx.Node) -> int | None:
        shape = self.traced.shapes.get(node.name)
        return None if shape is None else len(shape)

    def _step(self, node: fx.Node, signals: list[fx.Node]) -> Step:
        first = signals[0]
        place = Place(self.steps[first].axes, self.traced.shapes.get(first.name))
        if node.op == "call_module":
            path = path_of(cast(str, node.target))
            kind = type(self.modules.model.get_submodule(path)).__name__
            if path in self.traced.opaque:
                meaning = Meaning(why=self.traced.opaque[path])
            else:
                meaning = self.modules.meaning(path, place)
                if len(signals) > 1 and not meaning.why:
                    meaning = Meaning(why=calls.of_several(node))
            return Step(path, kind, meaning, first, place.axes, module=True)
        path, kind = _owner(node), calls.function_name(node)
        both = [a for a in node.args if isinstance(a, fx.Node) and a in self.steps]
        if calls.is_sum(node) and len(both) == 2:
            return self._sum(node, path, both[0], both[1])
        if len(signals) > 1:
            return Step(path, kind, Meaning(why=calls.of_several(node)), first, place.axes)
        if any(n not in self.steps and n not in self.aside for n in node.all_input_nodes):
            why = "a parameter or buffer meets the signal outside of a known module"
            return Step(path, kind, Meaning(why=why), first, place.axes)
        if node.target in (operator.getitem, getattr) and self.steps[first].unread:
            return Step(path, kind, Meaning(), first, None, broken=True)  # of an output that is unread already
        return Step(path, kind, calls.function(node, place, self.traced.shapes.get(node.name)), first, place.axes)

    # Sums

    def _sum(self, node: fx.Node, path: str, left: fx.Node, right: fx.Node) -> Step:
        axes = self.steps[left].axes
        step = Step(path, calls.function_name(node), Meaning(), left, axes)
        one, other = self._trail(left), self._trail(right)
        fork = next((n for n in one if n in set(other)), None)
        if fork is None:
            step.meaning = Meaning(why=calls.of_several(node))
            return step
        sides = one[: one.index(fork)][::-1], other[: other.index(fork)][::-1]
        for side, rest in ((sides[0], right), (sides[1], left)):
            if zero := self._zero(side):
                self.idle.update(side)
                step.before = self.passed[node] = rest
                step.meaning = Meaning(
                    notes=(f"{zero} starts at zero, so the branch that it ends adds nothing and is left out",)
                )
                return step
        step.before = fork
        shapes = [self.traced.shapes.get(n.name) for n in (left, right)]
        widths = [self.steps[n].width for n in (left, right)]
        if None not in shapes and shapes[0] != shapes[1]:
            step.meaning = Meaning(why="adds two signals of different shapes")
        elif None in shapes and None not in widths and widths[0] != widths[1]:
            step.meaning = Meaning(why=f"adds two signals of different widths, {widths[0]} and {widths[1]}")
        elif any(self.steps[n].unread for side in sides for n in side):
            step.broken = True
        else:
            step.meaning = self._residual(sides, (left, right), calls.is_difference(node))
        return step

    def _residual(
        self, sides: tuple[list[fx.Node], list[fx.Node]], ends: tuple[fx.Node, fx.Node], minus: bool
    ) -> Meaning:
        left, right = ([layer for n in side for layer in self.steps[n].meaning.layers] for side in sides)
        if not left and not right:
            return Meaning(why="the signal minus itself") if minus else Meaning((Scale(2.0),))
        if minus:
            right = [*right, Scale(-1.0)]
        # The branch is the path that does more, and has weights to be uncorrelated by.
        paths = left, right
        low, high = sorted((0, 1), key=lambda i: (not unsigned(paths[i]), *_work(paths[i])))
        shortcut, branch = paths[low], paths[high]
        scale = 1.0
        while branch and isinstance(branch[-1], Scale):
            scale *= branch[-1].factor
            branch = branch[:-1]
        if not branch or unsigned(branch):
            last = text(branch[-1]) if branch else "a scale"
            return Meaning(
                why=f"a branch that ends in {last}; a description's residual branch ends in random weights, and then "
                "at most in norms"
            )
        weights = next(n for n in reversed(sides[high]) if _has_weights(self.steps[n]))
        if self._repeats(ends[low], weights):
            name = self.steps[weights].path
            return Meaning(why=f"what {name} adds is in the other side of the sum already, so the two are correlated")
        return Meaning((Residual(tuple(branch), scale, tuple(shortcut)),))

    def _repeats(self, end: fx.Node, weights: fx.Node) -> bool:
        """Whether a signal is correlated with what these weights put out.

        Its terms that end in other weights are not, even where these ones go into them: the later weights and their
        negatives have the same law, and only one of the two signals changes sign with them.
        """
        curved: list[fx.Node] = []
        todo, seen = [end], set[fx.Node]()
        while todo:
            node = todo.pop()
            if node is weights:
                return True
            if node in seen or _has_weights(self.steps[node]):
                continue
            seen.add(node)
            layers = self.steps[node].meaning.layers
            linear = calls.is_sum(node) or all(isinstance(layer, (Scale, Shift)) for layer in layers)
            (todo if linear else curved).extend(self._terms(node))
        return weights in self._sources(curved)

    def _sources(self, nodes: Iterable[fx.Node]) -> set[fx.Node]:
        """All nodes that signals come from, themselves included."""
        found, todo = set[fx.Node](), list(nodes)
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self._terms(one)
        return found

    def _zero(self, side: Iterable[fx.Node]) -> str:
        """The path of what makes a branch zero at initialization, or ""."""
        for node in reversed(list(side)):
            step = self.steps[node]
            layers = step.meaning.layers
            if step.meaning.zero or any(isinstance(x, Scale) and x.factor == 0.0 for x in layers[-1:]):
                return step.path or step.kind
            if step.unread or not all(isinstance(x, Scale) for x in layers):
                return ""
        return ""

    # The whole

    def _trail(self, node: fx.Node | None) -> list[fx.Node]:
        """The nodes that the signal came through, backwards to the input; sums are passed by as one."""
        found: list[fx.Node] = []
        while node is not None:
            found.append(node)
            node = self.steps[node].before
        return found

    def chain(self, whole: bool) -> Chain:
        trail = self._trail(self.end if self.end in self.steps else None)[::-1]
        if whole:
            self._drop_end(trail)
        runs: list[list[Layer]] = [[]]
        for node in trail:
            step = self.steps[node]
            if node in self.idle:
                continue
            if step.unread:
                runs.append([])
            elif step.meaning.layers == _RELU and _not_negative(runs[-1]):
                self.notes.append("a relu of what is not negative changes nothing, and is left out")
            else:
                runs[-1] += step.meaning.layers
        unread = [
            Unread(s.path, s.kind, s.meaning.why) for n, s in self._listed() if s.meaning.why and n not in self.idle
        ]
        if self.output_problem or not trail:
            unread.append(Unread("", "output", self.output_problem or "the output does not depend on the input"))
        unread += self.lost
        return Chain([tuple(run) for run in runs], tuple(self._parts()), tuple(unread), self.notes)

    def _drop_end(self, trail: list[fx.Node]) -> None:
        """What follows the last weights and cannot change the guess: softmax, sigmoid, and a positive factor."""
        for node in reversed(trail):
            meaning = self.steps[node].meaning
            idle = _is_idle(meaning.layers[0]) if len(meaning.layers) == 1 else ""
            if meaning.last or idle:
                self.idle.add(node)
                self.notes.append(
                    meaning.last or f"a {idle} at the end does not change which class is guessed, and is left out"
                )
            elif meaning.layers or self.steps[node].unread:
                return

    def _listed(self) -> Iterator[tuple[fx.Node, Step]]:
        return ((n, s) for n, s in self.steps.items() if s.kind != "input")

    def _parts(self) -> Iterator[Part]:
        for node, step in self._listed():
            layers = step.meaning.layers if node not in self.idle else ()
            if not step.unread and (step.module or (layers and not isinstance(layers[0], Residual))):
                yield Part(step.path, step.kind, " > ".join(text(x) for x in layers), step.meaning.variances)


def _not_negative(layers: Sequence[Layer]) -> bool:
    """Whether a signal ends in a relu, perhaps pooled."""
    last = next((layer for layer in reversed(layers) if not isinstance(layer, (MaxPool, AvgPool))), None)
    return (last,) == _RELU


def _has_weights(step: Step) -> bool:
    return any(isinstance(layer, (Dense, Conv)) for layer in step.meaning.layers)


def _keeps_width(step: Step) -> bool:
    """Whether nodes or channels are as many after a step; not where it flattens, or pools nodes."""
    pools = any(isinstance(layer, (MaxPool, AvgPool)) for layer in step.meaning.layers)
    return not (step.meaning.axes == FLAT and (pools or not step.meaning.layers))


def _work(path: Sequence[Layer]) -> tuple[int, int, int]:
    """Weights, the size of kernels, and layers: a projection is the path with less of them."""
    weights = [layer for layer in path if isinstance(layer, (Dense, Conv))]
    return len(weights), sum(layer.kernel for layer in weights if isinstance(layer, Conv)), len(path)


def _is_idle(layer: Layer) -> str:
    """What a layer is that keeps the order of logits, and the sign of one; empty for others."""
    if isinstance(layer, Scale) and layer.factor > 0:
        return "factor"
    return "sigmoid" if isinstance(layer, Activate) and str(layer.phi) == "sigmoid" else ""


def _is_input(node: fx.Node) -> bool:
    """An argument taken out of the one input (see `traced.Call`)."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and source.op == "placeholder" and isinstance(node.args[1], (int, str))


def _is_aside(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _SHAPE_METHODS
    return node.target is getattr and node.args[1] in _SHAPE_ATTRIBUTES


def _owner(node: fx.Node) -> str:
    """The module in whose forward a function is called."""
    stack = cast("dict[str, Any]", node.meta.get("nn_module_stack") or {})
    last = next(reversed(stack.values()), None)
    return path_of(last[0] if isinstance(last, tuple) else "model")


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    todo = [node]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += one.all_input_nodes
    return found


def _output(graph: fx.Graph) -> tuple[fx.Node | None, str]:
    """The node of the logits, and a problem if it is not clear which one that is."""
    out: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    if isinstance(out, dict) and isinstance(out.get(_LOGITS), fx.Node):
        return out[_LOGITS], ""
    values = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else [out]
    nodes = [value for value in values if isinstance(value, fx.Node)]
    if len(nodes) == 1:
        return nodes[0], ""
    problem = f"the model returns {len(nodes)} tensors, and none of them is called {_LOGITS!r}"
    return (nodes[0] if nodes else None), problem


def listed(model: nn.Module, order: Iterable[tuple[str, int | None]], modules: Modules) -> Chain:
    """Parts in the order given, where their connections could not be traced: no runs."""
    parts: list[Part] = []
    unread: list[Unread] = []
    notes: list[str] = []
    for path, axes in order:
        module = model.get_submodule(path)
        kind = type(module).__name__
        meaning = modules.meaning(path, Place(axes))
        if meaning.why and path and not is_whole(module) and not any(True for _ in module.parameters()):
            meaning = _alone(module) or meaning  # an activation written as a module of its own
        notes += meaning.notes
        if meaning.why:
            unread.append(Unread(path, kind, meaning.why))
        else:
            parts.append(Part(path, kind, " > ".join(text(x) for x in meaning.layers), meaning.variances))
    return Chain([], tuple(parts), tuple(unread), notes)


def _alone(module: nn.Module) -> Meaning | None:
    """The meaning of a small module by its own graph."""
    traced = trace(module, None)
    if traced.graph is None:
        return None
    chain = read_chain(traced, Modules(module, Draws({}, 0)), whole=False)
    return None if len(chain.runs) != 1 or chain.unread else Meaning(chain.runs[0], notes=tuple(chain.notes))
