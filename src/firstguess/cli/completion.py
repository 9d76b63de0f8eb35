"""What the Tab key offers: activations, builders, norms, data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from firstguess.base.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation
    from firstguess.network.network import Network

NORMS = ("batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm")
STANDARDIZATIONS = ("none", "global", "channel", "pixel", "centre")


def _of(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def activations(incomplete: str) -> list[str]:
    from firstguess.network.activations.registry import names

    return _of(names(), incomplete)


def builders(incomplete: str) -> list[str]:

    return _of(WORDS, incomplete)


def norms(incomplete: str) -> list[str]:
    return _of(NORMS, incomplete)


def standardizations(incomplete: str) -> list[str]:
    return _of(STANDARDIZATIONS, incomplete)


def data_sets(incomplete: str) -> list[str]:
    from firstguess.data.sources import names

    return _of(names(), incomplete)


# --------------------------------------------------------------------------------------------------------------
# Networks by a word and its options, as several commands take them: mlp, residual_mlp, cnn; or as text.

WORDS = ("mlp", "residual_mlp", "cnn")


class Placement(StrEnum):
    before = "before"
    after = "after"


def described_by(network: str, options: Mapping[str, Any], classes: int | None) -> Network:
    """What a word and its options say, or a text without any; `options` that are None were not given."""
    from firstguess.network.builders import BUILDERS, as_network

    given = {name: value for name, value in options.items() if value is not None}
    if network not in WORDS:
        text = as_network(network, classes)  # what is no description at all says so first
        if given:
            names = ", ".join("--" + name.replace("_", "-") for name in given)
            raise InvalidInput(
                "options for mlp, residual_mlp or cnn only together with one of these words",
                got=f"{names} with a description",
                hint='write them into the text, e.g. "20 x [dense(weight_var=2) > layernorm > relu] > dense"',
            )
        return text
    if network == "residual_mlp" and "pool" in given:
        raise InvalidInput(
            "no --pool with residual_mlp", got=given["pool"], hint="describe the network as text instead"
        )
    if "activation" in given:
        given["activation"] = _activation(str(given["activation"]))
    if "placement" in given:
        place, words = str(given["placement"].value), {"before": "before branch", "after": "after sum"}
        given["placement"] = words[place] if network == "residual_mlp" else place
    return BUILDERS[network](**given, classes=2 if classes is None else classes)


def _activation(text: str) -> Activation:
    """`leaky_relu(0.2)` and `centered(relu)` as well as a plain name."""
    from firstguess.network.grammar import parse_layers
    from firstguess.network.layers import Activate

    layers = parse_layers(text)
    if len(layers) != 1 or not isinstance(layers[0], Activate):
        raise InvalidInput("one activation", got=text, where="--activation", hint="firstguess activations")
    return layers[0].phi
