"""Predictions at a network's own widths: theory.md §12, where it covers them; else at infinite width, and why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.network.grid import UNKNOWN
from firstguess.network.network import Network
from firstguess.network.walk import changed, needs_images, needs_tokens, shapes

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess.theory.prediction import Prediction


@dataclass(frozen=True)
class OwnSize:
    """What finite width has to know beyond a description.

    `width`: of layers that name none (None: there are none of them). `law`: what all weights are drawn from, where that
    was read of a model ("": it could not be told); None: as the description says.
    """

    width: int | None = None
    law: str | None = None

    def drawn(self, network: Network) -> Network:
        """The network with weights of that law."""
        if self.law is None:
            return network
        if not self.law:
            raise NotCovered(
                "weights of one known law, at finite width",
                got="normal, uniform and orthogonal are not what all of them look like",
                hint="fg.measure(model, x)",
            )
        law = self.law
        return replace(network, layers=changed(network.layers, lambda layer: (layer.with_law(law),)))

    def widths(self, network: Network) -> tuple[int, ...]:
        """The widths of the hidden layers, the narrowest first; nothing where none is known."""
        after = shapes(network.layers, UNKNOWN, self.width)[1:]
        hidden = [shape.width for layer, shape in zip(network.layers[:-1], after, strict=False) if layer.weighted]
        return tuple(sorted({width for width in hidden if width is not None}))

    def words(self, network: Network) -> str:
        """ "width 100", "widths 64 to 512"."""
        found = self.widths(network)
        if not found:
            return "its own widths"
        return f"width {found[0]}" if len(found) == 1 else f"widths {found[0]} to {found[-1]}"


def at_own_size(
    network: Network, data: Data, size: OwnSize, *, draws: int, seed: int, seconds: float
) -> tuple[Prediction | None, str]:
    """The prediction on these data at the network's own widths; or None, and why not ("": width means nothing)."""
    from firstguess.theory.readings import predict

    widths = size.widths(network)
    if needs_tokens(network.layers) or needs_images(network.layers):
        kind = "networks of tokens" if needs_tokens(network.layers) else "convolutions"
        return None, f"finite width is not covered for {kind}"
    if not widths:
        return None, ""
    try:
        found = predict(
            size.drawn(network), data=data, width=size.width or widths[0], draws=draws, seed=seed, seconds=seconds
        )
    except FirstguessError as error:
        return None, str(error)
    return found, ""
