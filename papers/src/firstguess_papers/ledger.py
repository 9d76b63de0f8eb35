"""Records → `docs/claims.md`, a summary, and a page per paper: its claims, then every item with figure and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from firstguess_papers import opening, records, registry, revisions
from firstguess_papers.items import PAPERS, Item
from firstguess_papers.opening import Shown, cell, cut, said
from firstguess_papers.provenance import UNCOMMITTED
from firstguess_papers.records import Record

_PIXELS = 1400
_ROOM = 110  # characters of what was measured, asked or found that a page shows
_HEAD = """# What holds: the claims of the three papers, measured

Written by `firstguess reproduce`; do not edit. Numbers are value ± one standard error. A verdict follows from checks in
code (`papers/src/firstguess_papers/judging.py`): a difference counts from four standard errors on, equality means
within a stated margin that the errors could resolve. Margins and sizes were chosen before looking, except [those listed
here](FOLDER/changed.md); each item names the commit that fixed its checks, where it was recorded.
"""
_LEGEND = """
## What the verdicts mean

- **holds**: every check that the claim needs passed.
- **holds with a limit**: it holds where the paper has it; a named neighbouring case breaks it, or is not decided.
- **does not hold**: the numbers contradict it.
- **not tested**: no item ran, or its errors were too large to decide.
- **outdated**: the item was changed since it ran; its numbers are not shown. **open**: there is no item yet.
"""
_WHOLE = "\nWhere a text ends in …, the rest is in the item's file in `docs/NAME/records`."
_CHANGED = "# Checks and sizes that were changed after a first look\n\nThose verdicts are less than blind.\n"


def write(
    path: Path,
    found: Sequence[Record],
    *,
    out: Path,
    figures: Path | None = None,
    items: Mapping[str, Item] | None = None,
) -> None:
    """Write the page of all claims and, in the folder of its name, a page per paper; copy figures to `figures`.

    The figures of a record that came from another machine are not in `out`: those that are in `figures` are shown.
    """
    folder = path.with_suffix("")
    shown: dict[str, list[str]] = {}
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        for record in found:
            source = records.folder_of(out, record.quick, record.id)
            here = records.read(out, record.quick, record.id) == record
            for chart in record.charts:
                target = figures / f"{record.id.replace('/', '_')}_{chart}"
                if here and (source / chart).exists():
                    _small_copy(source / chart, target)
                if target.exists():
                    shown.setdefault(record.id, []).append(_relative(target, folder))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(found, shown, items, name=path.stem).items():
        (path.parent / name).write_text(text, encoding="utf-8")


def pages(
    found: Sequence[Record],
    figures: Mapping[str, Sequence[str]] | None = None,
    items: Mapping[str, Item] | None = None,
    *,
    name: str = "claims",
) -> dict[str, str]:
    """The pages by file name: the summary, then one per paper; `figures` are the paths to show for an item's id.

    A record whose version or sizes are not those of its item among `items` (the registered ones) is no verdict: it is
    listed as outdated.
    """
    known = registry.items() if items is None else items
    now = [record for record in found if record.current(known.get(record.id))]
    old = [record for record in found if not record.current(known.get(record.id))]
    shown = Shown(now, old, known, figures or {})
    made: dict[str, list[str]] = {
        f"{name}.md": [
            _HEAD.replace("FOLDER", name), *_setting(now), *opening.summary(shown, name), _LEGEND,
            *_outdated(old, known),
        ]
    }  # fmt: skip
    for paper, title in PAPERS.items():
        own = opening.beyond(shown) if paper == "beyond" else opening.claims(paper, shown)
        parts = [f"# {title}", f"\n[All papers](../{name}.md)", *own, *opening.findings(paper, shown)]
        of_paper = [record for record in now if record.id.startswith(f"{paper}/")]
        parts += ["\n# Items", _WHOLE.replace("NAME", name)] if of_paper else []
        made[f"{name}/{paper}.md"] = parts + [_section(record, shown.figures.get(record.id, [])) for record in of_paper]
    made[f"{name}/changed.md"] = [_CHANGED, *revisions.lines()]
    return {file: "\n".join(parts).rstrip() + "\n" for file, parts in made.items()}


def _setting(found: Sequence[Record]) -> list[str]:
    if not found:
        return ["\nNo item ran yet."]
    done = [record for record in found if record.status == "done"]
    versions = ", ".join(sorted({record.firstguess for record in found}))
    minutes = sum(record.seconds for record in done) / 60
    size = "quick" if found[0].quick else "full"
    return [f"\nfirstguess {versions}, {size} settings, {len(done)} items, {minutes:.0f} minutes of work. Verdicts:"]


def _outdated(old: Sequence[Record], known: Mapping[str, Item]) -> list[str]:
    if not old:
        return []
    lines = ["\n# Outdated", "", "These ran before their items were changed. Their numbers are not shown.", ""]
    for record in old:
        item = known.get(record.id)
        if item is None:
            lines.append(f"- {record.id}: no such item any more")
            continue
        what = f"version {record.version}, now {item.version}" if record.version != item.version else "other sizes"
        lines.append(f"- {record.id} ({what}): outdated: run `firstguess reproduce {record.id}`")
    return ["\n".join(lines)]


def _section(record: Record, figures: Sequence[str]) -> str:
    """An item: its first figure and a line a claim; how it was done, notes and other figures are folded below."""
    lines = [f"\n## {record.id}", "", f"**{record.title}** ({record.where})"]
    if record.status != "done":
        return "\n".join([*lines, "", f"Setting: {record.settings}", "", f"*{record.status}*: {record.reason}"])
    lines += ["", *(f"![{record.title}]({figure})\n" for figure in figures[:1])]
    lines += ["| claim | verdict | measured | tested |", "|---|---|---|---|"]
    for entry in record.entries:
        why = f": {cut(said(entry), _ROOM)}" if entry.why else ""
        texts = (f"**{entry.verdict}**{why}", cut(entry.measured, _ROOM), cut(entry.statement, _ROOM))
        lines.append(f"| {entry.claim} | {' | '.join(cell(text) for text in texts)} |")
    notes = "".join(f"\n- {note}" for note in record.notes)
    lines += ["", '<details markdown="1"><summary>How it was done</summary>', ""]
    lines += [f"{record.settings} {record.seconds:.0f} s. {_ran(record)}", *([notes] if notes else [])]
    lines += [f"\n![{record.title}]({figure})" for figure in figures[1:]]
    return "\n".join([*lines, "", "</details>"])


def _ran(record: Record) -> str:
    """On which code."""
    fixed = {"": "", UNCOMMITTED: "checks not committed before it ran"}
    checks = fixed.get(record.checks, f"checks fixed in {record.checks}")
    more = f"{2**record.look} times the planned networks, look {record.look} after the first" if record.look else ""
    seed, commit = f"seed {record.seed}" if record.seed else "", f"commit {record.commit}" if record.commit else ""
    said = ", ".join(part for part in (f"version {record.version}", seed, commit, checks, more) if part)
    return f"{said[0].upper()}{said[1:]}."


def _small_copy(source: Path, target: Path) -> None:
    """A figure for a page: at most 1400 pixels wide, in 255 colours, a tenth of the bytes."""
    from PIL import Image

    with Image.open(source) as image:
        shown = image.convert("RGB")
        if shown.width > _PIXELS:
            shown = shown.resize((_PIXELS, round(shown.height * _PIXELS / shown.width)), Image.Resampling.LANCZOS)
        method = Image.Quantize.MAXCOVERAGE  # the default, by medians, turned a thin blue line green
        shown.quantize(255, method=method, dither=Image.Dither.NONE).save(target, optimize=True)


def _relative(path: Path, start: Path) -> str:
    import os

    return Path(os.path.relpath(path, start)).as_posix()
