"""The papers whose theory this is, by the names that pages cite them by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper: `name` is how a sentence cites it, `link` where it can be read."""

    name: str
    title: str
    authors: str
    venue: str
    link: str


GUESSING_BIAS = Paper(
    "Initial Guessing Bias",
    "Initial Guessing Bias: How Untrained Networks Favor Some Classes",
    "Francazi, Lucchi, Baity-Jesi",
    "ICML 2024",
    "https://arxiv.org/abs/2306.00809",
)
NORM_PLACE = Paper(
    "Where You Place the Norm Matters",
    "Where You Place the Norm Matters: From Prejudiced to Neutral Initializations "
    "(version 4, April 2026: Pre-Norm vs Post-Norm)",
    "Francazi, Pinto, Lucchi, Baity-Jesi",
    "2025",
    "https://arxiv.org/abs/2505.11312",
)
TRAINABILITY = Paper(
    "When Bias Meets Trainability",
    "When Bias Meets Trainability: Connecting Theories of Initialization "
    "(arXiv: When the Left Foot Leads to the Right Path)",
    "Bassi, Albert, Lucchi, Baity-Jesi, Francazi",
    "ICLR 2026",
    "https://arxiv.org/abs/2505.12096",
)
PAPERS = (GUESSING_BIAS, NORM_PLACE, TRAINABILITY)
