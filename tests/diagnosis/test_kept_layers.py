"""Fine-tuning: what is kept is one line of a page, with its evidence folded; and commands in their groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from torch import nn
from tuned import digits, trained

import firstguess as fg
from firstguess.cli.app import app


def fine_tuned() -> nn.Sequential:
    model = trained()
    model[4] = nn.Linear(64, 10)
    return model


def test_what_is_kept_is_one_line_and_its_evidence_is_folded(tmp_path: Path) -> None:
    d = fg.diagnose(fine_tuned(), digits(), inits=20, seconds=60)
    page = str(d)
    kept = [line for line in page.splitlines() if "! " in line]
    assert len(kept) == 1, kept
    assert kept[0].strip().startswith("! trained at 0, 2: looks trained and was kept; 4 looks fresh")
    assert "singular values" not in page
    assert f"their outputs are similar for all inputs (correlation c = {d.given:.2g})" in " ".join(page.split())
    document = d.save(tmp_path / "report.html").read_text()
    assert "singular values" in document.partition("What that follows from</summary>")[2].partition("</details>")[0]


def test_every_command_stands_in_a_group() -> None:
    """A command of another package too: `reproduce` stood alone, above them."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group)
    panels = {name: group.get_command(context, name).rich_help_panel for name in group.list_commands(context)}
    assert set(panels.values()) == {"Your model", "Theory", "Research", "Set-up"}, panels
