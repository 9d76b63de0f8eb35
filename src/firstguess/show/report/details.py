"""Parts that most readers skip, folded: what was read of the model, all layers, notes, how this was made."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from firstguess.base.text import counted, spaced
from firstguess.modules.read.result import short
from firstguess.show.charts.theme import percent
from firstguess.show.report import wording
from firstguess.show.report.elements import folded, section, table, tag

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis
    from firstguess.ensemble.measurement import Measurement

_PARTS = 60


def details(d: Diagnosis) -> Markup:
    """All of them under one heading."""
    parts = (structure(d), layers(d.measurement), notes(d), provenance(d))
    return section("details", "Details", *parts)


def structure(d: Diagnosis) -> Markup:
    """What of the model could be read as a description, and what could not."""
    s = d.structure
    if s is None:
        return Markup("")
    content: list[str] = []
    if s.network is not None:
        content += [
            tag("p", "The whole model was read; in firstguess's notation:"),
            tag("pre", tag("code", short(str(s.network))), tabindex="0"),
        ]
    else:
        content.append(tag("p", "The model could not be read as a whole, so theory has nothing to say on all of it."))
        if s.fragment is not None:
            content.append(tag("p", "The longest stretch that was read:"))
            content.append(tag("pre", tag("code", short(str(s.fragment))), tabindex="0"))
    if s.unread:
        times = Counter((u.path or "the model", u.kind, u.why) for u in s.unread)
        rows = [[path, kind, *counted([why] * count)] for (path, kind, why), count in times.items()]
        content.append(table(["Not read", "kind", "why"], rows, caption="What was not read"))
    if s.parts:
        rows = [
            [p.path or "·", p.kind, short(p.layer) or "nothing at initialization", str(p.variances or "")]
            for p in s.parts
        ]
        content.append(table(["Module", "kind", "read as", "weights"], rows[:_PARTS], caption="What was read"))
        content += [tag("p", f"… {len(rows) - _PARTS} more.", class_="soft")] if len(rows) > _PARTS else []
    content += [tag("p", f"Note: {note}") for note in s.notes if note not in d.notes]
    return folded("What was read of the model", *content)


def layers(m: Measurement | None) -> Markup:
    """Every measured layer."""
    if m is None or not m.layers:
        return Markup("")
    rows = [
        [
            x.name,
            x.kind,
            spaced(x.nodes),
            wording.with_error(x.gamma, x.gamma_se),
            wording.value(x.correlation, 4),
            percent(x.dead),
        ]
        for x in m.layers
    ]
    heads = ["Layer", "kind", "nodes", "γ ± s.e.", "c", "dead nodes"]
    whole = table(heads, rows, numbers=(2, 3, 4, 5), caption="All measured layers")
    return folded(f"All {len(rows)} layers as measured", whole)


def notes(d: Diagnosis) -> Markup:
    """How the work was done."""
    return folded("Notes on the work", tag("ul", *(tag("li", note) for note in d.notes))) if d.notes else Markup("")


def provenance(d: Diagnosis) -> Markup:
    """With what this was made."""
    rows = [["network", d.name], ["data", d.data_name]] if d.data_name else [["network", d.name]]
    for key, value in d.provenance.items():
        if key == "data" and isinstance(value, dict):
            rows += [[f"data: {name}", _plain(one)] for name, one in value.items() if str(one) != d.data_name]
        else:
            rows.append([_KEYS.get(str(key), str(key).replace("_", " ")), _plain(value)])
    if d.seconds > 0:
        rows.append(["time", f"{d.seconds:.1f} s"])
    return folded("How this was made", table(["", "value"], rows, caption="Provenance")) if d.provenance else Markup("")


_KEYS = {"model": "class of the model", "network": "description"}


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False, default=str)
