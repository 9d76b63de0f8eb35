"""BatchNorms that have seen no data, in eval mode."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """A fact; where the guess is notable, with the guess in train mode."""
    norms = seen.examination.norms
    if not norms:
        return None
    cure, numbers = "", {"layers": norms}
    if seen.trained is not None and seen.notable:
        cure = f"; in train mode the largest share is {seen.trained.largest:.1%}"
        numbers |= {"largest_in_train_mode": seen.trained.largest}
    return seen.fault(
        "batchnorm in eval mode before training",
        "BatchNorms are in eval mode with running statistics that have seen no data, so they do nothing",
        "model.train(), as in the first step of training",
        norms[0],
        f"{len(norms)} of them{cure}",
        **numbers,
    )
