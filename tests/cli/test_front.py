"""Every command at three widths: help, tables, one vocabulary, subjects."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import refused, run_here

import firstguess as fg
from firstguess.cli import subjects
from firstguess.cli.app import app

WIDTHS = (60, 80, 100)
GROUP: Any = typer.main.get_command(app)
COMMANDS = tuple(GROUP.commands)
TABLES = {
    "reproduce": ("reproduce", "--list"),
    "activations": ("activations",),
    "layers": ("predict", "mlp", "--depth", "3", "--norm", "layernorm", "--layers"),
    "phases": ("phases", "tanh", "--bias-var", "0.05", "--weight-var", "2.5"),
    "predict": ("predict", "mlp", "--depth", "20"),
    "data": ("data", "blob:n=60,d=30"),
    "doctor": ("doctor",),
}


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int, *arguments: str) -> list[str]:
    """The lines that a terminal of this width shows."""
    for name, value in {
        "COLUMNS": str(width),
        "FORCE_COLOR": "1",
        "TERM": "xterm",
        "_TYPER_FORCE_DISABLE_TERMINAL": "",
    }.items():
        monkeypatch.setenv(name, value)
    text = run_here(*arguments).stdout
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def parameters(command: str) -> list[Any]:
    found = GROUP.get_command(None, command)  # `reproduce` comes from the papers' package
    return found.get_params(found.context_class(found, info_name=command))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_has_every_option_whole_and_no_types(monkeypatch: pytest.MonkeyPatch, command: str, width: int) -> None:
    lines = on_terminal(monkeypatch, width, *([command] if command else []), "--help")
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert not re.search(r"<(bool|int|float|str|path|list)", text)
    options = (
        ["--version", "--install-completion"]
        if not command
        else [p.opts[0] for p in parameters(command) if not getattr(p, "hidden", False)]
    )
    for option in options:
        assert re.search(rf"[│ ]{re.escape(option)}\b", text) or not option.startswith("--"), option
    for line in lines:  # a box is closed where it is open
        assert line.startswith("│") == line.endswith("│")
        assert line.startswith("╭") == line.endswith("╮")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_never_loses_its_first_column(monkeypatch: pytest.MonkeyPatch, name: str, width: int) -> None:
    with monkeypatch.context() as piped:
        piped.delenv("COLUMNS", raising=False)
        whole = run_here(*TABLES[name]).stdout.splitlines()  # a pipe has everything
    lines = on_terminal(monkeypatch, width, *TABLES[name])
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    firsts = [re.split(r"\s{2,}", line.strip())[0] for line in whole if line.strip() and "───" not in line]
    if name in ("reproduce", "activations"):
        firsts.remove({"reproduce": "item", "activations": "activation"}[name])  # a narrow page has no head
    if name == "layers":
        firsts = [f"{i}  {layer.text()}" for i, layer in enumerate(fg.mlp(depth=3, norm="layernorm").layers, start=1)]
    text = "\n".join(lines)
    assert firsts
    for first in firsts:
        assert re.search(rf"^ *{re.escape(first)}( |$)", text, re.M), first


@pytest.mark.parametrize("width", range(50, 75, 4))
def test_a_piped_table_cuts_no_number(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = run_here("predict", "mlp", "--depth", "3", "--layers").stdout
    assert "…" not in text
    assert text.count("0.466942") == 2
    assert max(map(len, text.splitlines())) <= width


def test_items_can_be_typed_as_the_list_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstguess_papers.registry import items

    for width in WIDTHS:
        shown = {line.split()[0] for line in on_terminal(monkeypatch, width, "reproduce", "--list") if line.strip()}
        assert set(items()) <= shown


def test_the_numbers_of_a_narrow_table_are_those_of_a_wide_one(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = (" ".join(on_terminal(monkeypatch, width, "activations")) for width in (60, 100))
    numbers = re.compile(r"\d\.\d{6}|yes|no\b|∞")
    assert numbers.findall(narrow) == numbers.findall(wide)
    assert len(numbers.findall(wide)) == 5 * 21


def test_one_name_one_word_for_its_value() -> None:
    words: dict[str, set[str]] = defaultdict(set)
    kinds: dict[str, set[bool]] = defaultdict(set)
    for command in COMMANDS:
        for parameter in parameters(command):
            for option in parameter.opts:
                if option.startswith("--"):
                    words[option].add(parameter.metavar)
                    kinds[option].add(bool(parameter.is_flag))
    different = {option: found for option, found in words.items() if len(found) > 1}
    assert different == {"--out": {"FILE", "FOLDER"}, "--engine": {"NAME"}} or set(different) == {"--out"}
    assert all(len(found) == 1 for found in kinds.values())
    assert words["--json"] == {""}
    assert {words[option].pop() for option in ("--inits", "--points", "--classes", "--seed", "--width", "--depth")} == {
        "N"
    }


def test_what_prints_a_table_prints_json() -> None:
    mute = [command for command in COMMANDS if "--json" not in {p.opts[0] for p in parameters(command)}]
    assert mute == ["explore"]  # a server: it prints its address
    for arguments in TABLES.values():
        json.loads(run_here(*(a for a in arguments if a != "--layers"), "--json").stdout)


def complete(line: str, shell: str = "bash") -> list[str]:
    """What Tab offers at the end of this line, in a shell."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_FIRSTGUESS_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "firstguess"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_tab_completes_names() -> None:
    assert complete("firstguess pre") == ["predict", "predict-training"]
    assert complete("firstguess predict mlp --activation gel") == ["gelu", "gelu_tanh"]
    assert complete("firstguess predict res") == ["residual_mlp"]
    assert complete("firstguess data cifar") == ["cifar10", "cifar100"]
    assert "igb/fig5" in complete("firstguess reproduce igb/fig")


