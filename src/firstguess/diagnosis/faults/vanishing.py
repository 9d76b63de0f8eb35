"""Weights, or logits, of next to no size."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_NOTHING = 1e-12  # RMS of the logits without what classes share: 40 layers that lose a factor of two each

_HARDLY = 0.01  # of the logits' size that depends on the input
_ONE, _HEAD = 5e-3, 1e-4  # RMS·√fan_in of one layer; of a head, which some make tiny on purpose (timm: 3e-4 and more)


def find(seen: Seen) -> Fault | None:
    """Weights a hundred times below any initializer's; or logits whose differences a float32 sum would lose."""
    x = seen.examination
    small = 0 < x.size < _NOTHING and not x.now.level
    # Residual branches are made tiny on purpose: then neither the head is, nor most layers, and inputs matter.
    one = {name: size for name, size in x.tiny.items() if size < _ONE}
    meant = seen.doctor is not None and seen.doctor.patient.loss is not None
    head = x.tiny.get(x.now.head, 1.0) < _HEAD and not meant  # a tiny head learns, as a zero one does
    most = len(x.tiny) > x.weighted / 2
    tiny = x.tiny if most else one if head or small or x.varies < _HARDLY else {}
    if not tiny and not small:
        return None
    first = next(iter(tiny), x.now.head)
    parts: list[str] = []
    if tiny:
        more = f" ({len(tiny)} such layers)" if len(tiny) > 1 else ""
        parts.append(f"the weights of {first} have RMS·√fan_in = {tiny[first]:.1g}, initializers give 0.1 to 2{more}")
    parts.append(f"logits differ by {x.size:.1g} (RMS)")
    return seen.fault(
        "vanishing logits",
        "weights, or logits, have next to no size",
        f"weights at the size that their initializer gives, e.g. nn.init.kaiming_normal_({seen.code(first)}.weight)",
        first,
        "; ".join(parts),
        logits=x.size,
        weights=tiny,
    )
