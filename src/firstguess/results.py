"""`fg.results`: the classes of what functions return. Each prints a page, and has .plot() and .to_dict()."""

from firstguess._lazy import listed, resolve


def __getattr__(name: str):
    return resolve(__name__, name)


def __dir__():
    return listed(__name__)
