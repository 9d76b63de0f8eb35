"""Which items there are: every `Item` in a module of this package that is named after a paper."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from firstguess import InvalidInput
from firstguess_papers.claims import CLAIMS
from firstguess_papers.items import PAPERS, Item


@cache
def items() -> dict[str, Item]:
    """All items by id: paper by paper, in the order of the papers' files and of the lines in them."""
    import firstguess_papers as package

    modules = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    found: dict[str, Item] = {}
    for paper in PAPERS:
        for name in modules:
            if name == paper or name.startswith(f"{paper}_"):
                for value in vars(importlib.import_module(f"{package.__name__}.{name}")).values():
                    if isinstance(value, Item):
                        _check(value, found)
                        found[value.id] = value
    return {key: value for paper in PAPERS for key, value in found.items() if value.paper == paper}


def _check(item: Item, found: dict[str, Item]) -> None:
    if item.id in found and found[item.id] is not item:
        raise InvalidInput("ids that occur once", got=item.id, where="reproduce")
    unknown = [claim for claim in item.claims if claim not in CLAIMS]
    if unknown:
        raise InvalidInput("claims of claims.toml", got=", ".join(unknown), where=item.id)


def choose(wanted: list[str]) -> list[Item]:
    """The items of ids, of papers ("igb"), or of "all", each once.

    >>> choose(["igb/fig55"])
    Traceback (most recent call last):
    ...
    firstguess.InvalidInput: Expected an item, a paper or "all", but got igb/fig55. Try: igb/fig5, ...
    """
    known = items()
    chosen: dict[str, Item] = {}
    for name in wanted:
        hits = [x for x in known.values() if name in ("all", x.id, x.paper) or name == f"{x.paper}/"]
        if not hits:
            words = [*known, *PAPERS, "all", *(key.partition("/")[2] for key in known)]
            near = [w if w in (*known, *PAPERS, "all") else next(k for k in known if k.endswith(f"/{w}"))
                    for w in difflib.get_close_matches(name, words, n=4, cutoff=0.5)]  # fmt: skip
            hint = ", ".join(dict.fromkeys(near)) or "firstguess reproduce --list"
            raise InvalidInput('an item, a paper or "all"', got=name, hint=hint)
        chosen |= {x.id: x for x in hits}
    return list(chosen.values())
