"""A mask that leaves nothing to attend to."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_DO = (
    "check the mask's sense: where tokens count, an attention_mask is 1, a key_padding_mask False, a boolean attn_mask "
    "True (of nn.MultiheadAttention: False)"
)


def find(seen: Seen) -> Fault | None:
    """A softmax, or an attention, all of whose scores are hidden for some point; or a mask of one value throughout, and
    outputs that are NaN or the same for all points."""
    x = seen.examination
    for place, points in x.ops.hidden_points.items():
        share = points / max(x.now.samples, 1)
        return seen.fault(
            "mask that hides everything",
            "every score is masked, so that the softmax has nothing to choose from",
            _DO,
            place,
            f"at {share:.0%} of the points",
            share=share,
        )
    lost = x.now.lost > 0 or x.same or x.now.points == 0
    if x.masks and (lost or "attention_mask" in x.masks):
        name = x.masks[0]
        what = "its outputs are NaN" if x.now.lost else "no token is left" if not x.now.points else "nothing is left"
        what = "its outputs are the same for all points" if x.same and not x.now.lost else what
        return seen.fault(
            "mask that hides everything",
            f"{name} has one value throughout, and hides every token: {what}",
            _DO,
            mask=name,
        )
    return None
