"""`firstguess reproduce`: the papers' figures and claims, computed again."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstguess import InvalidInput
from firstguess.cli.output import Json, print_json, print_pairs, print_table, say
from firstguess.cli.subjects import DataDir

if TYPE_CHECKING:
    from firstguess_papers.items import Item
    from firstguess_papers.records import Record
    from firstguess_papers.running import Progress

EXAMPLES = """Examples:

firstguess reproduce --list

firstguess reproduce igb/fig5 --quick

firstguess reproduce igb/fig5 --quick --set width=400

firstguess reproduce igb norm --quick --data-dir data

firstguess reproduce all --data-dir data --ledger docs/claims.md

firstguess reproduce norm --quick --engine local

firstguess reproduce norm/fig-g5-starts --until-decided --engine local

firstguess reproduce --ledger docs/claims.md
"""


def _items(incomplete: str) -> list[str]:
    """What the Tab key offers: items, papers, all."""
    from firstguess_papers.items import PAPERS
    from firstguess_papers.registry import items

    return [word for word in ("all", *PAPERS, *items()) if word.startswith(incomplete)]


def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="ITEM", autocompletion=_items, help='igb/fig5, a paper (igb, norm, mf), or "all".'),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show what there is.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small settings: seconds per item.")] = False,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where results go.")] = Path("out/reproduce"),
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the page of claims, from all full runs kept by it.")
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy that page's figures there. [default: next to it, for full runs]"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SIZE=VALUE", help="Another size, e.g. width=400 (several: n=100,800)."),
    ] = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add networks until no verdict is left open by its errors.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Ignore what was computed before.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    engine: Annotated[
        str | None,
        typer.Option(help="Several items at once, one thread each: local (processes) or ray. [default: one by one]"),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster whose nodes share the output folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Recompute figures and claims of the papers: numbers as Parquet, figures, and a ledger of what holds.

    Ctrl-C keeps what is done; the same command resumes from there. Items whose data or packages are absent are skipped,
    and say how to get them. Exit code 1: an item failed, or all were skipped.

    With --ledger FILE.md, records of full runs are kept in FILE/records and shown by later runs, too, also on other
    machines: full runs can be split. Without ITEM the page is written from what is there.
    """
    from firstguess_papers import ledger as ledger_page
    from firstguess_papers import records, registry

    if list_ or not (what or ledger):
        _show_list(registry.choose(what or ["all"]), json)
        return
    if figures is not None and ledger is None:
        raise InvalidInput("--ledger with --figures", got="--figures alone", hint="--ledger docs/claims.md")
    chosen = registry.choose(what or [])
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        hint = "the folder that holds mnist, cifar10 …"
        raise InvalidInput("a folder that exists", got=str(data_dir), where="--data-dir", hint=hint)
    if quick and ledger is not None and records.kept(records.kept_in(ledger)):
        got = f"{ledger}, which has full ones"
        raise InvalidInput("another page for quick runs", got=got, where="--ledger", hint="out/claims.md")
    if engine not in (None, "local", "ray"):
        raise InvalidInput("local or ray", got=engine, where="--engine", hint="--engine ray")
    changed = _changed(set_ or [])
    if changed and ledger is not None:
        expected = "the published settings, for the ledger"
        raise InvalidInput(expected, got="--set", where="--ledger", hint="without --set")
    for item in chosen:
        item.sizes(quick, changed)  # what is no size of it is said before anything runs
    _make(out)
    options: dict[str, Any] = {"quick": quick, "data_dir": data_dir and str(data_dir), "seed": seed, "fresh": fresh}
    options |= {"until_decided": until_decided} | ({"changed": changed} if changed else {})
    runs = _run_all(chosen, out, options) if engine is None else _run_together(chosen, out, options, engine, address)
    done = list(runs)
    known = registry.items()
    here = records.read_all(out, quick, list(known))
    path = records.folder_of(out, quick, "", changed) if changed else records.write_ledger(out, here, quick).parent
    if ledger is not None:
        if not quick:
            folder = records.kept_in(ledger)
            here = records.merged(records.kept(folder), here, known, ran=[record.id for record in done])
            records.keep(folder, here)
        ledger_page.write(ledger, here, out=out, figures=figures if quick else figures or ledger.with_suffix(""))
        say(f"wrote {ledger}")
    if json:
        print_json([record.to_dict() for record in done])
    else:
        _show(done, ", ".join(set_ or []))
        say(f"files in {path}")
    if done and all(record.status == "skipped" for record in done):
        say("nothing ran: every item was skipped")
        raise typer.Exit(1)
    if any(record.status == "failed" for record in done):
        raise typer.Exit(1)


reproduce.examples = EXAMPLES  # pyright: ignore[reportFunctionMemberAccess]


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = f"{out} ({error.strerror})"
        raise InvalidInput("a folder that can be made", got=got, where="--out", hint="--out out/reproduce") from None


