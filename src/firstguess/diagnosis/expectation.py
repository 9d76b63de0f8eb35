"""What theory expects of this architecture on these data.

The kernel reading at the network's own widths where it can, else at infinite width, else the closed form.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.comparison import compare
from firstguess.diagnosis.expected import Expected
from firstguess.diagnosis.own_size import OwnSize, at_own_size
from firstguess.diagnosis.token_expectation import predicted_tokens
from firstguess.ensemble.measurement import Measurement
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.network.walk import needs_images, needs_tokens
from firstguess.theory.prediction import Prediction

if TYPE_CHECKING:
    from firstguess.data import Data

DRAWS = 2000  # of the kernel's law: its error is then small beside that of a hundred initializations


def expectation(
    network: Network | None,
    why: str,
    data: Data | None,
    m: Measurement,
    *,
    size: OwnSize | None = None,
    seed: int = 0,
    seconds: float = 10.0,
) -> Expected:
    """The prediction for `network` on `data`, laid beside the measurement; `why` says why there is no network."""
    if network is None:
        return Expected(None, None, why)
    if data is None:
        padded = "sequences of one length without padding" if needs_tokens(network.layers) else "one array of numbers"
        return Expected(None, None, f"the inputs are not {padded}")
    if network.classes != m.classes:
        return Expected(None, None, f"{network.classes} classes were read and {m.classes} measured")
    width, narrow = ("", "") if size is None else (size.words(network), "")
    found: Prediction | None = None
    if size is not None:
        found, narrow = at_own_size(network, data, size, draws=DRAWS, seed=seed, seconds=seconds)
    try:
        prediction, remark = predicted(network, data, seed=seed, seconds=seconds)
    except FirstguessError as error:
        return Expected(None, None, error.reason)
    if found is not None:
        return Expected(found, compare(found, m), width=width, wide=(prediction, compare(prediction, m)))
    if math.isnan(float(prediction.gamma[-1])):
        return Expected(prediction, None, remark, width, narrow)
    if remark and needs_images(network.layers) and any("of a pool" in said for said in prediction.assumptions):
        rough = "a rough number: it takes the positions of a pool for independent, which in images they are not"
        return Expected(prediction, None, f"{rough}; {remark}", width, narrow)
    return Expected(prediction, compare(prediction, m), remark, width, narrow)


def predicted(network: Network, data: Data, *, seed: int = 0, seconds: float = 10.0) -> tuple[Prediction, str]:
    """The kernel reading on these points; the closed form, with a remark, where that cannot be had."""
    from firstguess.theory.readings import predict

    if needs_tokens(network.layers):
        return predicted_tokens(network, data, draws=DRAWS, seed=seed, seconds=seconds)
    try:
        return predict(network, data=data, draws=DRAWS, seed=seed, seconds=seconds), ""
    except FirstguessError as error:
        found = predict(network, inputs=Inputs.of_data(data), points=data.n)
        return found, f"not on your own data, because {error.reason}"
