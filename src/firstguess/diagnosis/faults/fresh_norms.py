"""BatchNorms that have seen no data, in eval mode."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """A fact; where the guess is notable, with the guess in train mode."""
    norms = seen.examination.norms
    if not norms:
        return None
    cure, evidence = "", {"layers": norms}
    if seen.trained is not None and seen.notable:
        cure = f"; in train mode the largest share is {seen.trained.largest:.1%}"
        evidence |= {"largest_in_train_mode": seen.trained.largest}
    return Fault(
        "batchnorm in eval mode before training",
        f"{len(norms)} BatchNorms ({norms[0]} first) are in eval mode with running statistics that have seen no data, "
        f"so they do nothing{cure}",
        "model.train(), as in the first step of training",
        norms[0],
        evidence,
    )