def test_a_word_that_is_nearly_right_with_options() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firstguess", "predict", "mpl", "--depth", "3"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.rstrip().endswith("Try: 'mlp'")


def test_what_is_offered_is_taken() -> None:
    for name in subjects.activations(""):
        fg.mlp(depth=2, activation=name)
    for norm in subjects.norms(""):
        (fg.cnn if norm == "instancenorm" else fg.mlp)(depth=2, norm=norm)
    for builder in subjects.builders(""):
        fg.predict(builder)
    assert {"digits", "mnist", "ag-news"} <= set(subjects.data_sets(""))
    from firstguess_papers.command import _items

    assert {"all", "igb", "norm", "mf"} <= set(_items(""))
    for how in subjects.standardizations(""):
        fg.data.load("digits", points=20, standardize=how)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed(tmp_path: Path, shell: str) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "firstguess", "--install-completion", shell]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_FIRSTGUESS_COMPLETE" in path.read_text() for path in written)


def test_a_modules_bare_name_is_told_from_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mymodels.py").write_text("raise RuntimeError('nothing is run to find out')\n")
    (tmp_path / "dens").mkdir()  # a folder is not meant
    monkeypatch.chdir(tmp_path)
    line = refused("diagnose", "mymodels", "--data", "digits")
    assert "a description, or module:factory, but got 'mymodels', a module" in line
    assert line.endswith("Try: mymodels:make_model")
    with pytest.raises(fg.ParseError, match=r"'mymodels', a module, at predict. Try: mymodels:make_model"):
        fg.predict("mymodels")
    assert refused("diagnose", "dens", "--data", "digits").endswith("Try: dense")
    assert "a layer or an activation" in refused("diagnose", "json", "--data", "digits")  # Python's own: nobody's model


def test_arguments_in_the_wrong_place_are_named() -> None:
    import torch
    from torch import nn

    model, x = nn.Linear(4, 2), torch.zeros(10, 4)
    for call in (fg.measure, fg.diagnose, fg.repair, fg.match_prior, fg.explain_guess):
        with pytest.raises(fg.InvalidInput, match="the model comes first"):
            call(x, model)  # pyright: ignore[reportArgumentType]
    with pytest.raises(fg.InvalidInput, match=r"options of predict by name after network.*Try: data="):
        fg.predict("mlp", x)  # pyright: ignore[reportCallIssue]
    assert fg.tune("mlp", gamma=0.2).gamma == pytest.approx(0.2, rel=1e-6)


def test_no_command_shows_37_options_and_old_ones_are_still_taken() -> None:
    """`predict` had 37: those about training are `predict-training`'s, and are still taken by `predict --training`."""
    shown = {c: [p.opts[0] for p in parameters(c) if not getattr(p, "hidden", False)] for c in COMMANDS}
    assert max(map(len, shown.values())) <= 34
    assert "--lr" not in shown["predict"]
    options = ("mlp", "--data", "two_blobs:n=20,d=10", "--steps", "20", "--lr", "1e-4", "--draws", "20", "--json")
    new, old = (
        json.loads(run_here(*words, *options).stdout)
        for words in (("predict-training",), ("predict", "--training", "--width", "1000"))
    )
    for found in (new, old):
        found.pop("seconds", None)
    assert new == old
    assert refused("predict", "mlp", "--data", "digits", "--lr", "1").endswith("Try: --training")


def test_piped_tables_have_the_columns_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    wide = run_here(*TABLES["layers"]).stdout.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run_here(*TABLES["layers"]).stdout.splitlines()
    assert max(map(len, narrow)) <= 60 < max(map(len, wide))


def test_zero_is_printed_as_zero() -> None:
    text = run_here("predict", "mlp", "--depth", "4", "--activation", "tanh", "--norm", "layernorm", "--layers").stdout
    assert not re.search(r"\de-1\d", text)
