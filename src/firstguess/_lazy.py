"""Public names that are imported when they are first used: each stands once, in the `.pyi` file that editors read.

The package `lazy_loader` does this too, but parses the stub at import, which takes longer than `import firstguess`.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _stub(package: str) -> tuple[dict[str, str], list[str]]:
    """Return where each name of a package's stub is defined, and the names that it lists in `__all__`."""
    import ast

    file = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    homes: dict[str, str] = {}
    listed: list[str] = []
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            homes |= {found.asname or found.name: str(node.module) for found in node.names}
        elif isinstance(node, ast.Assign):
            listed = ast.literal_eval(node.value)
    return homes, listed


def resolve(package: str, name: str) -> Any:
    """Import one public name of a package, and keep it there."""
    homes, _ = _stub(package)
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
    home = homes[name]
    value = importlib.import_module(f"{home}.{name}" if home == package else home)
    value = value if home == package else getattr(value, name)
    setattr(sys.modules[package], name, value)
    return value


def listed(package: str) -> list[str]:
    """Return the names that a package lists."""
    return sorted(_stub(package)[1])
