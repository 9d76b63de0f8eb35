"""A watched training as one HTML file that opens offline, in the report's style."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from firstguess.base import files
from firstguess.base.text import brief, spaced
from firstguess.show.charts.theme import number, unbroken
from firstguess.show.report.elements import table, tag
from firstguess.theory.training.curves import FAVOURED, OTHERS
from firstguess.watch import wording
from firstguess.watch.evaluation import reached, share
from firstguess.watch.seen import Seen, thinned

_ROWS = 24  # looks in the table; all are in `to_dict`
_CLASSES = 50


def write(w: Seen, path: str | Path) -> Path:
    """Write the page to `path`, which ends in .html; gives the path back."""
    target = files.checked(path, (".html", ".htm"), said=".html", example="training.html")
    return files.write(target, page(w).encode())


def page(w: Seen) -> str:
    """The text of the file, with everything in it: chart, libraries, style."""
    from firstguess.show.charts.watched import watch_chart
    from firstguess.show.report.charts import figure
    from firstguess.show.report.document import whole

    drawn: dict[str, Markup] = {}
    if any(not look.lost for look in w.looks):
        spec: dict[str, Any] = watch_chart(w, title=unbroken(_title(w))).to_dict(validate=False)
        drawn["training"] = figure("training", spec)
    body = [
        _head(w),
        _cards(w),
        _section("training", "What training does to the guesses", drawn.get("training"), _reading(w)),
        _section("early", "Evaluated before absorption", _early(w)),
        _section("predicted", "Predicted and seen", _predicted(w)),
        _section("classes", "By class", _classes(w)),
        _section("looks", "All looks", _looks(w)),
        _section("notes", "Notes", tag("ul", *(tag("li", _sentence(note)) for note in w.notes)) if w.notes else None),
        _section("provenance", "How this was made", _provenance(w)),
    ]
    return whole(f"{_model(w)}: {_badge(w)[0]} · firstguess", body, drawn)


def _head(w: Seen) -> Markup:
    badge, tone = _badge(w)
    last = f"step {spaced(w.looks[-1].step)}" if w.looks else "no step"
    return tag(
        "header",
        tag("p", "firstguess: how training absorbs what a network believed at its start", class_="eyebrow"),
        tag("h1", f"Training of {_model(w)}"),
        tag(
            "div",
            tag("p", tag("strong", badge, class_="badge"), tag("span", f" as of {last}", class_="soft")),
            tag("p", _sentence(w.finding), class_="headline"),
            class_=f"verdict {tone}",
        ),
    )


def _badge(w: Seen) -> tuple[str, str]:
    """A word, and the class of the report's style that has its colour."""
    at = w.absorbed_at
    if not w.looks:
        return "not looked at", "odd"
    if w.diverged is not None:
        return "not finite", "broken"
    if not w.start_known:
        return "start not known", "odd"
    if at == 0.0:
        return "hardly any bias", "even"
    return ("not absorbed", "biased") if math.isinf(at) else ("absorbed", "even")


def _title(w: Seen) -> str:
    """Of the chart: what the headline has not said yet."""
    fine = [i for i, look in enumerate(w.looks) if not look.lost]
    a, b, c = fine[0], fine[-1], w.favourite
    words = (
        f"{w.name(c)}: {share(float(w.shares[a, c]))} of the guesses at first, {share(float(w.shares[b, c]))} at last"
    )
    if w.labels is not None:
        others = w.accuracy[OTHERS].draws[0]
        who = "the others" if w.classes > 2 else w.name(1 - c)
        words += f"; recall of {who} {share(float(others[a]))} → {share(float(others[b]))}"
    return f"{words[:1].upper()}{words[1:]}"


def _model(w: Seen) -> str:
    return str(w.provenance.get("model", "a model")).rsplit(".", 1)[-1]


