"""Records → `docs/claims.md`, a summary, and a page per paper: its claims, findings, then every item."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstguess_papers import records, registry
from firstguess_papers.claims import CLAIMS, FINDINGS, REVISIONS, TOPICS, Finding
from firstguess_papers.items import MEANINGS, PAPERS, VERDICTS, Entry, Item
from firstguess_papers.judging import UNDECIDED
from firstguess_papers.records import UNCOMMITTED, Record

_LETTERS = {"igb": "I", "norm": "N", "mf": "M", "beyond": "B"}
_COLUMNS = "| | claim | verdict | in one line | items |\n|---|---|---|---|---|"
_LINE, _EVIDENCE = 100, 160  # characters of a number's line, and of a finding's evidence
_TELLING = ("does not hold", "holds with a limit", "holds", "not tested")  # which of several entries is shown
MARKS = {"holds": "✓", "holds with a limit": "◐", "does not hold": "✗", "not tested": "○"}
_WORDS = {"not tested": "undecided"}  # what it means of an item that ran
BEYOND = "beyond the paper"  # how statements begin that a paper's claim does not make
_PIXELS = 1400
_ROOM = 110  # characters of what was measured, asked or found that a page shows
_HEAD = """# What holds: the claims of the three papers, measured

Written by `firstguess reproduce`; do not edit. Numbers are value ± one standard error. A verdict follows from checks in
code (`papers/src/firstguess_papers/judging.py`): a difference counts from four standard errors on, equality means
within a stated margin that the errors could resolve. Margins and sizes were chosen before looking, except [those listed
here](FOLDER/changed.md); each item names the commit that fixed its checks, where it was recorded. What is undecided,
and why, has [a page of its own](FOLDER/undecided.md).
"""
_LEGEND = """
## What the verdicts mean
{}
- **outdated**: the item was changed since it ran; its numbers are not shown. **open**: there is no item yet.
"""
_WHOLE = "\nWhere a text ends in …, the rest is in the item's file in `docs/NAME/records`."
_UNDECIDED = """# Undecided, and why

Errors are too large, or there is nothing to compare. `firstguess reproduce ITEM --until-decided` adds networks where
they can help: up to three further looks with 2, 4 and 8 times as many. All further looks together have the chance to
err of the first, so that a difference counts from 4.25 standard errors on. What is called no difference in a check was
stated before sampling went on; it is excluded by two standard errors.
"""
_CHANGED = "# Checks and sizes that were changed after a first look\n\nThose verdicts are less than blind.\n"


@dataclass(frozen=True)
class Shown:
    """What there is to show: records that are current, those that are not, all items, and figures by item."""

    records: Sequence[Record]
    outdated: Sequence[Record]
    items: Mapping[str, Item]
    figures: Mapping[str, Sequence[str]]

    def entries(self, claim: str) -> list[tuple[Record, Entry]]:
        """What was found on a claim."""
        return [(record, entry) for record in self.records for entry in record.entries if entry.claim == claim]

    def state(self, item: str) -> str:
        """Why an item has nothing to show."""
        if item not in self.items:
            return "no item yet"
        if any(record.id == item for record in self.outdated):
            return f"outdated: run `firstguess reproduce {item}`"
        return f"not run: `firstguess reproduce {item}`"


def summary(shown: Shown, folder: str) -> list[str]:
    """One screen: verdicts of all checks by paper, what was found wrong, and where the pages are."""
    rows: list[tuple[str, list[int]]] = []
    for paper, letter in _LETTERS.items():
        own = [claim for claim in CLAIMS if claim[0] == letter]
        told = [entry.verdict for claim in own for _, entry in shown.entries(claim)]
        old = sum(record.id.startswith(f"{paper}/") for record in shown.outdated)
        left = sum(not any(claim in item.claims for item in shown.items.values()) for claim in own)
        counts = [len(own), *(told.count(verdict) for verdict in VERDICTS), old, left]
        rows.append((f"[{PAPERS[paper]}]({folder}/{paper}.md)", counts))
    total = [sum(counts) for counts in zip(*(counts for _, counts in rows), strict=True)]
    seen = [k for k, n in enumerate(total) if n or k <= len(VERDICTS)]  # "outdated" and "open" where there are some
    heads = ("claims", *map(marked, (*VERDICTS, "outdated", "open")))
    lines = [f"| | {' | '.join(heads[k] for k in seen)} |", "|---" * (1 + len(seen)) + "|"]
    lines += [f"| {name} | {' | '.join(str(counts[k] or '–') for k in seen)} |" for name, counts in rows]
    lines.append(f"| in all | {' | '.join(f'**{total[k]}**' if total[k] else '–' for k in seen)} |")
    kept = [finding for finding in FINDINGS if _kept(finding, shown)]
    parts = ["\n" + "\n".join(lines)]
    if kept:
        parts.append("\n## What the papers have wrong or incomplete\n")
        parts += [f"- [{f.title}]({folder}/{paper_of(f.claim)}.md#{anchor(f.title)}) ({f.claim})" for f in kept]
    return parts


def marked(verdict: str) -> str:
    """A verdict with its mark, which is found faster than a word.

    >>> marked("holds"), marked("outdated")
    ('✓ holds', 'outdated')
    """
    return f"{MARKS[verdict]} {_WORDS.get(verdict, verdict)}" if verdict in MARKS else verdict


def counts(paper: str, shown: Shown) -> str:
    """How often each verdict was given, on a paper's page."""
    told = [entry.verdict for claim in CLAIMS if paper_of(claim) == paper for _, entry in shown.entries(claim)]
    return ", ".join(f"{marked(verdict)} {told.count(verdict)}" for verdict in VERDICTS if verdict in told)


