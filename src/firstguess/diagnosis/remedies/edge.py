"""Set (σw², σb²) to the edge of chaos, where gradients keep their size (theory.md (10))."""

from __future__ import annotations

from collections.abc import Iterator

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.remedies.base import IMPORTS, Case, Variant
from firstguess.network.activations.record import Activation
from firstguess.network.layers import Activate, Conv, Dense, Layer
from firstguess.network.network import Network
from firstguess.theory.phases.fixed_points import edge_of_chaos

_CODE = """for m in model.modules():
    if isinstance(m, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        nn.init.normal_(m.weight, std=({weight_var:.6g} / m.weight[0].numel()) ** 0.5)
        if m.bias is not None:
            nn.init.normal_(m.bias, std={bias_var:.6g} ** 0.5)
"""
_CLOSE = 0.02  # relative distance from the edge that is not worth a change


def variants(case: Case) -> Iterator[Variant]:
    """A plain network (no norms, no skips, one activation) with its weights at the edge."""
    network = case.network
    plain = _plain(network) if network is not None else None
    if network is None or plain is None:
        return
    phi, weight_var, bias_var = plain
    try:
        target = edge_of_chaos(phi, bias_var=bias_var)
    except FirstguessError:
        return  # no edge, or none that can be found: nothing to offer
    if abs(target - weight_var) <= _CLOSE * target:
        return
    layers = tuple(layer.with_variances(target, bias_var) for layer in network.layers)
    shown = f"init=({target:.4g}, {bias_var:.3g})"
    # Where theory fails the model itself is drawn so; its gradients are still those of theory.
    drawn = None if case.trusted or case.model is None else case.source(case.model, (target, bias_var))
    yield Variant(
        f"weights at the edge of chaos (σw² {weight_var:.3g} → {target:.4g})",
        shown,
        network=Network(layers, network.classes),
        model=case.model if drawn is not None else None,
        source=drawn,
        aim="gradients",
        code="" if case.model is None else f"{IMPORTS}{_CODE.format(weight_var=target, bias_var=bias_var)}",
        price="none in gradients; guesses of a deep plain network are biased there",
        note="at the edge gradients keep their size through any depth, once the signal's own size has settled",
        otherwise="for gradients, not for even guesses: deep plain networks at the edge are biased, and keep gradients",
    )


def _plain(network: Network) -> tuple[Activation, float, float] | None:
    """(φ, σw², σb²) of a network of dense or conv layers and one activation; None for any other."""
    hidden: tuple[Layer, ...] = network.layers[:-1]
    if not all(isinstance(layer, (Dense, Conv, Activate)) for layer in hidden):
        return None
    activations = [layer.phi for layer in hidden if isinstance(layer, Activate)]
    weighted = [layer for layer in hidden if isinstance(layer, (Dense, Conv))]
    if not activations or not weighted or any(phi.name != activations[0].name for phi in activations):
        return None
    count = len(weighted)
    weight_var = sum(layer.weight_var for layer in weighted) / count
    bias_var = sum(layer.bias_var for layer in weighted[1:] or weighted) / max(count - 1, 1)
    if any(abs(layer.weight_var - weight_var) > 0.2 * weight_var for layer in weighted):
        return None
    return activations[0], weight_var, bias_var
