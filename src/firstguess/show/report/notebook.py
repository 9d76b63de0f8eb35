"""A diagnosis in a notebook: the report in a frame of its own, without scripts, so that styles stay apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstguess.show.report.elements import tag

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis

_HEIGHT = 640  # pixels; the frame scrolls


def framed(diagnosis: Diagnosis) -> str:
    """The report's page with pictures for charts, as one element."""
    from firstguess.show.report.document import document

    look = f"width:100%;height:{_HEIGHT}px;border:1px solid #ccc;border-radius:6px"
    return tag("iframe", srcdoc=document(diagnosis, live=False), title=f"Diagnosis of {diagnosis.name}", style=look)
