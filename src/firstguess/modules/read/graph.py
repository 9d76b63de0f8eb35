"""From the graph of a forward to layers: one signal, residual sums closed into blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
from torch import fx, nn

from firstguess.modules.read import dispatch
from firstguess.modules.read.dispatch import Modules, ParameterDraws, is_whole
from firstguess.modules.read.result import Part, Unread
from firstguess.modules.read.tracing import Traced, path_of, trace
from firstguess.network.activations.registry import activation
from firstguess.network.layer import FLAT, Call, Layer, ReadContext, ReadResult, text
from firstguess.network.layers import Activate, Residual, Scale
from firstguess.network.layers.residual import unsigned

# The nodes of a graph that carry the signal, and the trail that it takes through them.

_SHAPE_METHODS = ("size", "dim", "numel", "ndimension")
_SHAPE_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda")
_LOGITS = "logits"


@dataclass
class Carrier:
    """A node that carries the signal: what it means, and where the signal came from."""

    path: str
    kind: str
    meaning: ReadResult
    before: fx.Node | None  # None: the input
    axes: int | None
    module: bool = False
    width: int | None = None  # nodes or channels, where layers around it say so
    broken: bool = False  # made from what is unread, which is listed by itself
    flow: object = None  # what it is in a model of tokens (`tokens.Flow`)
    parts: tuple[Part, ...] | None = None  # of the model that it comes from, where that is not the node alone

    @property
    def unread(self) -> bool:
        return self.broken or bool(self.meaning.why)

    @property
    def draws(self) -> bool:
        """Whether it has weights of its own."""
        return any(layer.draws for layer in self.meaning.layers)


@dataclass
class Trail:
    """All carriers of a graph, in the order of their calls."""

    traced: Traced
    carriers: dict[fx.Node, Carrier] = field(default_factory=dict[fx.Node, Carrier])
    passed: dict[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])
    """Sums with a branch that adds nothing: what they hand on."""
    idle: set[fx.Node] = field(default_factory=set[fx.Node])  # in a branch that adds nothing, or after the last weights

    def shape(self, node: fx.Node) -> tuple[int, ...] | None:
        """Shape of a node's result, where an example was run."""
        value = self.traced.values.get(node)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else None

    def back(self, node: fx.Node | None) -> list[fx.Node]:
        """The nodes that the signal came through, backwards to the input; sums are passed by as one."""
        found: list[fx.Node] = []
        while node is not None:
            found.append(node)
            node = self.carriers[node].before
        return found

    def terms(self, node: fx.Node) -> list[fx.Node]:
        """The signals that a node is made from: both of a sum, unless one adds nothing."""
        if node in self.passed:
            return [self.passed[node]]
        return [n for n in node.all_input_nodes if n in self.carriers]


