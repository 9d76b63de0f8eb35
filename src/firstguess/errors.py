"""`fg.errors`: what firstguess raises and warns of. Each message says what was expected, what came, and what to try."""

from firstguess._lazy import listed, resolve


def __getattr__(name: str):
    return resolve(__name__, name)


def __dir__():
    return listed(__name__)