def _cards(w: Seen) -> Markup:
    fine = [look for look in w.looks if not look.lost]
    if not fine:
        return Markup("")
    first, last = fine[0], fine[-1]
    where = "at the start" if w.start_known else f"at step {spaced(first.step)}"
    cards = [
        _card(
            f"{share(first.largest)} → {share(last.largest)}",
            "of the guesses in the largest class",
            f"{where} and at step {spaced(last.step)}; {_even(w)}",
        )
    ]
    at, left = w.absorbed_at, float(w.left[-1])
    rest = "" if math.isnan(left) else f"; {share(left)} of the starting bias is left"
    if math.isfinite(at) and at > 0:
        what = "bias absorbed" if w.start_known else "one class no longer leads"
        cards.append(_card(f"step {reached(at)}", what, f"largest share down to {share(w.level)}{rest}"))
    elif math.isinf(at):
        cards.append(_card("not yet", "absorbed", f"that is a largest share of {share(w.level)} or less{rest}"))
    if w.labels is not None:
        pair = [w.accuracy[which].draws[0] for which in (FAVOURED, OTHERS)]
        begin = [share(float(values[0])) for values in pair]
        end = [share(_last(values)) for values in pair]
        others = "the others" if w.classes > 2 else w.name(1 - w.favourite)
        cards.append(
            _card(
                f"{begin[0]} / {begin[1]}",
                f"recall of {w.name(w.favourite)} / {others}, {where}",
                f"{end[0]} / {end[1]} at step {spaced(last.step)}",
            )
        )
    cost = w.full_cost
    if cost.looks and not math.isnan(cost.share):
        each = f"{cost.looks} looks of {brief(cost.seconds / cost.looks)}"
        if math.isnan(cost.later):
            cards.append(_card(f"{100 * cost.share:.1f} %", "of the training's time went into looks", each))
        else:
            words = f"{each}; {100 * cost.share:.1f} % with the first, close ones"
            cards.append(_card(f"{100 * cost.later:.1f} %", "of the training's time went into looks", words))
    return tag("div", *cards, class_="cards")


def _even(w: Seen) -> str:
    if w.labels is None:
        return f"an even split is {share(1 / w.classes)}"
    return f"of the labels {share(float(np.bincount(w.labels).max() / len(w.labels)))}"


def _reading(w: Seen) -> Markup:
    error = math.sqrt(0.25 / max(w.points, 1))
    words = (
        f"At each look the network guesses the same {spaced(w.points)} held points, so a share is known to about "
        f"± {100 * error:.0f} % as a statement about other points (one standard error, at most). The bias of the start "
        f"counts as absorbed when the largest class gets {share(w.level)} or less."
    )
    if np.isfinite(w.left).any():
        words += (
            f" What is left of it is the share of guesses for {w.name(w.favourite)} beyond {share(w.due)}, its share "
            f"of the {'labels' if w.labels is not None else 'classes'}, by what that was at the start."
        )
    return tag("p", unbroken(words), class_="soft")


def _early(w: Seen) -> Markup | None:
    if not w.early:
        return None
    words = (
        f"The model was evaluated {wording.early(w)}. Until the bias of the start is absorbed, recall by class tells "
        "which class the untrained network happened to favour more than what was learned: compare classes, or choose "
        "between checkpoints, at later steps only."
    )
    return tag("p", unbroken(words))