def is_input(node: fx.Node) -> bool:
    """An argument taken out of the one input (see `tracing.OneInput`)."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and source.op == "placeholder" and isinstance(node.args[1], (int, str))


def is_aside(node: fx.Node) -> bool:
    """Whether a node asks for a shape or a device, not for the signal."""
    if node.op == "call_method":
        return node.target in _SHAPE_METHODS
    return node.target is getattr and node.args[1] in _SHAPE_ATTRIBUTES


def owner(node: fx.Node) -> str:
    """The module in whose forward a function is called."""
    stack = cast("dict[str, Any]", node.meta.get("nn_module_stack") or {})
    last = next(reversed(stack.values()), None)
    return path_of(last[0] if isinstance(last, tuple) else "model")


def ancestors(
    nodes: Iterable[fx.Node], before: Callable[[fx.Node], list[fx.Node]] = operator.attrgetter("all_input_nodes")
) -> set[fx.Node]:
    """All nodes that these are computed from, themselves included; `before`: what one is made from."""
    found, todo = set[fx.Node](), list(nodes)
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += before(one)
    return found


def output(graph: fx.Graph) -> tuple[fx.Node | None, str]:
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


# Sums of two signals of a graph: residual blocks, where what the branch adds is uncorrelated with the rest.


def sum_of(trail: Trail, node: fx.Node, path: str, left: fx.Node, right: fx.Node) -> Carrier:
    """The sum of two signals that come from one: a residual block, or why it is none."""
    axes = trail.carriers[left].axes
    carrier = Carrier(path, dispatch.function_name(node), ReadResult(), left, axes)
    one, other = trail.back(left), trail.back(right)
    fork = next((n for n in one if n in set(other)), None)
    if fork is None:
        carrier.meaning = ReadResult(why=dispatch.of_several(node))
        return carrier
    sides = one[: one.index(fork)][::-1], other[: other.index(fork)][::-1]
    for side, rest in ((sides[0], right), (sides[1], left)):
        if zero := _zero(trail, side):
            trail.idle.update(side)
            carrier.before = trail.passed[node] = rest
            note = f"{zero} starts at zero, so the branch that it ends adds nothing and is left out"
            carrier.meaning = ReadResult(notes=(note,))
            return carrier
    carrier.before = fork
    shapes = [trail.shape(n) for n in (left, right)]
    widths = [trail.carriers[n].width for n in (left, right)]
    if None not in shapes and shapes[0] != shapes[1]:
        carrier.meaning = ReadResult(why="adds two signals of different shapes")
    elif None in shapes and None not in widths and widths[0] != widths[1]:
        carrier.meaning = ReadResult(why=f"adds two signals of different widths, {widths[0]} and {widths[1]}")
    elif any(trail.carriers[n].unread for side in sides for n in side):
        carrier.broken = True
    else:
        carrier.meaning = _residual(trail, sides, (left, right), dispatch.is_difference(node))
    return carrier


def _residual(
    trail: Trail, sides: tuple[list[fx.Node], list[fx.Node]], ends: tuple[fx.Node, fx.Node], minus: bool
) -> ReadResult:
    left, right = ([layer for n in side for layer in trail.carriers[n].meaning.layers] for side in sides)
    if not left and not right:
        return ReadResult(why="the signal minus itself") if minus else ReadResult((Scale(2.0),))
    if minus:
        right = [*right, Scale(-1.0)]
    # The branch is the path that does more, and has weights to be uncorrelated by.
    paths = left, right

    def work(i: int) -> tuple[bool, int, int, int]:
        """Weights, the size of kernels, and layers: a projection is the path with less of them."""
        kernels, draws = sum(layer.kernel_side for layer in paths[i]), sum(layer.draws for layer in paths[i])
        return not unsigned(paths[i]), draws, kernels, len(paths[i])

    low, high = sorted((0, 1), key=work)
    shortcut, branch = paths[low], paths[high]
    scale = 1.0
    while branch and (factor := branch[-1].multiplier) is not None:
        scale *= factor
        branch = branch[:-1]
    tokens = trail.carriers[ends[0]].flow is not None  # what its readings do not cover they say themselves
    if not branch or (unsigned(branch) and not tokens):
        ends_in = "a description's residual branch ends in random weights, and then at most in norms"
        return ReadResult(why=f"a branch that ends in {text(branch[-1]) if branch else 'a scale'}; {ends_in}")
    weights = next((n for n in reversed(sides[high]) if trail.carriers[n].draws), None)
    if weights is not None and _repeats(trail, ends[low], weights):
        name = trail.carriers[weights].path
        return ReadResult(why=f"what {name} adds is in the other side of the sum already, so the two are correlated")
    return ReadResult((Residual(tuple(branch), scale, tuple(shortcut)),))


def _repeats(trail: Trail, end: fx.Node, weights: fx.Node) -> bool:
    """Whether a signal is correlated with what these weights put out.

    Its terms that end in other weights are not, even where these ones go into them: the later weights and their
    negatives have the same distribution, and only one of the two signals changes sign with them.
    """
    curved: list[fx.Node] = []
    todo, seen = [end], set[fx.Node]()
    while todo:
        node = todo.pop()
        if node is weights:
            return True
        if node in seen or trail.carriers[node].draws:
            continue
        seen.add(node)
        layers = trail.carriers[node].meaning.layers
        linear = dispatch.is_sum(node) or all(layer.affine for layer in layers)
        (todo if linear else curved).extend(trail.terms(node))
    return weights in ancestors(curved, trail.terms)


def _zero(trail: Trail, side: Iterable[fx.Node]) -> str:
    """The path of what makes a branch zero at initialization, or ""."""
    for node in reversed(list(side)):
        carrier = trail.carriers[node]
        layers = carrier.meaning.layers
        if carrier.meaning.zero or any(layer.multiplier == 0.0 for layer in layers[-1:]):
            return carrier.path or carrier.kind
        if carrier.unread or any(layer.multiplier is None for layer in layers):
            return ""
    return ""


_RELU = (Activate(activation("relu")),)


@dataclass
class GraphReading:
    """What was read of a graph, in the order of its calls; `runs`: the stretches of layers that could be."""

    runs: list[tuple[Layer, ...]]  # one, if everything was read
    parts: tuple[Part, ...]
    unread: tuple[Unread, ...]
    notes: list[str] = field(default_factory=list[str])


Visit: TypeAlias = Callable[[Trail, fx.Node, list[fx.Node]], Carrier | None]


class GraphReader:
    """Walk a graph. `visit` is asked first what a node carries that gets these signals; None: it does not know."""

    def __init__(self, traced: Traced, modules: Modules, visit: Visit = lambda *_: None) -> None:
        assert traced.graph is not None
        self.traced, self.modules, self.visit = traced, modules, visit
        self.trail = Trail(traced)
        self.carriers = self.trail.carriers
        self.aside: set[fx.Node] = set()  # shapes, devices: not signals
        self.notes: list[str] = []
        self.end, self.output_problem = output(traced.graph)
        wanted = ancestors([] if self.end is None else [self.end])
        self.wanted = wanted
        self.lost: list[Unread] = []  # changes in place whose result nobody names: the graph does not connect them
        for node in traced.graph.nodes:
            if node in wanted:
                self._visit(node)
            elif self._in_place(node) and any(n in wanted for n in node.all_input_nodes):
                why = "changes the signal in place without using its result; write x = ..."
                self.lost.append(Unread(owner(node), dispatch.function_name(node), why))

    # One node at a time

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder" or is_input(node):
            shape = self.trail.shape(node)
            plain = Carrier("", "input", ReadResult(), None, None if shape is None else len(shape))
            self.carriers[node] = self.visit(self.trail, node, []) or plain
            return
        signals = [n for n in node.all_input_nodes if n in self.carriers]
        if not signals or is_aside(node):
            # What is left has parameters or buffers in it, and is refused where it meets the signal.
            if node.op != "get_attr" and all(n in self.aside or n in signals for n in node.all_input_nodes):
                self.aside.add(node)
            return
        carrier = self.visit(self.trail, node, signals) or self._carrier(node, signals)
        if carrier.flow is None and self._in_place(node) and not carrier.unread and self._used_again(node, signals[0]):
            why = "works in place on a signal that is used again, which so is changed as well"
            carrier.meaning = ReadResult(why=why)
        shape = self.trail.shape(node)
        carrier.axes = len(shape) if shape is not None else carrier.meaning.axes or carrier.axes
        if not carrier.unread or node not in self.trail.idle:
            self.notes += carrier.meaning.notes
        self.carriers[node] = carrier
        self._set_width(node, carrier)

    def _in_place(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.modules.model.get_submodule(path_of(cast(str, node.target))), "inplace", False))
        return node.op in ("call_function", "call_method") and dispatch.in_place(node)

    def _used_again(self, node: fx.Node, source: fx.Node | None) -> bool:
        """Whether anything else uses the memory that a node writes into; views and left-out modules share theirs."""
        last = node
        while source is not None:
            if any(user is not last and user in self.wanted and not is_aside(user) for user in source.users):
                return True
            carrier = self.carriers[source]
            if carrier.meaning.layers or carrier.unread or carrier.before is None:
                return False
            before = carrier.before
            if dispatch.is_sum(source) and len(source.all_input_nodes) > 1:  # one whose branch adds nothing
                if not self._in_place(source):
                    return False
                before = source.all_input_nodes[0]
            last, source = source, before
        return False

    def _set_width(self, node: fx.Node, carrier: Carrier) -> None:
        """The width after a node; one with weights also says what the width before it was, back to the last one."""
        if carrier.meaning.widths is not None:
            given, carrier.width = carrier.meaning.widths
            for before in self.trail.back(carrier.before):
                one = self.carriers[before]
                if one.width is not None or one.unread:
                    return
                one.width = given
                if not _keeps_width(one):
                    return
        elif not carrier.unread and not carrier.draws and _keeps_width(carrier):
            terms = [self.carriers[n].width for n in self.trail.terms(node)]
            carrier.width = next((width for width in terms if width is not None), None)

    def _carrier(self, node: fx.Node, signals: list[fx.Node]) -> Carrier:
        first = signals[0]
        context = ReadContext(self.carriers[first].axes, self.trail.shape(first))
        if node.op == "call_module":
            path = path_of(cast(str, node.target))
            kind = type(self.modules.model.get_submodule(path)).__name__
            if path in self.traced.opaque:
                meaning = ReadResult(why=self.traced.opaque[path])
            else:
                meaning = self.modules.meaning(path, context.axes, context.shape)
                if len(signals) > 1 and not meaning.why:
                    meaning = ReadResult(why=dispatch.of_several(node))
            return Carrier(path, kind, meaning, first, context.axes, module=True)
        path, kind = owner(node), dispatch.function_name(node)
        carrier = Carrier(path, kind, ReadResult(), first, context.axes)
        both = [a for a in node.args if isinstance(a, fx.Node) and a in self.carriers]
        if dispatch.is_sum(node) and len(both) == 2:
            return sum_of(self.trail, node, path, both[0], both[1])
        if len(signals) > 1:
            carrier.meaning = ReadResult(why=dispatch.of_several(node))
        elif (found := dispatch.identity_call(Call(node.target, node.args, node.kwargs))) is not None:
            carrier.meaning = found  # whatever type or device it is brought to
        elif any(n not in self.carriers and n not in self.aside for n in node.all_input_nodes):
            carrier.meaning = ReadResult(why="a parameter or buffer meets the signal outside of a known module")
        elif node.target in (operator.getitem, getattr) and self.carriers[first].unread:
            carrier.axes, carrier.broken = None, True  # of an output that is unread already
        else:
            carrier.meaning = dispatch.function(node, context, self.trail.shape(node))
        return carrier

    # The whole

    def reading(self, *, whole: bool = True) -> GraphReading:
        """`whole`: the graph's end is the network's, where a softmax makes no difference."""
        trail = self.trail.back(self.end if self.end in self.carriers else None)[::-1]
        if whole:
            self._drop_end(trail)
        runs: list[list[Layer]] = [[]]
        for node in trail:
            carrier = self.carriers[node]
            if node in self.trail.idle:
                continue
            if carrier.unread:
                runs.append([])
            # What ends in a ReLU, perhaps pooled, is not negative.
            elif carrier.meaning.layers == _RELU and [x for x in runs[-1] if x.pools == 1][-1:] == list(_RELU):
                self.notes.append("a relu of what is not negative changes nothing, and is left out")
            else:
                runs[-1] += carrier.meaning.layers
        own = [s for n, s in self._listed() if s.meaning.why and n not in self.trail.idle]
        unread = [Unread(s.path, s.kind, s.meaning.why) for s in own]
        if self.output_problem or not trail:
            unread.append(Unread("", "output", self.output_problem or "the output does not depend on the input"))
        unread += self.lost
        return GraphReading([tuple(run) for run in runs], tuple(self._parts()), tuple(unread), self.notes)

    def _drop_end(self, trail: list[fx.Node]) -> None:
        """What follows the last weights and cannot change the guess: softmax, sigmoid, and a positive factor."""
        for node in reversed(trail):
            meaning = self.carriers[node].meaning
            layer, idle = meaning.layers[0] if len(meaning.layers) == 1 else None, ""
            if layer is not None:  # which keeps the order of logits, and the sign of one
                idle = "factor" if (layer.multiplier or 0.0) > 0 else "sigmoid" if text(layer) == "sigmoid" else ""
            if meaning.last or idle:
                self.trail.idle.add(node)
                same = f"a {idle} at the end does not change which class is guessed, and is left out"
                self.notes.append(meaning.last or same)
            elif meaning.layers or self.carriers[node].unread:
                return

    def _listed(self) -> Iterator[tuple[fx.Node, Carrier]]:
        return ((n, s) for n, s in self.carriers.items() if s.kind != "input")

    def _parts(self) -> Iterator[Part]:
        for node, carrier in self._listed():
            layers = carrier.meaning.layers if node not in self.trail.idle else ()
            if carrier.parts is not None:
                yield from carrier.parts
            elif not carrier.unread and (carrier.module or (layers and not layers[0].paths)):
                yield Part(carrier.path, carrier.kind, " > ".join(text(x) for x in layers), carrier.meaning.variances)


def _keeps_width(carrier: Carrier) -> bool:
    """Whether nodes or channels are as many after a node; not where it flattens, or pools nodes."""
    pools = any(layer.pools > 1 for layer in carrier.meaning.layers)
    return not (carrier.meaning.axes == FLAT and (pools or not carrier.meaning.layers))


def listed(model: nn.Module, order: Iterable[tuple[str, int | None]], modules: Modules) -> GraphReading:
    """Parts in the order given, where their connections could not be traced: no runs."""
    parts: list[Part] = []
    unread: list[Unread] = []
    notes: list[str] = []
    for path, axes in order:
        module = model.get_submodule(path)
        kind = type(module).__name__
        meaning = modules.meaning(path, axes)
        if meaning.why and path and not is_whole(module) and not any(True for _ in module.parameters()):
            meaning = _alone(module) or meaning  # an activation written as a module of its own
        notes += meaning.notes
        if meaning.why:
            unread.append(Unread(path, kind, meaning.why))
        else:
            parts.append(Part(path, kind, " > ".join(text(x) for x in meaning.layers), meaning.variances))
    return GraphReading([], tuple(parts), tuple(unread), notes)


def _alone(module: nn.Module) -> ReadResult | None:
    """The meaning of a small module by its own graph."""
    traced = trace(module, None)
    if traced.graph is None:
        return None
    found = GraphReader(traced, Modules(module, ParameterDraws({}, 0))).reading(whole=False)
    return None if len(found.runs) != 1 or found.unread else ReadResult(found.runs[0], notes=tuple(found.notes))
