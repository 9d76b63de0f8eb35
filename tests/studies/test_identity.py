"""Addresses: what changes numbers changes them, what does not leaves them."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firstguess as fg
from firstguess._version import NUMERICS
from firstguess.studies import identity as module
from firstguess.studies.identity import code_version, identity, numerics

SCALE = 2.0
TABLE = np.arange(3.0)


def scaled(x: float) -> float:
    return SCALE * x + helper(x)


def helper(x: float) -> float:
    return x + float(TABLE.sum())


def test_values_that_differ_have_other_addresses() -> None:
    values: list[Any] = [
        None, 0, False, 0.0, "0", [], [0], {"a": 0}, {"a": 1}, np.zeros(2), np.zeros(3), np.zeros(2, np.float32),
        np.zeros((2, 1)), fg.mlp(depth=1), fg.mlp(depth=2), fg.Network(fg.mlp(depth=1).layers, 10), len, np.sum,
        lambda x: x, lambda x: x + 1, lambda x, y=1: x, fg.data.Data(np.zeros((2, 2))), fg.data.Data(np.ones((2, 2))),
        fg.predict, fg.mlp, {1, 2}, functools.partial(scaled, 1), functools.partial(scaled, 2),
    ]  # fmt: skip
    texts = [json.dumps(identity(value)) for value in values]
    assert len(set(texts)) == len(values)


def test_the_same_value_made_twice_has_one_address() -> None:
    def make(k: int) -> Any:
        return lambda p: k * p["depth"]

    assert identity(make(2)) == identity(make(2)) != identity(make(3))
    assert identity(np.arange(4)) == identity(np.arange(4))
    assert identity({"b": 1, "a": [1, 2]}) == identity({"a": (1, 2), "b": 1})
    assert identity(np.float64(0.5)) == identity(0.5)


def test_what_a_function_refers_to_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(scaled)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    other = identity(scaled)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert identity(scaled) == before != other
    monkeypatch.setitem(globals(), "TABLE", np.arange(4.0))  # two functions away
    assert identity(scaled) != before


def test_functions_without_a_module_are_told_apart() -> None:
    """What `exec` makes, as notebooks and doctests do, calls itself a function of `builtins`."""
    made: list[Any] = []
    for text in ("lambda p: p + 1", "lambda p: p + 2", "lambda p: p + 1"):
        scope: dict[str, Any] = {}
        exec(f"f = {text}", scope)
        made.append(identity(scope["f"]))
    assert made[0] == made[2] != made[1]


def test_a_function_that_calls_itself_has_an_address() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert identity(factorial) == identity(factorial)


def test_what_cannot_be_sent_is_one_line() -> None:
    generator = (i for i in range(3))
    with pytest.raises(fg.InvalidInput, match="can be sent to another process"):
        identity(lambda p: next(generator))


_ADDRESS = """
import firstguess as fg
s = fg.study("a", fg.grid(depth=[1, 2]), lambda p: fg.predict(fg.mlp(**p)), store=STORE)
print(s.digest)
"""


def test_a_comment_in_the_package_leaves_every_address(tmp_path: Path) -> None:
    """Studies that took days: a new release that computes the same numbers must not start them again."""
    copy = tmp_path / "firstguess"
    shutil.copytree(Path(fg.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def digest() -> str:
        text = _ADDRESS.replace("STORE", repr(str(tmp_path / "store")))
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        run = [sys.executable, "-c", text]
        return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout

    before = digest()
    for name in ("_version.py", "cli/app.py", "theory/closed_form.py"):
        file = copy / name
        file.write_text(file.read_text() + "\n# a remark\n")
    assert digest() == before
    version = copy / "_version.py"
    version.write_text(version.read_text() + "\nNUMERICS = 999\n")
    assert digest() != before


def test_the_code_version_names_release_and_numerics() -> None:
    release, _, rest = code_version().partition(", ")
    assert release == fg.__version__
    assert rest == numerics()
    assert rest.startswith(f"numerics {NUMERICS}, numpy ")


# -- What was missed once ---------------------------------------------------------------------------------------------

_SCRIPT = """
import enum, functools
from dataclasses import dataclass, field
from firstguess.studies.identity import identity
from firstguess.base.files import address

