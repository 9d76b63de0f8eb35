"""Terms of the page, each in one sentence; the page has those that it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A word, what it means, and how the page's text shows that it is used."""

    word: str
    meaning: str
    used: str  # a regular expression

    def is_in(self, text: str) -> bool:
        return re.search(self.used, text) is not None


TERMS = (
    Term(
        "Share",
        "the part of the data that a network puts into a class; the largest share is that of its favourite class.",
        r"\bshares?\b",
    ),
    Term(
        "Even, leaning, biased, deeply biased",
        "how uneven guesses are: as those of wide networks of drift ratio up to 0.05, up to 1, up to 9.5, and above.",
        r"\b(leaning|biased)\b",
    ),
    Term(
        "Drift ratio γ",
        "variance between the average outputs of the classes, divided by the variance of an output across inputs: 0 is "
        "no bias, and above 1 one class tends to win.",
        r"γ|[Dd]rift ratio",
    ),
    Term(
        "Correlation c",
        "how alike two different inputs look to a layer: 0 is nothing in common, 1 is the same; γ = c/(1 − c).",
        r"\b[Cc]orrelation\b",
    ),
    Term(
        "Initialization",
        "one draw of all weights, as the model draws them when it is made.",
        r"\binitializations?\b",
    ),
    Term(
        "Predicted on your data, for random data",
        "computed by theory from your own inputs, or from random ones of the same size; for infinitely wide layers "
        "unless a width is named.",
        r"\b[Pp]redicted (on your|for random) data|for random data",
    ),
    Term(
        "95 %",
        "intervals that contain the true value in 95 of 100 repetitions.",
        r"95\s%",
    ),
    Term(
        "p",
        "the chance of a difference at least as large, if there is none.",
        r"\bp [=<]|p-value",
    ),
    Term(
        "Distribution of class shares",
        "how often, over initializations, a class gets how much of the data.",
        r"[Dd]istribution of class shares",
    ),
    Term(
        "Gradients per layer",
        "by how much the size (root mean square) of weights' gradients changes from a layer to the one before it; in "
        "residual networks that of the stream, from block to block.",
        r"[Gg]radients.* a (layer|block)|[Gg]radients per layer",
    ),
    Term(
        "Edge of chaos",
        "weights so large that gradients keep their size from layer to layer; smaller ones (the ordered phase) make "
        "inputs alike and gradients vanish, larger ones (chaos) tell inputs apart and make gradients explode.",
        r"[Ee]dge of chaos|ordered phase|in chaos|\bchaos\b|chaotic",
    ),
    Term(
        "Nonlinearity P",
        "how strongly outputs react to small changes of an input, compared with a linear network with outputs of that "
        "size: 1 is linear.",
        r"[Nn]onlinear",
    ),
    Term(
        "Tangent kernel",
        "how a step of training on one input moves the outputs of another; in wide networks it hardly changes.",
        r"[Tt]angent kernel",
    ),
    Term(
        "Centre",
        "to subtract the average, over the data or of an activation.",
        r"\b[Cc]entr(e|es|ed|ing)\b",
    ),
)


def used(text: str) -> list[Term]:
    """The terms that this text uses, in alphabetical order."""
    return [term for term in sorted(TERMS, key=lambda term: term.word.lower()) if term.is_in(text)]