def paper_of(claim: str) -> str:
    """The paper, or "beyond", whose page has a claim."""
    return next(paper for paper, letter in _LETTERS.items() if letter == claim[0])


def claims(paper: str, shown: Shown) -> list[str]:
    """A paper's claims; of ours by topic, open ones, too."""
    return [f"\n{_COLUMNS}", *(_row(claim, shown) for claim in CLAIMS if paper_of(claim) == paper)]


def _kept(finding: Finding, shown: Shown) -> bool:
    """Whether the records say so."""
    own = _own(finding, shown)
    return bool(own) and all(entry.verdict in finding.verdicts and not entry.why.startswith(UNDECIDED) for entry in own)


def _own(finding: Finding, shown: Shown) -> list[Entry]:
    told = shown.entries(finding.claim)
    return [entry for record, entry in told if finding.about in entry.statement and record.id == finding.item]


def findings(paper: str, shown: Shown) -> list[str]:
    """Where a paper is wrong or incomplete, as far as records say so; then those that are open."""
    parts: list[str] = []
    left: list[str] = []
    for finding in (one for one in FINDINGS if paper_of(one.claim) == paper):
        evidence = [both for both in shown.entries(finding.claim) if finding.about in both[1].statement]
        own = _own(finding, shown)
        if _kept(finding, shown):
            parts.append(_finding(finding, evidence, shown))
        else:
            said = f"the record says: {'; '.join(e.verdict for e in own)}" if own else shown.state(finding.item)
            left.append(f"- {finding.title}? ({finding.claim}, {finding.item}; {said})")
    if parts:
        parts.insert(0, "\n# Wrong or incomplete")
    if left:
        parts.append("\n## Open\n\nLooked for, and not (or not yet) found by a record:\n\n" + "\n".join(left))
    return parts


def _row(claim: str, shown: Shown) -> str:
    told, c = shown.entries(claim), CLAIMS[claim]
    text = f"{f'*{TOPICS[claim]}.* ' if claim in TOPICS else ''}{c.text} ({c.where})"
    if told:
        asked = [(r, e) for r, e in told if not e.statement.startswith(BEYOND)] or told  # what the claim itself says
        verdicts = "; ".join(dict.fromkeys(marked(entry.verdict) for _, entry in asked))
        links = ", ".join(dict.fromkeys(_link(r.id) for r, _ in told))
        number = telling(asked)
    else:
        ids = [item.id for item in shown.items.values() if claim in item.claims]
        old = [record.id for record in shown.outdated if claim in record.claims]
        verdicts = "outdated" if old else marked("not tested") if ids else "open"
        number, links = "–", ", ".join(dict.fromkeys((*old, *ids))) or "–"
    return f"| {c.id} | {cell(text)} | **{verdicts}** | {cell(number)} | {links} |"


def _finding(finding: Finding, evidence: Sequence[tuple[Record, Entry]], shown: Shown) -> str:
    lines = [f"\n## {finding.title}", "", f"{finding.text} ({finding.claim})", ""]
    for record, entry in evidence:
        number = entry.headline or cut(entry.measured, _EVIDENCE)
        lines.append(f"- {_link(record.id)}, **{marked(entry.verdict)}**: {number}")
    figures = shown.figures.get(finding.item, ())
    wanted = [figure for figure in figures if finding.chart and figure.endswith(finding.chart)] or list(figures[:1])
    lines += [line for figure in wanted for line in ("", f"![{finding.title}]({figure})")]
    return "\n".join(lines)


def telling(told: Sequence[tuple[Record, Entry]]) -> str:
    """One line of number for a claim: a headline if an entry has one, else what decided it, cut.

    Where several items answer for a claim it says whose number that is.
    """
    record, entry = min(told, key=lambda both: (not both[1].headline, _TELLING.index(both[1].verdict)))
    source = f" ({record.id})" if len({r.id for r, _ in told}) > 1 else ""
    return (entry.headline or cut(entry.measured, _LINE)) + source


