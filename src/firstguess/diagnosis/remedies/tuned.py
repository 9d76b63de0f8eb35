"""Tune the family: a knob at which gradients keep their size and the network is hardly nonlinear, theory.md §10."""

from __future__ import annotations

import time
from collections.abc import Iterator

from firstguess.base.errors import FirstguessError
from firstguess.data import Data
from firstguess.diagnosis.remedies.base import Case, Variant, inputs_of
from firstguess.network.inputs import Inputs
from firstguess.network.network import pytorch_code
from firstguess.network.walk import needs_images, needs_tokens
from firstguess.theory.frontier import said
from firstguess.theory.predict import predict
from firstguess.theory.tune import HARMLESS, tune

_PREDICTIONS, _PART = 40, 0.3  # that tuning takes, and its part of the time for all remedies
_NONLINEAR = 1.5  # the nonlinearity aimed at: γ = 0.5 where the data bring none


class TimeIsUp(FirstguessError):
    """Tuning would take too long."""


def variants(case: Case) -> Iterator[Variant]:
    """The description by its own knob, at constant gradients, if that is less nonlinear than it is."""
    network = case.network
    if network is None or needs_tokens(network.layers) or needs_images(network.layers):
        return
    x = inputs_of(case.batches)
    given = Inputs() if x is None else Inputs.of_data(Data(x.numpy()))
    gamma = _NONLINEAR * (1.0 + given.mean_square / given.variance) - 1.0
    began = time.perf_counter()
    try:
        predict(network, inputs=given)
        needed = _PREDICTIONS * (time.perf_counter() - began)
        if needed > _PART * case.seconds:
            raise TimeIsUp(
                f"a network that is tuned in {_PART * case.seconds:.0f} s",
                got=f"about {needed:.0f} s",
                hint="fg.tune(fg.read(model, data).network, gamma=0.5)",
            )
        s = tune(network, gamma=gamma, inputs=given)
    except TimeIsUp:
        raise
    except FirstguessError:
        return  # several activations, one without a knob, a norm that sets gradients itself: nothing to offer
    if s.before.nonlinearity <= s.nonlinearity:
        return
    yield Variant(
        f"tune it: {said(s)} at constant gradients",
        str(s.network),
        network=s.network,
        code=pytorch_code(s.network),
        aim="training",
        price=HARMLESS[:1].lower() + HARMLESS[1:].rstrip("."),
    )
