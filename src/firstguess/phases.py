"""`fg.phases`: where signals and gradients of deep networks survive: edge of chaos, neutrality line, phase diagrams."""

from firstguess._lazy import listed, resolve


def __getattr__(name: str):
    return resolve(__name__, name)


def __dir__():
    return listed(__name__)