def _run_all(chosen: Sequence[Item], out: Path, options: dict[str, Any]) -> Generator[Record]:
    from firstguess_papers.execute import run_item

    cost = 0.0
    for index, item in enumerate(chosen, start=1):
        started, worked = time.perf_counter(), time.process_time()
        with _bar(f"[{index}/{len(chosen)}] {item.id}") as progress:
            try:
                record = run_item(item, out, progress=progress, **options)
            except KeyboardInterrupt:
                say(f"stopped in {item.id}: what is done is kept in {out}; the same command resumes from there")
                raise
        worked = time.process_time() - worked
        processor = f", {worked:.1f} s of processor time ({item.seconds[not options['quick']]:.0f} s declared)"
        _tell(record, index, len(chosen), time.perf_counter() - started, processor)
        cost += record.seconds
        yield record
    if len(chosen) > 1:
        say(f"{len(chosen)} items: {_duration(cost)} of work")


def _run_together(
    chosen: Sequence[Item], out: Path, options: dict[str, Any], engine: Any, address: str | None
) -> Generator[Record]:
    """Several at once; records in the order of the list, told as they come."""
    from firstguess_papers.execute import run_items

    started = time.perf_counter()
    found: dict[str, Record] = {}
    try:
        for record in run_items(chosen, out, engine=engine, address=address, **options):
            found[record.id] = record
            _tell(record, len(found), len(chosen), record.seconds)
    except KeyboardInterrupt:
        say(f"stopped: what is done is kept in {out}; the same command resumes from there")
        raise
    cost = sum(record.seconds for record in found.values())
    say(f"{len(chosen)} items: {_duration(cost)} of work in {_duration(time.perf_counter() - started)}")
    yield from (found[item.id] for item in chosen)


def _tell(record: Record, index: int, count: int, took: float, processor: str = "") -> None:
    before = f" ({record.seconds:.1f} s with what was kept)" if record.seconds > took + 1 else ""
    words = {
        "done": f"{took:.1f} s{before}{processor}",
        "skipped": f"skipped: {record.reason}",
        "failed": f"failed: {record.reason}",
    }
    say(f"[{index}/{count}] {record.id}: {words[record.status]}")


@contextmanager
def _bar(label: str) -> Generator[Progress]:
    """A line on a terminal's stderr that names the piece under way."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    task = shown.add_task(label, total=None)

    def update(what: str, done: int, total: int) -> None:
        words = what if len(what) < 60 else what[:59] + "…"
        shown.update(task, description=f"{label}: {words}".replace("[", "\\["), completed=done, total=total)

    with shown:
        yield update


def _show_list(chosen: Sequence[Item], json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"id": item.id, "title": item.title, "claims": [*item.claims], "needs": [*item.needs, *item.packages]}
        | {"quick": item.settings(quick=True), "full": item.settings(quick=False)}
        | dict(zip(("seconds_quick", "seconds_full"), item.seconds, strict=True))
        for item in chosen
    ]
    if json:
        print_json(rows)
        return
    cells = [
        (row["id"], row["title"], " ".join(row["claims"]), " ".join(row["needs"]) or "–",
         f"{row['seconds_quick']:.0f} s", f"{row['seconds_full']:.0f} s")
        for row in rows
    ]  # fmt: skip
    quick, full = (_duration(sum(item.seconds[size] for item in chosen)) for size in (0, 1))
    cells.append((f"{len(chosen)} items", "in all, processor time (estimates)", "", "", quick, full))
    columns = ["item", "title", "claims", "needs", "quick", "full"]
    print_table("Figures and claims that can be reproduced", columns, cells, wrap=("title", "claims", "needs"))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _changed(given: Sequence[str]) -> dict[str, Any]:
    """Sizes by name, from `name=value` or `name=value,value`.

    >>> _changed(["width=400", "n=100,800", "rate=1e-3"])
    {'width': 400, 'n': (100, 800), 'rate': 0.001}
    """
    found: dict[str, Any] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier() or not text:
            raise InvalidInput("SIZE=VALUE", got=one, where="--set", hint="--set width=400")
        values = [_number(part) for part in text.split(",")]
        found[name] = values[0] if len(values) == 1 else tuple(values)
    return found


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _show(done: Sequence[Record], changed: str) -> None:
    from firstguess_papers.claims import CLAIMS
    from firstguess_papers.items import MEANINGS

    for record in done:
        for entry in record.entries:
            why = [("because", entry.why)] if entry.why else []
            claimed = [("claim", CLAIMS[entry.claim].text)] if entry.claim in CLAIMS else []
            own = [("sizes", f"{changed}: not the published setting, and not for the ledger")] if changed else []
            means = f"{entry.verdict}: {MEANINGS[entry.verdict]}"
            found = [("tested", entry.statement), ("measured", entry.measured), ("verdict", means)]
            print_pairs(f"{entry.claim}  {record.id}", [*claimed, *found, *why, *own])
