"""Records → `docs/claims.md`: every claim with its verdicts, then every item with figure, numbers and settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from firstguess.papers import records, revisions
from firstguess.papers.claims import CLAIMS
from firstguess.papers.items import PAPERS, VERDICTS
from firstguess.papers.records import Record

_PIXELS = 1400
_GROUPS = {"I": "igb", "N": "norm", "M": "mf", "B": "beyond"}
_HEAD = """# What holds: the claims of the three papers, measured

Written by `firstguess reproduce`; do not edit. Numbers are value ± one standard error. A verdict follows from checks in
code (`src/firstguess/papers/judging.py`): a difference counts from four standard errors on, equality means within a
stated margin that the errors could resolve. Margins and sizes were chosen before looking, except those listed below.

- **holds**: every check that the claim needs passed.
- **holds with a limit**: it holds where the paper has it; a named neighbouring case breaks it, or is not decided.
- **does not hold**: the numbers contradict it.
- **not tested**: no item ran, or its errors were too large to decide.
"""
_CHANGED = """
<details><summary>Checks and sizes that were changed after a first look</summary>

"""


def write(path: Path, found: Sequence[Record], *, out: Path, figures: Path | None = None) -> None:
    """Write the page; with `figures`, copy the figures there and show them."""
    shown: dict[str, list[str]] = {}
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        for record in found:
            source = records.folder_of(out, record.quick, record.id)
            for chart in record.charts:
                name = f"{record.id.replace('/', '_')}_{chart}"
                _small_copy(source / chart, figures / name)
                shown.setdefault(record.id, []).append(_relative(figures / name, path.parent))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(found, shown), encoding="utf-8")


def page(found: Sequence[Record], figures: dict[str, list[str]] | None = None) -> str:
    """The page as text; `figures` are the paths to show for an item's id."""
    parts = [_HEAD, *_setting(found), _CHANGED + "\n".join(revisions.lines()) + "\n\n</details>"]
    for letter, paper in _GROUPS.items():
        parts.append(f"\n## {letter}: {PAPERS[paper]}\n\n| | claim | where | verdict | items |\n|---|---|---|---|---|")
        parts += [_claim_row(claim, found) for claim in CLAIMS if claim[0] == letter]
    for paper, name in PAPERS.items():
        of_paper = [record for record in found if record.id.startswith(f"{paper}/")]
        if of_paper:
            parts.append(f"\n# Items: {name}")
            parts += [_section(record, (figures or {}).get(record.id, [])) for record in of_paper]
    return "\n".join(parts).rstrip() + "\n"


def _setting(found: Sequence[Record]) -> list[str]:
    if not found:
        return ["\nNo item ran yet."]
    done = [record for record in found if record.status == "done"]
    versions = ", ".join(sorted({record.firstguess for record in found}))
    minutes = sum(record.seconds for record in done) / 60
    size = "quick" if found[0].quick else "full"
    counts = {verdict: sum(e.verdict == verdict for r in found for e in r.entries) for verdict in VERDICTS}
    said = ", ".join(f"{count} × {verdict}" for verdict, count in counts.items() if count)
    return [
        f"\nThis page: firstguess {versions}, {size} settings, {len(done)} items, {minutes:.0f} minutes of work. "
        f"Verdicts of single checks: {said}."
    ]


def _claim_row(claim: str, found: Sequence[Record]) -> str:
    told = [(record, entry) for record in found for entry in record.entries if entry.claim == claim]
    verdicts = "; ".join(dict.fromkeys(entry.verdict for _, entry in told)) or "not tested"
    links = ", ".join(dict.fromkeys(f"[{r.id}](#{_anchor(r)})" for r, _ in told)) or "–"
    c = CLAIMS[claim]
    return f"| {c.id} | {_cell(c.text)} | {_cell(c.where)} | **{verdicts}** | {links} |"


def _section(record: Record, figures: Sequence[str]) -> str:
    lines = [f"\n## {record.id}", "", f"**{record.title}** ({record.where})", "", f"Setting: {record.settings}"]
    if record.status != "done":
        return "\n".join([*lines, "", f"*{record.status}*: {record.reason}"])
    lines[-1] += f" {record.seconds:.0f} s."
    lines += [line for figure in figures for line in ("", f"![{record.title}]({figure})")]
    lines += ["", "| claim | tested | measured | verdict |", "|---|---|---|---|"]
    for entry in record.entries:
        why = f": {entry.why}" if entry.why else ""
        cells = (entry.claim, _cell(entry.statement), _cell(entry.measured), f"**{entry.verdict}**{_cell(why)}")
        lines.append(f"| {' | '.join(cells)} |")
    lines += [line for note in record.notes for line in ("", f"Note: {note}")]
    return "\n".join(lines)


def _anchor(record: Record) -> str:
    """As GitHub makes it from the heading."""
    return "".join(c for c in record.id.lower() if c.isalnum() or c in "-_")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _small_copy(source: Path, target: Path) -> None:
    """A figure for a page: at most 1400 pixels wide, in 255 colours, a tenth of the bytes."""
    from PIL import Image

    with Image.open(source) as image:
        shown = image.convert("RGB")
        if shown.width > _PIXELS:
            shown = shown.resize((_PIXELS, round(shown.height * _PIXELS / shown.width)), Image.Resampling.LANCZOS)
        shown.quantize(255, dither=Image.Dither.NONE).save(target, optimize=True)


def _relative(path: Path, start: Path) -> str:
    import os

    return Path(os.path.relpath(path, start)).as_posix()
