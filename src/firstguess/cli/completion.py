"""What the Tab key offers: activations, builders, norms, data sets, items of the ledger."""

from __future__ import annotations

from collections.abc import Iterable

NORMS = ("batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm")
STANDARDIZATIONS = ("none", "global", "channel", "pixel", "centre")


def _of(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def activations(incomplete: str) -> list[str]:
    from firstguess.network.activations.lookup import names

    return _of(names(), incomplete)


def builders(incomplete: str) -> list[str]:
    from firstguess.cli.builders import WORDS

    return _of(WORDS, incomplete)


def norms(incomplete: str) -> list[str]:
    return _of(NORMS, incomplete)


def standardizations(incomplete: str) -> list[str]:
    return _of(STANDARDIZATIONS, incomplete)


def data_sets(incomplete: str) -> list[str]:
    from firstguess.data.specs import names

    return _of(names(), incomplete)


def items(incomplete: str) -> list[str]:
    from firstguess.papers.items import PAPERS
    from firstguess.papers.registry import items

    return _of(("all", *PAPERS, *items()), incomplete)
