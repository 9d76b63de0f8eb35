"""From the graph of a forward to layers: one signal, residual sums closed into blocks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from torch import fx, nn

from firstguess.modules import calls
from firstguess.modules.claims import is_whole
from firstguess.modules.graph import Carrier, Trail, ancestors, is_aside, is_input, output, owner
from firstguess.modules.graph_sums import sum_of
from firstguess.modules.site import Modules
from firstguess.modules.structure import Part, Unread
from firstguess.modules.tracing import Traced, path_of, trace
from firstguess.modules.variances import Draws
from firstguess.network.activations.lookup import activation
from firstguess.network.layer import Layer, Meaning, text
from firstguess.network.layers import Activate
from firstguess.network.meaning import FLAT, Site

_RELU = (Activate(activation("relu")),)


@dataclass
class GraphReading:
    """What was read of a graph, in the order of its calls; `runs`: the stretches of layers that could be."""

    runs: list[tuple[Layer, ...]]  # one, if everything was read
    parts: tuple[Part, ...]
    unread: tuple[Unread, ...]
    notes: list[str] = field(default_factory=list[str])


def read_graph(traced: Traced, modules: Modules, *, whole: bool = True) -> GraphReading:
    """`whole`: the graph's end is the network's, where a softmax makes no difference."""
    return _Reader(traced, modules).reading(whole)


class _Reader:
    def __init__(self, traced: Traced, modules: Modules) -> None:
        assert traced.graph is not None
        self.traced, self.modules = traced, modules
        self.trail = Trail(traced)
        self.carriers = self.trail.carriers
        self.aside: set[fx.Node] = set()  # shapes, devices: not signals
        self.notes: list[str] = []
        self.end, self.output_problem = output(traced.graph)
        wanted = ancestors(self.end) if self.end is not None else set[fx.Node]()
        self.wanted = wanted
        self.lost: list[Unread] = []  # changes in place whose result nobody names: the graph does not connect them
        for node in traced.graph.nodes:
            if node in wanted:
                self._visit(node)
            elif self._in_place(node) and any(n in wanted for n in node.all_input_nodes):
                why = "changes the signal in place without using its result; write x = ..."
                self.lost.append(Unread(owner(node), calls.function_name(node), why))

    # One node at a time

    def _visit(self, node: fx.Node) -> None:
        if node.op == "placeholder" or is_input(node):
            shape = self.trail.shape(node)
            self.carriers[node] = Carrier("", "input", Meaning(), None, None if shape is None else len(shape))
            return
        signals = [n for n in node.all_input_nodes if n in self.carriers]
        if not signals or is_aside(node):
            # What is left has parameters or buffers in it, and is refused where it meets the signal.
            if node.op != "get_attr" and all(n in self.aside or n in signals for n in node.all_input_nodes):
                self.aside.add(node)
            return
        carrier = self._carrier(node, signals)
        if self._in_place(node) and not carrier.unread and self._used_again(node, signals[0]):
            carrier.meaning = Meaning(why="works in place on a signal that is used again, which so is changed as well")
        shape = self.trail.shape(node)
        carrier.axes = len(shape) if shape is not None else carrier.meaning.axes or carrier.axes
        if not carrier.unread or node not in self.trail.idle:
            self.notes += carrier.meaning.notes
        self.carriers[node] = carrier
        self._set_width(node, carrier)

    def _in_place(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return bool(getattr(self.modules.model.get_submodule(path_of(cast(str, node.target))), "inplace", False))
        return node.op in ("call_function", "call_method") and calls.in_place(node)

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
            if calls.is_sum(source) and len(source.all_input_nodes) > 1:  # one whose branch adds nothing
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
        site = Site(self.carriers[first].axes, self.trail.shape(first))
        if node.op == "call_module":
            path = path_of(cast(str, node.target))
            kind = type(self.modules.model.get_submodule(path)).__name__
            if path in self.traced.opaque:
                meaning = Meaning(why=self.traced.opaque[path])
            else:
                meaning = self.modules.meaning(path, site.axes, site.shape)
                if len(signals) > 1 and not meaning.why:
                    meaning = Meaning(why=calls.of_several(node))
            return Carrier(path, kind, meaning, first, site.axes, module=True)
        path, kind = owner(node), calls.function_name(node)
        both = [a for a in node.args if isinstance(a, fx.Node) and a in self.carriers]
        if calls.is_sum(node) and len(both) == 2:
            return sum_of(self.trail, node, path, both[0], both[1])
        if len(signals) > 1:
            return Carrier(path, kind, Meaning(why=calls.of_several(node)), first, site.axes)
        if any(n not in self.carriers and n not in self.aside for n in node.all_input_nodes):
            why = "a parameter or buffer meets the signal outside of a known module"
            return Carrier(path, kind, Meaning(why=why), first, site.axes)
        if node.target in (operator.getitem, getattr) and self.carriers[first].unread:
            return Carrier(path, kind, Meaning(), first, None, broken=True)  # of an output that is unread already
        return Carrier(path, kind, calls.function(node, site, self.trail.shape(node)), first, site.axes)

    # The whole

    def reading(self, whole: bool) -> GraphReading:
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
            elif carrier.meaning.layers == _RELU and _not_negative(runs[-1]):
                self.notes.append("a relu of what is not negative changes nothing, and is left out")
            else:
                runs[-1] += carrier.meaning.layers
        unread = [
            Unread(s.path, s.kind, s.meaning.why)
            for n, s in self._listed()
            if s.meaning.why and n not in self.trail.idle
        ]
        if self.output_problem or not trail:
            unread.append(Unread("", "output", self.output_problem or "the output does not depend on the input"))
        unread += self.lost
        return GraphReading([tuple(run) for run in runs], tuple(self._parts()), tuple(unread), self.notes)

    def _drop_end(self, trail: list[fx.Node]) -> None:
        """What follows the last weights and cannot change the guess: softmax, sigmoid, and a positive factor."""
        for node in reversed(trail):
            meaning = self.carriers[node].meaning
            idle = _is_idle(meaning.layers[0]) if len(meaning.layers) == 1 else ""
            if meaning.last or idle:
                self.trail.idle.add(node)
                self.notes.append(
                    meaning.last or f"a {idle} at the end does not change which class is guessed, and is left out"
                )
            elif meaning.layers or self.carriers[node].unread:
                return

    def _listed(self) -> Iterator[tuple[fx.Node, Carrier]]:
        return ((n, s) for n, s in self.carriers.items() if s.kind != "input")

    def _parts(self) -> Iterator[Part]:
        for node, carrier in self._listed():
            layers = carrier.meaning.layers if node not in self.trail.idle else ()
            if not carrier.unread and (carrier.module or (layers and not layers[0].paths)):
                yield Part(carrier.path, carrier.kind, " > ".join(text(x) for x in layers), carrier.meaning.variances)


def _not_negative(layers: Sequence[Layer]) -> bool:
    """Whether a signal ends in a relu, perhaps pooled."""
    last = next((layer for layer in reversed(layers) if layer.pools == 1), None)
    return (last,) == _RELU


def _keeps_width(carrier: Carrier) -> bool:
    """Whether nodes or channels are as many after a node; not where it flattens, or pools nodes."""
    pools = any(layer.pools > 1 for layer in carrier.meaning.layers)
    return not (carrier.meaning.axes == FLAT and (pools or not carrier.meaning.layers))


def _is_idle(layer: Layer) -> str:
    """What a layer is that keeps the order of logits, and the sign of one; empty for others."""
    if layer.multiplier is not None and layer.multiplier > 0:
        return "factor"
    return "sigmoid" if text(layer) == "sigmoid" else ""


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


def _alone(module: nn.Module) -> Meaning | None:
    """The meaning of a small module by its own graph."""
    traced = trace(module, None)
    if traced.graph is None:
        return None
    found = read_graph(traced, Modules(module, Draws({}, 0)), whole=False)
    return None if len(found.runs) != 1 or found.unread else Meaning(found.runs[0], notes=tuple(found.notes))
