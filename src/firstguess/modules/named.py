"""A model by its name, `package.module:factory`, as the shell and Python take it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from firstguess.base.errors import InvalidInput
from firstguess.base.text import is_path


def named(what: Any) -> Any:
    """What `package.module:name` names; anything else as it is.

    >>> named("collections:Counter"), named("dense > relu")
    (<class 'collections.Counter'>, 'dense > relu')
    """
    return found_at(what) if isinstance(what, str) and is_path(what) else what


def found_at(path: str) -> Any:
    """The class, function or model of a module; modules beside the user are found, as `python -m` does."""
    module, _, name = path.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(
            "a module that can be imported",
            got=f"{module} ({error})",
            where=path,
            hint="run in the folder that contains it, or install it",
        ) from None
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidInput(
                f"a class, a function or a model in {module}",
                got=f"no {name}",
                where=path,
                hint="one of " + ", ".join(sorted(n for n in vars(found) if not n.startswith("_"))[:8]),
            )
        found = getattr(found, part)
    return found
