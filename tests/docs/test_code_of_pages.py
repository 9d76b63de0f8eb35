"""Every page's Python runs, page by page from top to bottom; what it prints is what the page shows; commands parse."""

from __future__ import annotations

import doctest
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import run_here
from data_files import REAL
from pages import PAGES, ROOT, Block, blocks, commands

pytestmark = pytest.mark.usefixtures("one_thread")
ELSEWHERE = {"README.md", "transformers.md"}  # tests/test_readme.py runs these
SLOW = {"fine-tuning.md", "training.md"}  # tens of seconds
WITH_CODE = [p for p in PAGES if p.name not in ELSEWHERE and any(b.language == "python" for b in blocks(p))]
WRITES = {
    "tour.md": ("phases.html",),
    "measuring.md": ("logits.png", "film.png"),
    "repair.md": ("frontier.png",),
    "start.md": ("report.html",),
    "index.md": ("report.html",),
    "own-activation.md": ("phases.html",),
    "trainer.md": ("training.html",),
    "lightning.md": ("training.html",),
}


def for_finite_size(scope: dict[str, Any]) -> None:
    import firstguess as fg

    scope["x"] = fg.data.digits()


def for_watch(scope: dict[str, Any]) -> None:
    import torch
    from torch import nn

    torch.manual_seed(0)
    x, y = torch.randn(200, 20), torch.arange(200) % 2
    model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 2))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=50)
    scope |= {"model": model, "loader": loader, "batches": [batch for _ in range(5) for batch in loader]}
    scope |= {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loss": nn.functional.cross_entropy, "rows": []}


# What a page takes for granted: your model, your data. Everything else it has to say itself.
GIVEN: dict[str, Callable[[dict[str, Any]], None]] = {
    "finite-size.md": for_finite_size,
    "watch.md": for_watch,
}


def shown(block: Block, printed: str) -> None:
    """What was printed is what stands below the code; `...` stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(block.code, printed, flags), (
        f"shown:\n{block.code}\nprinted:\n{printed}"
    )


def run(page: Path) -> None:
    scope: dict[str, Any] = {"__name__": "page"}
    if page.name in GIVEN:
        GIVEN[page.name](scope)
    printed = ""
    for block in blocks(page):
        if block.language == "text" and printed:
            shown(block, printed)
        printed = ""
        if block.language != "python":
            continue
        code = compile(block.code, f"{page.name}, block {block.number}", "exec")
        if block.reason:
            continue
        with redirect_stdout(io.StringIO()) as out:
            exec(code, scope)
        printed = out.getvalue()
        for name in [name for name in scope if name.startswith("test_")]:  # a test that a page shows
            scope.pop(name)()


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] * (p.name in SLOW)) for p in WITH_CODE], ids=lambda p: p.name
)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(page)
    for name in WRITES.get(page.name, ()):
        assert (tmp_path / name).stat().st_size > 10_000


def test_blocks_that_are_not_run_are_few_and_say_why() -> None:
    left = {f"{page.name}: {block.reason}" for page in PAGES for block in blocks(page) if block.reason}
    assert len(left) <= 6, left
    assert all(len(line.split(": ")[1]) > 10 for line in left)


def test_names_in_blocks_that_are_not_run_exist() -> None:
    import firstguess as fg

    for page in PAGES:
        for block in blocks(page):
            if block.language == "python" and block.reason:
                for name in re.findall(r"\bfg\.([a-zA-Z_]+)", block.code):
                    assert hasattr(fg, name), f"{page.name}: fg.{name}"


def parsed(line: str) -> None:
    """Options and arguments are those of the command; nothing is run."""
    from firstguess.cli.app import app

    words = shlex.split(re.sub(r"\[(-[^\]]*)\]", r"\1", line))[1:]
    command: Any = typer.main.get_command(app)
    context = command.make_context("firstguess", words, resilient_parsing=False)
    while getattr(command, "commands", None):
        rest = [*context._protected_args, *context.args] if hasattr(context, "_protected_args") else context.args
        name, command, words = command.resolve_command(context, list(rest))
        assert command is not None, line
        context = command.make_context(name, words, parent=context)


def all_commands() -> list[tuple[str, str]]:
    found = [(page.name, line) for page in PAGES for line in commands(page)]
    in_yaml = [block.code for block in blocks(ROOT / "docs" / "ci.md") if block.language == "yaml"]
    return found + [("ci.md", line) for code in in_yaml for line in re.findall(r"(?:run|entry): (firstguess .*)", code)]


@pytest.mark.parametrize(("page", "line"), all_commands(), ids=lambda value: str(value)[:60])
def test_commands_parse(page: str, line: str) -> None:
    parsed(line)


def test_a_wrong_command_does_not_parse() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed("firstguess predict mlp --dept 20")


# README's commands that take more than some seconds
LONG = ("firstguess diagnose", "firstguess train", "firstguess measure", "firstguess reproduce", "--compare")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[pytest.mark.slow] * any(part in line for part in LONG))
        for line in commands(ROOT / "README.md")
        if "reproduce" not in line and "sweep" not in line  # which have tests of their own
    ],
    ids=lambda line: line[:60],
)
def test_commands_of_readme_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (models,) = (block.code for block in blocks(ROOT / "README.md") if block.code.startswith("# mymodels.py"))
    (tmp_path / "mymodels.py").write_text(models, encoding="utf-8")
    if "--data-dir data" in line:
        if not REAL.exists():
            pytest.skip("needs real data sets: FIRSTGUESS_DATA")
        (tmp_path / "data").symlink_to(REAL)
    monkeypatch.syspath_prepend(tmp_path)
    done = run_here(*shlex.split(line)[1:])
    assert done.stdout
    for name in re.findall(r"--(?:figure|report|out|code) (\S+)", line):
        assert (tmp_path / name).stat().st_size > 100


def test_each_data_set_has_one_model_in_the_tour() -> None:
    """A model takes one shape of input: no example sends two data sets through the same one."""
    seen: dict[str, set[str]] = {}
    for line in commands(ROOT / "docs" / "tour.md"):
        if (model := re.search(r"mymodels:(\w+)", line)) and (data := re.search(r"--data (\w+)", line)):
            seen.setdefault(model[1], set()).add(data[1])
    assert seen
    assert all(len(sets) == 1 for sets in seen.values()), seen


def test_workflows_are_yaml() -> None:
    yaml = pytest.importorskip("yaml")
    workflow, hooks = (yaml.safe_load(b.code) for b in blocks(ROOT / "docs" / "ci.md") if b.language == "yaml")
    steps = workflow["jobs"]["even"]["steps"]
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given, inputs = set(steps[-1]["with"]), action["inputs"]
    assert {name for name, of in inputs.items() if of.get("required")} <= given <= set(inputs)
    (step,) = action["runs"]["steps"]
    assert step["run"].splitlines()[-1].startswith("firstguess check ")
    assert {f"${{{{ inputs.{name} }}}}" for name in inputs} == set(step["env"].values())
    (hook,) = hooks["repos"][0]["hooks"]
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == offered["id"]
    parsed(" ".join([offered["entry"], *hook["args"]]))


def test_the_release_makes_links_absolute(tmp_path: Path) -> None:
    """What a release does to README and pyproject.toml: nothing relative is left, and pictures stay."""
    yaml = pytest.importorskip("yaml")
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    lines = [step["run"] for step in release["jobs"]["build"]["steps"] if "run" in step]
    (line,) = (line for line in lines if "project_url" in line)
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    url = "https://example.org/somebody/firstguess"
    command = [sys.executable, str(ROOT / line.split()[1]), url, str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert all(link.startswith("https://") for link in re.findall(r"\]\(([^)]*)\)", text))
    assert f"({url}/raw/main/docs/images/report.png)" in text
    assert tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]["Homepage"] == url
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1  # not twice


def test_zenodo_names_the_papers() -> None:
    named = json.loads((ROOT / ".zenodo.json").read_text(encoding="utf-8"))
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert named["license"] == "MIT"
    for related in named["related_identifiers"]:
        assert related["identifier"].removeprefix("arXiv:") in cited


def test_the_first_example_needs_no_extra() -> None:
    """README's start runs after its own install line: no digits, no Hugging Face, no safetensors."""
    first = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert len(first.code.splitlines()) <= 12
    assert "digits" not in first.code
    assert "pip install firstguess  " in (ROOT / "README.md").read_text(encoding="utf-8")