def cut(text: str, room: int) -> str:
    """The beginning of a text of numbers: whole clauses if one fits, else up to a value with its error, else words.

    >>> cut("std 0.2313 ± 0.0039; largest 0.69 ± 0.01", 24), cut("width 30: γ = 0.459 ± 0.019 and more of it", 32)
    ('std 0.2313 ± 0.0039 …', 'width 30: γ = 0.459 ± 0.019 …')
    """
    if len(text) <= room:
        return text
    for mark in ("; ", ", "):
        parts = text.split(mark)
        for many in range(len(parts) - 1, 0, -1):
            kept = mark.join(parts[:many])
            if len(kept) <= room and kept.count("(") == kept.count(")"):
                return kept + " …"
    words = text.split(" ")
    fits = [many for many in range(1, len(words)) if len(" ".join(words[:many])) <= room]
    whole = [many for many in fits if many > 1 and words[many - 2] == "±"]
    apart = [many for many in fits if "±" not in (words[many - 1], words[many])]
    return " ".join(words[: max(whole or apart or [1])]) + " …"


def said(entry: Entry) -> str:
    """Why an entry has its verdict. Older records send readers of full runs to full runs."""
    return entry.why.removesuffix(": run the full setting")


def _link(id: str) -> str:
    """To an item, from any paper's page."""
    return f"[{id}]({id.partition('/')[0]}.md#{anchor(id)})"


def anchor(heading: str) -> str:
    """As GitHub makes it from a heading."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def cell(text: str) -> str:
    """For a table."""
    return text.replace("|", "\\|").replace("\n", " ")


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
                    shown.setdefault(record.id, []).append(Path(os.path.relpath(target, folder)).as_posix())
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
            _HEAD.replace("FOLDER", name), *_setting(now), *summary(shown, name),
            _LEGEND.format("".join(f"\n- **{marked(verdict)}**: {words}." for verdict, words in MEANINGS.items())),
            *_outdated(old, known),
        ]
    }  # fmt: skip
    for paper, title in PAPERS.items():
        told = counts(paper, shown)
        parts = [f"# {title}", f"\n[All papers](../{name}.md){told and f': {told}.'}"]
        parts += [*claims(paper, shown), *findings(paper, shown)]
        of_paper = [record for record in now if record.id.startswith(f"{paper}/")]
        parts += ["\n# Items", _WHOLE.replace("NAME", name)] if of_paper else []
        made[f"{name}/{paper}.md"] = parts + [_section(record, shown.figures.get(record.id, [])) for record in of_paper]
    left = [(r, e) for r in now for e in r.entries if e.verdict == "not tested"]
    made[f"{name}/undecided.md"] = [_UNDECIDED, *(f"- {_link(r.id)}: {_line(e, 3 * _ROOM)}" for r, e in left)]
    made[f"{name}/changed.md"] = [_CHANGED, *(f"- **{claims}**: {text}." for claims, text in REVISIONS.items())]
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
        now = known[record.id].version if record.id in known else None
        what = f"version {record.version}, now {now}" if record.version != now else "other sizes"
        again = f" ({what}): outdated: run `firstguess reproduce {record.id}`"
        lines.append(f"- {record.id}{': no such item any more' if now is None else again}")
    return ["\n".join(lines)]


def _section(record: Record, figures: Sequence[str]) -> str:
    """An item: its first figure and a line a claim; settings, notes and other figures are folded below."""
    lines = [f"\n## {record.id}", "", f"**{record.title}** ({record.where})"]
    if record.status != "done":
        return "\n".join([*lines, "", f"Setting: {record.settings}", "", f"*{record.status}*: {record.reason}"])
    lines += ["", *(f"![{record.id}]({figure})\n" for figure in figures[:1])]
    lines += [f"- {_line(entry)}" for entry in record.entries]
    notes = "".join(f"\n- {note}" for note in record.notes)
    lines += ["", '<details markdown="1"><summary>Settings</summary>', ""]
    lines += [f"{record.settings} {record.seconds:.0f} s. {_ran(record)}", *([notes] if notes else [])]
    lines += [f"\n![{record.id}]({figure})" for figure in figures[1:]]
    return "\n".join([*lines, "", "</details>"])


def _line(entry: Entry, room: int = _ROOM) -> str:
    why = f" {_sentence(cut(said(entry), room))}" if entry.why else ""
    texts = _sentence(cut(entry.measured, room)), _sentence(cut(entry.statement, room))
    return f"{entry.claim} **{marked(entry.verdict)}**:{why} *Measured:* {texts[0]} *Tested:* {texts[1]}"


def _sentence(text: str) -> str:
    return " ".join(text.split()) + ("" if text.endswith(("…", ".")) else ".")


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
