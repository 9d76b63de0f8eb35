"""What a loss says of made-up outputs, and what a head can give: no name of a loss or layer is looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Form: TypeAlias = Callable[[Tensor], Tensor]

_SAME = 1e-4  # relative, of sums in float32
IGNORED = -100


@dataclass(frozen=True)
class End:
    """The last operation of a model, and how it makes outputs of free numbers."""

    name: str  # "softmax", "log-softmax", "sigmoid", "tanh", "ReLU", "clamp", or "" for numbers of any size
    axis: int = -1
    low: float = -math.inf
    high: float = math.inf

    def form(self, z: Tensor) -> Tensor:
        if self.name == "softmax":
            return z.softmax(self.axis)
        if self.name == "log-softmax":
            return z.log_softmax(self.axis)
        if self.name in ("sigmoid", "tanh"):
            return z.sigmoid() if self.name == "sigmoid" else z.tanh()
        return F.softplus(z) if self.name == "ReLU" else z.clamp(self.low, self.high) if self.name else z

    @property
    def bounded(self) -> bool:
        return self.name in ("softmax", "sigmoid")


# What leaves the numbers as they are, by the names of autograd's nodes.
_VIEWS = ("View", "Squeeze", "Transpose", "Permute", "Reshape", "Alias", "Clone", "ToCopy", "Expand", "Select", "Slice")
_MORE_VIEWS = ("TBackward", "Index", "Split", "Unbind", "Contiguous", "AsStrided")


def end_of(out: Tensor) -> End:
    """Past views, the last operation of the graph; where it has none, what the numbers show."""
    found = _end_at(out.grad_fn, out)
    if found.name:
        return found
    rows = out.detach()
    for axis in range(1, rows.ndim):
        if rows.shape[axis] > 1 and bool((rows >= 0).all()) and not bool(((rows == 0) | (rows == 1)).all()):
            sums = rows.sum(axis)
            if torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
                return End("softmax", axis)
    return found


def _end_at(start: Any, out: Tensor) -> End:
    node, axis_ok = start, True
    while node is not None and any(word in type(node).__name__ for word in _VIEWS + _MORE_VIEWS):
        axis_ok = axis_ok and "Transpose" not in type(node).__name__ and "Permute" not in type(node).__name__
        node = node.next_functions[0][0] if node.next_functions else None
    if node is None:
        return End("")
    kind = type(node).__name__
    if "Log" in kind and "LogSoftmax" not in kind and node.next_functions:
        inner = type(node.next_functions[0][0]).__name__
        kind = "LogSoftmax" if "Softmax" in inner else kind
        node = node.next_functions[0][0] if "Softmax" in inner else node
    if "Softmax" in kind:
        axis = getattr(node, "_saved_dim", -1)
        axis = axis - (1 << 64) if axis >= 1 << 63 else axis
        if not axis_ok or not -out.ndim <= axis < out.ndim:
            axis = -1
        return End("log-softmax" if "LogSoftmax" in kind else "softmax", axis)
    for word, name, low, high in (
        ("Sigmoid", "sigmoid", 0.0, 1.0),
        ("Tanh", "tanh", -1.0, 1.0),
        ("Relu", "ReLU", 0.0, math.inf),
    ):
        if kind.startswith(word):
            return End(name, -1, low, high)
    if kind.startswith(("Threshold", "Clamp", "Hardtanh")):
        low = _saved(node, "_saved_min", "_saved_min_val", "_saved_threshold", otherwise=-math.inf)
        high = _saved(node, "_saved_max", "_saved_max_val", otherwise=math.inf)
        inner = _end_at(node.next_functions[0][0], out) if node.next_functions else End("")
        if inner.bounded:  # a probability, kept off 0 and 1
            return inner
        return End("ReLU" if low == 0 and high == math.inf else "clamp", -1, low, high)
    return End("")


def _saved(node: Any, *names: str, otherwise: float) -> float:
    for name in names:
        value = getattr(node, name, None)
        if isinstance(value, (int, float)):
            return float(value)
    return otherwise


class Answers:
    """What a loss answers that outputs of `shape` are given to, with labels `y`."""

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor], like: Tensor, y: Tensor, seed: int = 0) -> None:
        self._loss, self.y, self.shape, self._like = loss, y, tuple(like.shape), like.detach()
        self._stream = torch.Generator().manual_seed(seed)
        self.normal, self.other = self._made(torch.randn), self._made(torch.randn)
        self.inside = 0.1 + 0.8 * self._made(torch.rand)

    def _made(self, draw: Any) -> Tensor:
        return draw(self.shape, generator=self._stream).to(self._like)

    def value(self, out: Tensor, y: Tensor | None = None) -> float:
        """NaN where the loss fails."""
        try:
            with torch.no_grad():
                return float(self._loss(out, self.y if y is None else y))
        except Exception:  # of a user's loss
            return math.nan

    def gradient(self, out: Tensor, y: Tensor | None = None) -> Tensor | None:
        """None where the loss fails, or is not finite; 0 where it has no graph."""
        r = out.detach().clone().requires_grad_()
        try:
            with torch.enable_grad():
                value = self._loss(r, self.y if y is None else y)
                if not bool(torch.isfinite(value)):
                    return None
                if value.grad_fn is None:
                    return torch.zeros_like(r)
                g: Any = torch.autograd.grad(value, r, allow_unused=True)[0]
        except Exception:  # of a user's loss
            return None
        return torch.zeros_like(r) if g is None else g if bool(torch.isfinite(g).all()) else None

    # -- What it depends on --------------------------------------------------------------------------------------------

    @cached_property
    def fails(self) -> bool:
        """Whether it gives no number for any outputs."""
        return all(math.isnan(self.value(r)) for r in (self.normal, self.inside, self._like))

    @cached_property
    def depends(self) -> bool:
        """Whether outputs change it, along a gradient."""
        gradients = [self.gradient(r) for r in (self.normal, self.inside, self._shares, self._like)]
        return any(g is not None and bool(g.any()) for g in gradients) or all(g is None for g in gradients)

    @cached_property
    def _shares(self) -> Tensor:
        return self.normal.softmax(self.axis) if self.width > 1 else self.inside

    @cached_property
    def axis(self) -> int:
        """The axis of the classes."""
        if len(self.shape) < 2:
            return 0
        if (found := self.softmax_axis) is not None:
            return found
        if len(self.shape) == 2 or self.shape[1] == 1 or self.y.shape[1:] == self.shape[2:]:
            return 1
        last = len(self.shape) - 1
        if tuple(self.y.shape) != self.shape:
            return last
        hot = [k for k in (1, last) if bool((self.y.sum(k) == 1).all())]  # images have classes on axis 1, texts last
        return hot[0] if hot else 1 if last > 2 else last

    @property
    def width(self) -> int:
        """Outputs of a point."""
        return self.shape[self.axis] if len(self.shape) > 1 else 1

    @cached_property
    def _point(self) -> Tensor:
        """Outputs that the loss takes."""
        return self.normal if self.gradient(self.normal) is not None else self._shares

    @cached_property
    def unpaired(self) -> bool:
        """Whether it is the same for outputs that are dealt to other points: labels that differ are needed to tell."""
        rows = self.y.reshape(len(self.y), -1)
        if len(rows) < 4 or bool((rows == rows[0]).all()) or not self.depends:
            return False
        orders = [torch.randperm(len(rows), generator=self._stream) for _ in range(3)]
        return all(self._same_with(self._point[order], order) for order in orders)

    @cached_property
    def broadcast(self) -> bool:
        """Whether it is the same for outputs that are dealt to other classes, with labels of another shape."""
        if self.width < 2 or tuple(self.y.shape) == self.shape or not self.depends:
            return False
        r = self._point
        g = self.gradient(r)
        for shift in range(1, min(self.width, 4)):
            moved = self.gradient(r.roll(shift, self.axis))
            if g is None or moved is None or not _near(moved, g.roll(shift, self.axis)):
                return False
        return True

    @cached_property
    def misplaced(self) -> float:
        """The share of some labels, changed one by one, that move the gradients of other points' outputs most, and
        their own hardly; NaN where labels are no classes of one position each."""
        axes = [k for k in range(1, len(self.shape)) if self.shape[:k] + self.shape[k + 1 :] == tuple(self.y.shape)]
        known, before = self.classes, self.gradient(self._point)
        if axes and self.softmax_axis not in (None, *axes):
            return 1.0  # its softmax mixes positions
        if known is None or before is None or self.axis not in axes or self.width < 2:
            return math.nan
        there = known[0].unique()
        wrong = tried = 0
        for k in torch.randperm(self.y.numel(), generator=self._stream)[:8].tolist():
            y = self.y.clone().reshape(-1)
            if int(y[k]) == IGNORED or len(there) < 2:
                continue
            y[k] = there[there != y[k]][0]
            after = self.gradient(self._point, y.reshape(self.y.shape))
            if after is None or not bool((moved := (after - before).norm(dim=self.axis).reshape(-1)).any()):
                continue
            tried += 1
            wrong += float(moved[k]) < 0.1 * float(moved.max())
        return wrong / tried if tried > 3 else math.nan

    def _same_with(self, moved: Tensor, order: Tensor) -> bool:
        """Whether it is the same by the gradient, which sees what large targets hide in the value."""
        g, other = self.gradient(self._point), self.gradient(moved)
        return g is not None and other is not None and _near(other, g[order])

    # -- What it takes outputs for -------------------------------------------------------------------------------------

    @cached_property
    def softmax_axis(self) -> int | None:
        """The axis that the loss has a softmax over: shifts along it change nothing, and it is no sum of kinks."""
        g = self.gradient(self.normal)
        if g is None or not bool(g.any()):
            return None
        for axis in range(1, len(self.shape)):
            if self.shape[axis] > 1 and float(g.sum(axis).abs().max()) <= _SAME * float(g.abs().sum(axis).max()):
                near = self.gradient(self.normal + 0.05 * self.other)
                if near is None:
                    return None
                unmoved = ((near - g).abs() <= 1e-6 * g.abs().max()).double().mean()
                return axis if float(unmoved) < 0.5 else None
        return None

    @cached_property
    def normalizes(self) -> bool:
        """Whether it divides outputs by their sum: a factor changes nothing."""
        g = self.gradient(self.inside)
        if g is None or self.width < 2 or self.softmax_axis is not None or not bool(g.any()):
            return False
        both = g * self.inside
        return float(both.sum(self.axis).abs().max()) <= 1e-3 * float(both.abs().sum(self.axis).max())

    @cached_property
    def linear(self) -> bool:
        """Whether its gradient is one, wherever outputs are: it wants log-probabilities."""
        g = self.gradient(self.normal)
        others = [self.gradient(r) for r in (3 * self.other, self.inside)]
        return g is not None and bool(g.any()) and all(o is not None and _near(o, g) for o in others)

    @cached_property
    def minus_probability(self) -> bool:
        """Whether it is minus the probability that a softmax gives the label: a loss of logarithms, without one."""
        if self.classes is None or self.width < 2 or self.classes[0].numel() * self.width != self.normal.numel():
            return False
        shares = self.normal.movedim(self.axis, -1).softmax(-1).reshape(-1, self.width)
        mine = -float(shares.gather(1, self.classes[0][:, None]).mean())
        return abs(self.value(self.normal) - mine) < 1e-5

    @cached_property
    def only_label(self) -> bool:
        """Whether the gradient of each point is that of one output."""
        g = self.gradient(self.inside)
        return g is not None and self.width > 1 and bool(((g != 0).sum(self.axis) <= 1).all()) and bool(g.any())

    @cached_property
    def wants_probabilities(self) -> str:
        """What happens outside 0 to 1, where it fails or has no gradient though it is large; else empty."""
        inner = self.gradient(self.inside)
        if inner is None or not bool(inner.any()):
            return ""
        outer = 2 * self.normal
        g, value = self.gradient(outer), self.value(outer)
        if g is None:
            return "it fails" if math.isnan(value) else "it is not finite"
        flat = g.reshape(len(g), -1)
        still = (flat == 0).all(1) & (inner.reshape(len(g), -1) != 0).any(1)
        if int(still.sum()) < max(2, 0.05 * len(g)):
            return ""
        moved = torch.where(still.reshape(-1, *(1,) * (outer.ndim - 1)), self.inside, outer)
        if not self.value(moved) < value - 0.02 * abs(value):
            return ""  # satisfied points, as a hinge has them
        return f"it has no gradient at {float(still.double().mean()):.0%} of the points, at a loss of {value:.3g}"

    # -- What it is lowest for -----------------------------------------------------------------------------------------

    def lowest(self, form: Form, size: tuple[int, ...], starts: tuple[Tensor, ...] = ()) -> tuple[float, Tensor]:
        """The least loss of outputs form(z), z of `size`, and these outputs; NaN where none is finite."""
        best, at = math.nan, self._like
        for start in (0.1 * torch.randn(size, generator=self._stream).to(self._like), *starts):
            z = start.detach().clone().requires_grad_()
            search = torch.optim.LBFGS([z], max_iter=60, line_search_fn="strong_wolfe")

            def closure(z: Tensor = z, search: Any = search) -> Tensor:
                search.zero_grad()
                value = self._loss(form(z).expand(self.shape), self.y)
                value.backward()
                return value

            try:
                with torch.enable_grad():
                    search.step(closure)  # pyright: ignore[reportArgumentType]
            except Exception:  # of a user's loss
                continue
            with torch.no_grad():
                value = self.value(form(z).expand(self.shape))
                if math.isfinite(value) and not value >= best:
                    best, at = value, form(z).detach()
        return best, at

    @cached_property
    def _forms(self) -> list[Form]:
        """How free numbers become outputs that this loss can take."""
        shares: list[Form] = [partial(torch.softmax, dim=self.axis)] if self.width > 1 else []
        if self.linear:
            return [partial(torch.log_softmax, dim=self.axis)] if self.width > 1 else []
        if self.wants_probabilities:
            return [*shares, torch.sigmoid]
        return [lambda z: z]

    @cached_property
    def free(self) -> float:
        """The least loss of any outputs that it can take."""
        starts = (self.y.to(self._like),) if tuple(self.y.shape) == self.shape and not self.wants_probabilities else ()
        found = [self.lowest(form, self.shape, starts)[0] for form in self._forms]
        return min((v for v in found if not math.isnan(v)), default=math.nan)

    @cached_property
    def constant(self) -> tuple[float, Tensor]:
        """The least loss of one guess for all points, and this guess."""
        size = tuple(s if k == self.axis and len(self.shape) > 1 else 1 for k, s in enumerate(self.shape))
        found = [self.lowest(form, size) for form in self._forms]
        return min((f for f in found if not math.isnan(f[0])), key=lambda f: f[0], default=(math.nan, self._like))

    def reached(self, end: End) -> float:
        """The least loss of outputs that a head with this end can give."""
        return self.lowest(end.form, self.shape)[0]

    # -- Labels --------------------------------------------------------------------------------------------------------

    @cached_property
    def classes(self) -> tuple[Tensor, int] | None:
        """The class of every point, and how many classes there are; None for numbers and several labels per point."""
        y, whole = self.y, bool((self.y == self.y.round()).all()) if self.y.is_floating_point() else True
        if not whole or not y.numel():
            return None
        if tuple(y.shape) == self.shape and self.width > 1:
            hot = bool(((y == 0) | (y == 1)).all()) and bool((y.sum(self.axis) == 1).all())
            return (y.argmax(self.axis).reshape(-1), self.width) if hot else None
        flat = y.reshape(-1).long()
        flat = flat[flat != IGNORED]
        if not len(flat) or int(flat.min()) < 0:
            return None
        if self.width > 1:
            return (flat, self.width) if int(flat.max()) < self.width else None
        return (flat, 2) if int(flat.max()) <= 1 else (flat, int(flat.max()) + 1)

    @cached_property
    def preferred(self) -> Tensor | None:
        """Probabilities of the classes that the best constant guess gives, where the loss is one of classes."""
        if self.classes is None:
            return None
        value, guess = self.constant
        if math.isnan(value):
            return None
        guess = guess.reshape(-1).double()
        if self.width == 1:
            p = guess[0] if self.wants_probabilities else torch.sigmoid(guess[0]) if not self.numeric else None
            return None if p is None else torch.stack((1 - p, p))
        if self.softmax_axis is not None or self.linear:
            return guess.softmax(0)
        return guess / guess.sum() if self.wants_probabilities else None

    @cached_property
    def counts(self) -> Tensor | None:
        """How much a point of each class counts: the mean size of its gradient where all outputs are 0 or one half."""
        g = self.gradient(torch.full_like(self.normal, 0.5 if self.wants_probabilities else 0.0))
        if g is None or self.classes is None:
            return None
        y, classes = self.classes
        sizes = (g.norm(dim=self.axis) if self.width > 1 else g.abs()).reshape(-1).double()
        if len(sizes) != len(y):
            return None
        return torch.zeros(classes).double().index_add(0, y, sizes) / torch.bincount(y, minlength=classes).clamp_min(1)

    @cached_property
    def ignored(self) -> list[int]:
        """Classes with points whose outputs the loss never moves."""
        if self.classes is None:
            return []
        y, classes = self.classes
        moved = torch.zeros(len(y), dtype=torch.bool, device=y.device)
        for r in (self.normal, -self.normal, self.other, 3 * self.other, self.inside, self._shares):
            g = self.gradient(r)
            rows = None if g is None else (g.abs().sum(self.axis) if len(self.shape) > 1 else g.abs()).reshape(-1)
            if rows is not None and len(rows) == len(y):
                moved |= rows > 0
        there = torch.bincount(y, minlength=classes) > 0.02 * len(y)
        return [c for c in range(classes) if there[c] and not bool(moved[y == c].any()) and bool(moved.any())]

    @cached_property
    def numeric(self) -> bool:
        """Whether going beyond the target costs: a loss for numbers, not for classes."""
        if tuple(self.y.shape) == self.shape:
            y = self.y.to(self._like)
        elif self.classes is not None and self.width > 1:
            return False
        elif self.y.numel() == self._like.numel():
            y = self.y.to(self._like).reshape(self.shape)
        else:
            return False
        right, beyond = self.value(y), self.value(y + 10.0 * torch.where(y > 0, 1.0, -1.0) * (1 + y.abs()))
        return math.isfinite(right) and beyond > right + 1.0

    @cached_property
    def kinked(self) -> bool:
        """Whether its slope does not depend on how far an output is off, as that of a mean absolute error."""
        g, near = self.gradient(5 * self.normal), self.gradient(5 * self.normal * 1.1)
        return g is not None and near is not None and _near(g.abs(), near.abs()) and not self.linear


def _near(x: Tensor, other: Tensor, tolerance: float = _SAME) -> bool:
    return float((x - other).abs().max()) <= tolerance * max(float(x.abs().max()), float(other.abs().max()), 1e-30)