class Kind(enum.Enum):
    ONE = "one"

@dataclass(frozen=True)
class Cell:
    depth: int
    more: list = field(default_factory=list)
    @functools.cached_property
    def twice(self): return 2 * self.depth
    @classmethod
    def of(cls, p): return cls(p["depth"])

NAMES = {"relu", "tanh", "gelu", "silu", "elu"}
ONE = Cell(3)

def function(p):
    return Cell.of(p).twice + ONE.twice + (p["phi"] in NAMES) + (p["phi"] in {"a", "b", "c"}) + len(Kind)

print(address(identity(function)), address(identity(ONE)), address(identity(NAMES)))
"""


def test_addresses_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Classes and sets of a script: pickles of them differ from process to process, and nothing would be resumed."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    found = {
        subprocess.run(
            [sys.executable, str(script)], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(found) == 1
    changed = script.with_name("other.py")
    changed.write_text(_SCRIPT.replace("2 * self.depth", "3 * self.depth"))
    other = subprocess.run([sys.executable, str(changed)], capture_output=True, text=True, check=True).stdout
    same, now = next(iter(found)).split(), other.split()
    assert [a == b for a, b in zip(same, now, strict=True)] == [False, False, True]


def test_classes_that_close_over_values_are_told_apart() -> None:
    def make(k: int) -> Any:
        class Net:
            def out(self) -> int:
                return k

        return lambda p: Net().out()

    assert identity(make(1)) == identity(make(1)) != identity(make(2))


def test_wrapped_functions_are_followed() -> None:
    def make(k: int) -> Any:
        return functools.cache(lambda p: p + k)

    assert identity(make(1)) == identity(make(1)) != identity(make(2))
    rng = [np.random.default_rng(seed) for seed in (0, 0, 1)]
    assert identity(rng[0].normal) == identity(rng[1].normal) != identity(rng[2].normal)


def test_modules_that_a_function_imports_are_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "inner_of_study.py").write_text("SCALE = 1\n")
    (tmp_path / "outer_of_study.py").write_text("from inner_of_study import SCALE\nimport inner_of_study\n")

    def lazily(p: Any) -> Any:
        import outer_of_study  # pyright: ignore[reportMissingImports]

        return outer_of_study.SCALE * p

    def changed(path: str, text: str, of: Any) -> bool:
        before = identity(of)
        (tmp_path / path).write_text(text)
        return identity(of) != before

    assert changed("outer_of_study.py", "from inner_of_study import SCALE\nimport inner_of_study\n# other\n", lazily)
    import outer_of_study  # pyright: ignore[reportMissingImports]

    assert changed("inner_of_study.py", "SCALE = 2\n", lazily)  # one module further
    assert changed("inner_of_study.py", "SCALE = 3\n", lambda p: outer_of_study.SCALE * p)
    for name in ("inner_of_study", "outer_of_study"):
        monkeypatch.delitem(sys.modules, name)


def test_networks_with_functions_of_ones_own_are_told_apart() -> None:
    def net(slope: float) -> fg.Network:
        return fg.mlp(depth=1, activation=fg.activation(lambda x: np.maximum(x, slope * x), name="leaking"))

    assert str(net(0.1)) == str(net(0.2))
    assert identity(net(0.1)) == identity(net(0.1)) != identity(net(0.2))


def test_names_and_numbers_of_another_type_are_told_apart() -> None:
    assert identity({1: "a"}) != identity({"1": "a"})
    assert identity(np.float32(0.5)) != identity(0.5)  # arithmetic with it is another
    assert identity(np.int8(1)) != identity(1)
    assert identity(fg.data.Data(np.full((2, 2), 1.0))) == identity(fg.data.Data(np.full((2, 2), 1.0)))


def test_an_address_knows_what_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = numerics()
    monkeypatch.setattr(module, "_version", lambda name: "0.0" if name == "torch" else "1.0")
    assert numerics() != before
