"""What was read of a model: its description, the parts it came from, and what could not be read."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import columns, counted, elided, four_digits
from firstguess.network.layer import Variances
from firstguess.network.network import Network


@dataclass(frozen=True)
class Part:
    """A module or function of the model, and the text of the layers that it became ("": nothing at initialization).

    `path` is the module's own; for a function, that of the module in whose forward it is called ("": the model's).
    """

    path: str
    kind: str
    layer: str
    variances: Variances | None = None


@dataclass(frozen=True)
class Unread:
    """A module or function that a description cannot say, and why."""

    path: str
    kind: str
    why: str

    def __str__(self) -> str:
        return f"{self.path or 'the model'} ({self.kind}): {self.why}"


@dataclass(frozen=True, repr=False)
class Structure(StoredRecord, Shown):
    """A model as a description. `network` is None unless everything between input and output was read.

    `fragment`: the longest stretch that was read, where the whole was not.
    """

    _also = ("complete",)

    network: Network | None
    parts: tuple[Part, ...]
    unread: tuple[Unread, ...] = ()
    notes: tuple[str, ...] = ()
    fragment: Network | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole model was read."""
        return self.network is not None

    @property
    def law(self) -> str:
        """The distribution that all weights look drawn from (normal, uniform, orthogonal); "" if there is none."""
        laws = {part.variances.distribution for part in self.parts if part.variances is not None}
        return laws.pop() if len(laws) == 1 else ""

    def __repr__(self) -> str:
        if self.network is not None:
            return f"Structure({elided(four_digits(str(self.network)), 150)!r}, classes={self.network.classes})"
        return f"Structure(not complete: {len(self.parts)} parts read, {len(self.unread)} not)"

    def __str__(self) -> str:
        if self.network is not None:
            lines = [f"Structure: complete, {self.network.classes} classes", f"  {four_digits(str(self.network))}"]
        else:
            lines = [f"Structure: not complete ({len(self.parts)} parts read, {len(self.unread)} not)"]
            if self.fragment is not None:
                lines.append(f"  longest stretch: {four_digits(str(self.fragment))}")
        wide = max((len(p.path or "·") for p in self.parts), default=0)
        kinds = max((len(p.kind) for p in self.parts), default=0)
        for p in self.parts:
            lines.append(f"  {p.path or '·':<{wide}}  {p.kind:<{kinds}}  {four_digits(p.layer) or '(nothing)'}")
            if p.variances is not None:
                lines.append(f"  {'':<{wide}}  {'':<{kinds}}    {p.variances}")
        for word, texts in (("not read", counted(str(u) for u in self.unread)), ("note", self.notes)):
            for text in texts:
                lines += textwrap.wrap(f"{word}: {text}", columns(), initial_indent="  ", subsequent_indent="    ")
        return "\n".join(lines)
