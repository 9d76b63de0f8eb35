"""Writes pages/: what commands and results print, on terminals of 60, 80 and 120 columns and into a pipe.

Times and versions are taken out. Pages of measured numbers (`MEASURED`) are compared only on the machine they were made
on: elsewhere a last digit may round the other way.

    python tests/golden/make_pages.py
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import inside
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # helpers of tests, when this is run as a script

TEXT = "20 x [dense(weight_var=2) > layernorm > relu] > dense"
LONG = (
    "dense > residual(scale=0.5)[layernorm > relu > dense(weight_var=2) | rmsnorm > dense] > 3 x [dense > gelu] > dense"
)
COLUMNS = 60, 80, 120
PAGES = inside.HERE / "pages"
WIDE = {  # at every width
    "predict": ["predict", TEXT, "--classes", "10"],
    "predict-layers": ["predict", LONG, "--layers"],
    "phases": ["phases", "tanh", "--bias-var", "0.05", "--weight-var", "2.5"],
    "phases-pool": ["phases", "relu > maxpool(2)"],
    "activations": ["activations"],
    "data": ["data", "blob:n=50,d=8"],
    "reproduce": ["reproduce", "--list"],
}
PIPE = {  # into a pipe
    **WIDE,
    "predict-mlp": ["predict", "mlp", "--depth", "20", "--norm", "layernorm", "--placement", "after"],
    "predict-residual": ["predict", "residual_mlp", "--depth", "3", "--mean-square", "0.3", "--points", "1000"],
    "predict-cnn": ["predict", "cnn", "--depth", "2", "--activation", "leaky_relu(0.2)", "--pool", "avgpool(4)"],
    "phases-relu": ["phases", "relu", "--weight-var", "3"],
    "activations-q": ["activations", "--q", "4"],
    "bad-layer": ["predict", "dense > reluu > dense"],
    "bad-option": ["predict", "mlp", "--nonsense"],
    "bad-phase": ["phases", "residual[relu > dense > tanh]"],
}
MEASURED = {
    "measure": ["measure", "2 x [dense(weight_var=2) > relu] > dense", "--data", "blob:n=60,d=12", "--inits", "20",
                "--width", "30"],
    "predict-data": ["predict", "2 x [dense > batchnorm > relu] > dense", "--data", "blob:n=40,d=8", "--draws", "300"],
    "compare": ["predict", "dense > relu > dense", "--data", "blob:n=40,d=8", "--draws", "300", "--compare", "--inits",
                "20", "--width", "40"],
    "diagnose": ["diagnose", "2 x [dense(weight_var=2) > relu] > dense", "--data", "blob:n=60,d=12", "--inits", "20",
                 "--width", "30", "--seconds", "3600"],
}  # fmt: skip
FIELDS = {  # their JSON: the names of fields
    name: [*({**PIPE, **MEASURED}[name]), "--json"]
    for name in ("predict", "phases", "activations", "data", "reproduce", *MEASURED)
}
HELP = ["", "predict", "measure", "phases", "data", "activations", "reproduce", "diagnose", "check"]


def command(arguments: list[str], columns: int | None = None) -> str:
    """What `firstguess …` prints, with its exit code where that is not 0."""
    from firstguess.cli import main

    out = io.StringIO()
    settings = {"COLUMNS": "80"} if "--help" in arguments else {}  # a pipe has the columns that its text needs
    if columns is not None:
        settings = {"COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm"}
    clean = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE")}
    code: Any = 0
    with (
        mock.patch.dict(os.environ, {**clean, **settings}, clear=True),
        mock.patch.object(sys, "argv", ["firstguess", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return plain(out.getvalue()) + (f"exit code {code}\n" if code else "")


def plain(text: str) -> str:
    """Without colours, times, versions and trailing blanks."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\b\d+(\.\d+)?(e-?\d+)? (s|ms|seconds)\b(?!\.e\.)", "… s", text)
    text = re.sub(r"^( (closed form|kernel|measured)\b.*\S) +\d\S*$", r"\1 …", text, flags=re.MULTILINE)  # seconds
    text = re.sub(r"\b(firstguess|torch|numpy|python) \d[\w.+]*", r"\1 …", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def fields(value: Any, path: str = "") -> list[str]:
    """The names in JSON, each once."""
    if isinstance(value, dict):
        inside_it = (name for key, inner in value.items() for name in fields(inner, f"{path}.{key}"))
        return sorted({*(f"{path}.{key}" for key in value), *inside_it})
    if isinstance(value, list):
        return sorted({name for inner in value for name in fields(inner, f"{path}[]")})
    return []


def _fields(arguments: list[str]) -> str:
    return "\n".join(fields(json.loads(command(arguments)))) + "\n"


def _text(made: Callable[[], object]) -> str:
    with mock.patch.dict(os.environ, {"COLUMNS": "100"}):  # not those of the terminal, or of a worker of xdist
        return plain(str(made()))


def results() -> dict[str, Callable[[], object]]:
    """Results to be printed, of numbers made by hand."""
    import diagnoses

    import firstguess as fg

    net = fg.Network.parse("2 x [dense(weight_var=2) > relu] > dense(weight_var=2)", classes=10)
    return {
        "diagnosis": diagnoses.sample,
        "diagnosis-10-classes": lambda: diagnoses.sample(10),
        "diagnosis-nasty": diagnoses.nasty,
        "diagnosis-broken": diagnoses.broken,
        "diagnosis-bare": diagnoses.bare,
        "measurement": diagnoses.measurement,
        "measurement-10-classes": lambda: diagnoses.measurement(10),
        "comparison": lambda: fg.compare(fg.predict(net), diagnoses.measurement(10)),
        "gradients": diagnoses.gradients,
        "prediction": lambda: fg.predict(net),
        "fixed-point": lambda: fg.fixed_point("tanh", weight_var=2.5, bias_var=0.05),
        "data-bias": lambda: fg.data_bias(np.random.default_rng(3).standard_normal((50, 6)) + 0.5),
        "network": lambda: f"{net}\n{fg.mlp(3, norm='rmsnorm')}\n{fg.cnn(2)}\n{fg.residual_mlp(2)}",
    }


def jobs() -> dict[str, Callable[[], str]]:
    """All pages by name."""
    found: dict[str, Callable[[], str]] = {}
    for name, arguments in WIDE.items():
        found |= {f"{name}-{columns}": partial(command, arguments, columns) for columns in COLUMNS}
    found |= {name: partial(command, arguments) for name, arguments in {**PIPE, **MEASURED}.items()}
    found |= {f"help-{name or 'all'}": partial(command, [*filter(None, [name]), "--help"]) for name in HELP}
    found |= {f"fields-{name}": partial(_fields, arguments) for name, arguments in FIELDS.items()}
    for name, made in results().items():
        found[f"text-{name}"] = partial(_text, made)
    return found


if __name__ == "__main__":
    for old in PAGES.glob("*.txt"):
        if old.stem not in jobs():
            old.unlink()
    pages = inside.chosen(jobs())
    for name, page in pages.items():
        (PAGES / f"{name}.txt").write_text(page(), encoding="utf-8")
    if set(pages) >= set(MEASURED):  # else measured pages of another machine stay, and say which
        (PAGES / "made.json").write_text(json.dumps(inside.machine(), indent=2) + "\n", encoding="utf-8")
