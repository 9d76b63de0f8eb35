"""From a network and data to the engine that draws it, and what the result records of both."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from firstguess.base.errors import InvalidInput
from firstguess.data import Data, as_data, collect, load
from firstguess.data.streams import cut_note, limit
from firstguess.ensemble.members import Engine
from firstguess.modules.provenance import data_hash, versions
from firstguess.network.described import as_network
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

if TYPE_CHECKING:
    from firstguess.modules.sources import Source


def of_description(
    what: Network | str, data: object, points: int | None, classes: int | None, options: dict[str, Any]
) -> tuple[Engine, dict[str, Any], str]:
    """The engine of a description, what is recorded, and a note on how many points there were."""
    network = as_network(what, where="measure")  # a typing error is told before data are read
    data = load(data) if isinstance(data, str) else data
    given = as_data(data, points=points, most=limit(data, points))
    note = cut_note(data, points, given.n)
    if classes is None and isinstance(what, str) and given.classes is not None:
        classes = max(2, given.classes)
    if classes is not None and classes != network.classes:
        network = Network(network.layers, classes)
    with warnings.catch_warnings():
        # `Data` is read-only, which torch warns of because it cannot promise it; the engine only reads, and a copy of
        # the data would be in no memory budget.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ", category=UserWarning)
        engine = _make(_kind(network), network, given.x, options)
    origin = {"network": str(network), "width": options["width"], "data": recorded(given) | {"hash": given.hash}}
    return engine, versions() | origin, note


def _kind(network: Network) -> Any:
    """Networks of tokens run one by one, all others many at once."""
    if needs_tokens(network.layers):
        from firstguess.ensemble.token_engine import TokenEngine

        return TokenEngine
    from firstguess.ensemble.engine import DescriptionEngine

    return DescriptionEngine


def of_module(
    what: Callable[..., Any] | Source, data: object, points: int | None, batch_size: int | None, options: dict[str, Any]
) -> tuple[Engine, dict[str, Any], str]:
    """The engine of a module, what is recorded, and a note on how many points there were."""
    from firstguess.modules.engine import ModuleEngine
    from firstguess.modules.feeding import fed
    from firstguess.modules.sources import is_source

    data = load(data) if isinstance(data, str) else data
    batches = collect(data, limit(data, points), batch_size=batch_size)
    note = cut_note(data, points, sum(batch.size for batch in batches))
    forward = options.pop("forward", None)
    if not is_source(what):
        batches = fed(what, batches, forward)
    engine = _make(ModuleEngine, what, batches, options)
    given = what.given if is_source(what) else what
    name = getattr(given, "__qualname__", type(given).__qualname__)
    origin = {
        "model": f"{getattr(given, '__module__', type(given).__module__)}.{name}",
        "data": recorded(data) | {"hash": data_hash(batches)},
        "batch_sizes": sorted({batch.size for batch in batches}),
    }
    return engine, versions() | origin, note


def _make(kind: Any, what: object, data: object, options: dict[str, Any]) -> Engine:
    known = {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for name in options:
        if name not in known:
            ours = ("seed", "memory", "width", "reduce", "batch", "group", "chunk")
            allowed = ", ".join(f"{key}=" for key in known if key not in ours)
            raise InvalidInput(f"an option of measure for this kind of network: {allowed}", got=f"{name}=")
    return cast(Engine, kind(what, data, **options))


def recorded(data: object) -> dict[str, Any]:
    """What a result says of its data: the name; of `Data` with how they were prepared."""
    name = data.name if isinstance(data, Data) else getattr(data, "name", type(data).__qualname__)
    return {"name": name} | ({"prepared": data.prepared} if isinstance(data, Data) and name != "data" else {})