def _predicted(w: Seen) -> Markup | None:
    t = w.predicted
    if t is None:
        return tag("p", _sentence(f"not predicted: {w.unpredicted}"), class_="soft") if w.unpredicted else None
    seen = "not yet" if math.isinf(w.absorbed_at) else f"step {reached(w.absorbed_at)}"
    at = t.absorption.median
    rows = [["bias absorbed", f"step {reached(at)}" if math.isfinite(at) else "not yet", seen]]
    mine = dict(zip(w.steps.tolist(), w.largest.draws[0], strict=True))
    its = dict(zip(t.steps.tolist(), t.largest.mean, strict=True))
    both = [step for step in its if step in mine]
    for step in dict.fromkeys((*both[:: max(1, len(both) // 5)], both[-1])):
        rows.append([f"largest share at step {spaced(step)}", share(float(its[step])), share(float(mine[step]))])
    words = (
        "From the network's own logits at the start, moved along the tangent kernel of wide networks of its "
        "description, as if the held points were all that it is trained on; no network was trained for it."
    )
    about = "This is about averages over networks; a single one has its own pace."
    trust = [tag("p", f"{_sentence(f'trust: {t.trust}')} {about}", class_="soft")] if t.trust is not None else []
    numbers = table(["", "predicted", "seen"], rows, numbers=(1, 2), caption="Predicted and seen")
    return Markup("").join([tag("p", words), numbers, *trust])


def _classes(w: Seen) -> Markup | None:
    fine = [i for i, look in enumerate(w.looks) if not look.lost]
    if not fine:
        return None
    a, b = fine[0], fine[-1]
    where = "start" if w.start_known else f"step {spaced(w.looks[a].step)}"
    end = f"step {spaced(w.looks[b].step)}"
    shares, recall = w.shares, w.recall
    order = np.argsort(-shares[a], kind="stable")[:_CLASSES]
    labelled = w.labels is not None
    heads = ["Class", *(["of the labels"] if labelled else []), f"guessed, {where}", end]
    heads += [f"recall, {where}", end] if labelled else []
    due = np.bincount(w.labels, minlength=w.classes) / len(w.labels) if w.labels is not None else None
    rows: list[list[str]] = []
    for c in order.tolist():
        row = [w.name(c)] if due is None else [w.name(c), share(float(due[c]))]
        row += [share(float(shares[a, c])), share(float(shares[b, c]))]
        rows.append(row + ([_known(recall[a, c]), _known(recall[b, c])] if labelled else []))
    more = tag("p", f"… and {w.classes - len(order)} more, less guessed at the {where}.", class_="soft")
    found = table(heads, rows, numbers=range(1, len(heads)), caption="Shares and recall by class")
    return found + more if w.classes > len(order) else found


def _looks(w: Seen) -> Markup | None:
    if not w.looks:
        return None
    labelled = w.labels is not None
    heads = ["Step", "largest share", "its class", "bias left"]
    heads += ["recall, favoured", "recall, others", "accuracy", "loss"] if labelled else []
    heads.append("γ")
    kept, left, curves = thinned(w.looks, _ROWS), w.left, w.curves
    columns = [curves.accuracy[which].draws[0] for which in (FAVOURED, OTHERS)] if labelled else []
    rows: list[list[str]] = []
    for i in kept:
        look = w.looks[i]
        top = "NaN or Inf" if look.lost else w.name(int(np.argmax(look.shares)))
        row = [spaced(look.step), _known(look.largest), top, _known(left[i])]
        if labelled:
            row += [*(_known(values[i]) for values in columns), _known(curves.accuracy.draws[0, i]), _value(look.loss)]
        rows.append([*row, _value(look.gamma)])
    numbers = [i for i in range(1, len(heads)) if i != 2]
    whole = table(heads, rows, numbers=numbers, caption="Looks")
    words = f"{len(w.looks)} looks" if len(kept) == len(w.looks) else f"{len(kept)} of {len(w.looks)} looks"
    meaning = "γ is center over spread of this one network's output; an ensemble's is an average over initializations."
    return tag("details", tag("summary", words), whole, tag("p", meaning, class_="soft"))


def _provenance(w: Seen) -> Markup:
    rows = [
        [key, value if isinstance(value, str) else json.dumps(value, default=str)]
        for key, value in w.provenance.items()
    ]
    rows.append(["cost", str(w.full_cost)])
    return table(["", "value"], rows, caption="Provenance")


def _section(key: str, title: str, *content: str | None) -> Markup:
    parts = [part for part in content if part]
    return tag("section", tag("h2", title, id=key), *parts, aria_labelledby=key) if parts else Markup("")


def _card(big: str, words: str, small: str) -> Markup:
    lines = [tag("p", unbroken(words)), tag("p", unbroken(small), class_="soft")]
    return tag("div", tag("p", unbroken(big), class_="big"), *lines, class_="card")


def _known(value: float) -> str:
    return "–" if math.isnan(value) else unbroken(share(float(value)))


def _value(value: float) -> str:
    return number(float(value)) if not math.isnan(value) else "–"


def _last(values: Sequence[float] | np.ndarray[Any, Any]) -> float:
    fine = [float(v) for v in values if math.isfinite(v)]
    return fine[-1] if fine else math.nan


def _sentence(text: str) -> str:
    text = text.strip()
    whole = unbroken(f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}")
    return re.sub(r"(step|class) (?=\d)", "\\1\N{NO-BREAK SPACE}", whole)
