"""A watched training as one HTML file that opens offline, in the report's style."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from firstguess.base import files
from firstguess.base.text import brief, capital, percent, spaced
from firstguess.show.charts.theme import number, unbroken
from firstguess.theory.training.curves import FAVOURED, OTHERS
from firstguess.watch.evaluation import Look, reached
from firstguess.watch.seen import WatchedTraining, early, thinned

_ROWS = 24  # looks in the table; all are in `to_dict`
_CLASSES = 50


def write(w: WatchedTraining, path: str | Path) -> Path:
    """Write the page to `path`, which ends in .html; gives the path back."""
    target = files.checked(path, (".html", ".htm"), said=".html", example="training.html")
    return files.write(target, page(w).encode())


def page(w: WatchedTraining) -> str:
    """The text of the file, with everything in it: chart, libraries, style."""
    from firstguess.show.report.pages import figure, plain
    from firstguess.show.report.pages import page as rendered
    from firstguess.watch.chart import watch_chart

    chart = None
    if any(not look.lost for look in w.looks):
        chart = figure("training", watch_chart(w, title=unbroken(_title(w))).to_dict(validate=False))
    badge, tone = _badge(w)
    model = str(w.provenance.get("model", "a model")).rsplit(".", 1)[-1]
    some = "" if len(w.looks) <= _ROWS else f"{len(thinned(w.looks, _ROWS))} of "
    last = f"step {spaced(w.looks[-1].step)}" if w.looks else "no step"
    error = unbroken(f"{100 * math.sqrt(0.25 / max(w.points, 1)):.0f} %")
    of = ("labels" if w.labels is not None else "classes") if np.isfinite(w.left).any() else ""
    origin = [*([key, plain(value)] for key, value in w.provenance.items()), ["cost", str(w.full_cost)]]
    context: dict[str, Any] = {"w": w, "model": model, "badge": badge, "tone": tone, "chart": chart, "last": last}
    context |= {"points": spaced(w.points), "error": error, "level": unbroken(percent(w.level)), "left_of": of}
    context |= {"favourite": w.name(w.favourite), "due": unbroken(percent(w.due)), "early": early(w) if w.early else ""}
    context |= {"cards": _cards(w), "predicted": _predicted(w), "classes": _classes(w), "start": _first(w)}
    context |= {"looks": _looks(w), "looks_title": f"{some}{len(w.looks)} looks", "provenance": origin}
    return rendered("watch.html", f"{model}: {badge} · firstguess", context)


def _badge(w: WatchedTraining) -> tuple[str, str]:
    """A word, and the class of the report's style that has its colour."""
    at = w.absorbed_at
    if not w.looks:
        return "not looked at", "not-known"
    if w.diverged is not None:
        return "not finite", "fix-this"
    if not w.start_known:
        return "start not known", "not-known"
    if at == 0.0:
        return "hardly any bias", "nothing-to-do"
    return ("not absorbed", "worth-a-change") if math.isinf(at) else ("absorbed", "harmless")


def _title(w: WatchedTraining) -> str:
    """A title of the chart: what the headline has not said yet."""
    fine = [i for i, look in enumerate(w.looks) if not look.lost]
    a, b, c = fine[0], fine[-1], w.favourite
    first, last = (percent(float(w.shares[at, c])) for at in (a, b))
    words = f"{w.name(c)}: {first} of the guesses at first, {last} at last"
    if w.labels is not None:
        others = w.accuracy[OTHERS].draws[0]
        who = "the others" if w.classes > 2 else w.name(1 - c)
        words += f"; recall of {who} {percent(float(others[a]))} → {percent(float(others[b]))}"
    return capital(words)


def _first(w: WatchedTraining) -> str:
    """The first look that is known, by a name."""
    return "start" if w.start_known or not w.looks else f"step {spaced(_fine(w)[0].step)}" if _fine(w) else ""


def _fine(w: WatchedTraining) -> list[Look]:
    return [look for look in w.looks if not look.lost]


