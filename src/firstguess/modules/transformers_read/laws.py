"""Laws of a model's parameters: which variance a description has for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from firstguess.modules.initializers import Init
from firstguess.modules.transformers_read.pieces import Matrix, Stop
from firstguess.modules.variances import Draws, Estimate, estimate, favourites
from firstguess.modules.weight_statistics import Numbers
from firstguess.network.meaning import Variances

_SIGMAS = 5.0  # in which two sizes may differ and be the same


def stop(model: nn.Module, path: str, why: str) -> Stop:
    """What cannot be read, by its path."""
    return Stop(path, type(model.get_submodule(path)).__name__, why)


@dataclass(frozen=True)
class Law:
    """σw² and σb² of a dense layer, as chosen; `variances` are what was measured."""

    weight_var: float
    bias_var: float
    variances: Variances


class Laws:
    """What the parameters of one model are drawn from."""

    def __init__(self, model: nn.Module, draws: Draws, init: Init = None) -> None:
        self.model, self.draws, self.init = model, draws, init
        self._known: dict[str, Estimate] = {}
        self._sizes: dict[str, float] = {}  # E w² of laws that follow no rule
        self._measure_sizes()

    def numbers(self, name: str, path: str) -> Numbers:
        """Of a parameter over draws."""
        found = self.draws.numbers.get(name)
        if found is None or not found.count:
            raise stop(self.model, path, f"its {name.rpartition('.')[2]} could not be drawn")
        return self._once(name, found)

    def _once(self, name: str, found: Numbers) -> Numbers:
        """Numbers of one draw where all draws have the same values: a parameter that no initializer draws."""
        value = self.model.get_parameter(name).detach()
        if found.constant is not None or found.count <= value.numel() or float(value.max()) != found.high:
            return found
        own = Numbers()
        own.add(value, gains=False)
        same = own.low == found.low and math.isclose(own.mean_square, found.mean_square, rel_tol=1e-9)
        return own if same else found

    def dense(self, matrix: Matrix) -> Law:
        """A dense layer's variances, by the rule that they fit."""
        weight = self.numbers(matrix.weight.name, matrix.path)
        bias = None if matrix.bias is None else self.numbers(matrix.bias.name, matrix.path)
        shape = self.model.get_parameter(matrix.weight.name).shape
        shape = torch.Size([shape[1], shape[0]]) if matrix.weight.transposed else shape
        if weight.constant is not None:
            raise stop(self.model, matrix.path, f"its weights all start with {weight.constant:g}")
        if weight.off_centre or (bias is not None and bias.constant is None and bias.off_centre):
            raise stop(
                self.model,
                matrix.path,
                "its weights or biases have a mean other than 0, which the theory does not cover",
            )
        if bias is not None and bias.constant not in (None, 0.0):
            raise stop(
                self.model, matrix.path, f"its biases start with {bias.constant:g}: a description has 0 or random ones"
            )
        found = self._known.setdefault(matrix.weight.name, estimate(weight, bias, shape, self.init))
        rule, value = found.choose(favourites(self._known.values()))
        if rule == "measured":
            value = found.fan_in * self._sizes[matrix.weight.name]
        random = bias is not None and bias.constant is None
        bias_var = found.bias_var()
        square, error = (bias.mean_square, bias.standard_error) if random and bias is not None else (0.0, 0.0)
        measured = Variances(found.measured, found.standard_error, square, error, rule, self.draws.count)
        return Law(_rounded(value), bias_var, measured)

    def _measure_sizes(self) -> None:
        """E w²: a rounder number that fits, else one for all parameters of the model that cannot be told apart.

        The best known ones come first, so that others may join them.
        """
        found: list[tuple[float, float]] = []  # E w², its standard error
        scales = [1.0, 2.0 * self._depth(), float(self._depth())]  # of GPT-2's last weights of a branch
        likely = [digit * 10.0**-k / scale**0.5 for scale in scales for k in range(4) for digit in (1.0, 2.0, 5.0)]
        random = {n: x for n, x in self.draws.numbers.items() if x.count and x.constant is None}
        for name in sorted(random, key=lambda n: -random[n].count):
            numbers = self._once(name, random[name])
            if numbers is not random[name]:
                self._sizes[name] = numbers.mean_square
                continue
            own = numbers.mean_square / (1.0 - self._empty(name))
            error = own * math.sqrt(max(numbers.kurtosis - 1.0, 0.1) / numbers.count)
            rounder = (
                [std * std for std in likely if abs(std * std - own) <= _SIGMAS * error] if error < 0.02 * own else []
            )
            same = [value for value, se in found if abs(value - own) <= _SIGMAS * math.hypot(error, se)]
            self._sizes[name] = (rounder or same or [own])[0]
            if not rounder and not same:
                found.append((own, error))

    def _depth(self) -> int:
        """How many blocks there are: the longest list of modules."""
        lists = [len(m) for m in self.model.modules() if isinstance(m, (nn.ModuleList, nn.Sequential))]
        return max([1, *lists])

    def _empty(self, name: str) -> float:
        """The part of an embedding's rows that are 0: that of padding."""
        table: Any = self.model.get_submodule(name.rpartition(".")[0])
        if not isinstance(table, nn.Embedding) or table.padding_idx is None or table.num_embeddings < 2:
            return 0.0
        return 0.0 if bool(table.weight[table.padding_idx].any()) else 1.0 / table.num_embeddings

    def std(self, name: str, path: str) -> float:
        """The standard deviation of an embedding's entries; a row of padding, which is 0, does not count."""
        numbers = self.numbers(name, path)
        if numbers.constant is not None:
            if numbers.constant != 0.0:
                raise stop(self.model, path, f"{name} starts with {numbers.constant:g} everywhere")
            return 0.0
        if numbers.off_centre:
            raise stop(self.model, path, f"{name} has a mean other than 0, which the theory does not cover")
        return _rounded(math.sqrt(self._sizes[name]))


def _rounded(value: float) -> float:
    """√(0.02²) as 0.02."""
    near = float(f"{value:.12g}")
    return near if math.isclose(near, value, rel_tol=1e-14) else value