def _cards(w: WatchedTraining) -> list[tuple[str, str, str]]:
    """A number, what it is, and what else is to be known of it."""
    fine = _fine(w)
    if not fine:
        return []
    first, last = fine[0], fine[-1]
    where = f"at {'the ' * w.start_known}{_first(w)}"
    even = f"an even split is {percent(1 / w.classes)}"
    if w.labels is not None:
        even = f"of the labels {percent(float(np.bincount(w.labels).max() / len(w.labels)))}"
    words = f"{where} and at step {spaced(last.step)}; {even}"
    cards = [(f"{percent(first.largest)} → {percent(last.largest)}", "of the guesses in the largest class", words)]
    at, left = w.absorbed_at, float(w.left[-1])
    rest = "" if math.isnan(left) else f"; {percent(left)} of the starting bias is left"
    if math.isfinite(at) and at > 0:
        what = "bias absorbed" if w.start_known else "one class no longer leads"
        cards.append((f"step {reached(at)}", what, f"largest share down to {percent(w.level)}{rest}"))
    elif math.isinf(at):
        cards.append(("not yet", "absorbed", f"that is a largest share of {percent(w.level)} or less{rest}"))
    if w.labels is not None:
        pair = [w.accuracy[which].draws[0] for which in (FAVOURED, OTHERS)]
        known = [values[np.isfinite(values)] for values in pair]
        begin = [percent(float(values[0])) for values in pair]
        end = [percent(float(values[-1]) if len(values) else math.nan) for values in known]
        others = "the others" if w.classes > 2 else w.name(1 - w.favourite)
        words = f"recall of {w.name(w.favourite)} / {others}, {where}"
        cards.append((f"{begin[0]} / {begin[1]}", words, f"{end[0]} / {end[1]} at step {spaced(last.step)}"))
    cost = w.full_cost
    if cost.looks and not math.isnan(cost.share):
        each, took = f"{cost.looks} looks of {brief(cost.seconds / cost.looks)}", cost.share
        if not math.isnan(cost.later):
            each, took = f"{each}; {100 * cost.share:.1f} % with the first, close ones", cost.later
        cards.append((f"{100 * took:.1f} %", "of the training's time went into looks", each))
    return cards


def _predicted(w: WatchedTraining) -> list[list[str]]:
    t = w.predicted
    if t is None:
        return []
    seen = "not yet" if math.isinf(w.absorbed_at) else f"step {reached(w.absorbed_at)}"
    at = t.absorption.median
    rows = [["bias absorbed", f"step {reached(at)}" if math.isfinite(at) else "not yet", seen]]
    mine = dict(zip(w.steps.tolist(), w.largest.draws[0], strict=True))
    its = dict(zip(t.steps.tolist(), t.largest.mean, strict=True))
    both = [step for step in its if step in mine]
    for step in dict.fromkeys((*both[:: max(1, len(both) // 5)], both[-1])):
        rows.append([f"largest share at step {spaced(step)}", percent(float(its[step])), percent(float(mine[step]))])
    return rows


def _classes(w: WatchedTraining) -> list[list[str]]:
    """Names of the columns, then the classes that were guessed most."""
    fine = [i for i, look in enumerate(w.looks) if not look.lost]
    if not fine:
        return []
    a, b = fine[0], fine[-1]
    end = f"step {spaced(w.looks[b].step)}"
    shares, recall = w.shares, w.recall
    order = np.argsort(-shares[a], kind="stable")[:_CLASSES].tolist()
    rows = [["Class", f"guessed, {_first(w)}", end]]
    rows += [[w.name(c), _known(shares[a, c]), _known(shares[b, c])] for c in order]
    if w.labels is None:
        return rows
    due = np.bincount(w.labels, minlength=w.classes) / len(w.labels)
    own = ["of the labels", *(_known(float(due[c])) for c in order)]
    found = [[f"recall, {_first(w)}", end], *([_known(recall[a, c]), _known(recall[b, c])] for c in order)]
    return [[row[0], one, *row[1:], *both] for row, one, both in zip(rows, own, found, strict=True)]


def _looks(w: WatchedTraining) -> list[list[str]]:
    """Names of the columns, then the looks, or some of many."""
    if not w.looks:
        return []
    labelled = w.labels is not None
    heads = ["Step", "largest share", "its class", "bias left"]
    heads += ["recall, favoured", "recall, others", "accuracy", "loss"] if labelled else []
    left, curves = w.left, w.curves
    columns = [curves.accuracy[which].draws[0] for which in (FAVOURED, OTHERS)] if labelled else []
    rows = [[*heads, "γ"]]
    for i in thinned(w.looks, _ROWS):
        look = w.looks[i]
        top = "NaN or Inf" if look.lost else w.name(int(np.argmax(look.shares)))
        row = [spaced(look.step), _known(look.largest), top, _known(left[i])]
        if labelled:
            row += [*(_known(values[i]) for values in columns), _known(curves.accuracy.draws[0, i]), _value(look.loss)]
        rows.append([*row, _value(look.gamma)])
    return rows


def _known(value: float) -> str:
    return "–" if math.isnan(value) else unbroken(percent(float(value)))


def _value(value: float) -> str:
    return number(float(value)) if not math.isnan(value) else "–"
