"""What the ledger opens with: where the papers are wrong or incomplete, and what goes beyond them.

Nothing here is a number or a verdict: a finding names the entry that it rests on, and is shown only where a record has
that entry with a verdict that says so. Otherwise it is open.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstguess_papers.items import Verdict

_NOT: tuple[Verdict, ...] = ("does not hold",)
_NOT_QUITE: tuple[Verdict, ...] = ("does not hold", "holds with a limit")


@dataclass(frozen=True)
class Finding:
    """A sentence about a claim: said if `item`'s entry on it (whose statement has `about`) got one of `verdicts`.

    `chart` is the file of the figure that shows it; "" is the item's first.
    """

    title: str
    text: str
    claim: str
    item: str
    verdicts: tuple[Verdict, ...]
    about: str = ""
    chart: str = ""


@dataclass(frozen=True)
class Topic:
    """Something that the papers do not have: the claims of ours that answer for it."""

    title: str
    claims: tuple[str, ...]


FINDINGS = (
    Finding(
        "RMSNorm after the activation cures nothing",
        "The paper puts RMSNorm next to LayerNorm. Before the activation they do the same. After it only LayerNorm "
        "subtracts a mean, and the mean is where bias comes from: with RMSNorm guesses are those of a network without "
        "a norm.",
        "N6",
        "norm/rmsnorm",
        ("holds",),
        "after ReLU, RMSNorm leaves",
    ),
    Finding(
        "With pooling there are two edges, not one",
        "The lines that the paper gives for pooled ReLU networks are where the size of signals stays. Gradients keep "
        "their size elsewhere: without pooling both are one line, with it they part.",
        "M4",
        "mf/phases",
        ("holds with a limit",),
        chart="relu-maxpool.png",
    ),
    Finding(
        "The strongest rival alone overstates bias between many classes",
        "The paper compares a class with its strongest rival, as an approximation whose quality it does not claim. "
        "Several rivals matter: the exact law costs no more.",
        "I12",
        "igb/multiclass",
        _NOT_QUITE,
    ),
    Finding(
        "Smaller weights do not remove bias in general",
        "Weights of order 1/N shrink centers and spreads alike, and the arg-max does not see a common scale.",
        "I11",
        "igb/weight_scale",
        _NOT,
        "as guesses",
    ),
    Finding(
        "Norms after the activations lower the largest guess fraction of large networks",
        "The paper says in one place that moving the norms of a ResNet101 and a Swin-L raises it, in another that it "
        "reduces bias. The second is right, where a ResNet's norms also go after its sums.",
        "N10",
        "norm/fig-g9",
        ("holds", "holds with a limit"),
        "“reduces”",
    ),
    Finding(
        "That neutral starts learn faster is the optimizer's doing",
        "Under Adam prejudiced starts take longer than neutral ones. Under plain gradient descent the difference is "
        "smaller.",
        "N12",
        "norm/fig2",
        ("holds",),
        "effect of the optimizer",
    ),
    Finding(
        "The edge of chaos is not where bias is absorbed fastest",
        "That it learns best is another claim, judged apart.",
        "M10",
        "mf/training",
        _NOT,
        "absorbs fastest",
    ),
)
TOPICS = (
    Topic("Readings on real data", ("B1",)),
    Topic("Tokens", ("B2", "B3")),
    Topic("The frontier of bias and nonlinearity", ("B4", "B5")),
    Topic("Absorption time", ("B6",)),
    Topic("Adam's early phase", ("B7",)),
    Topic("A head's bias, and class weights", ("B8",)),
    Topic("Finite width and dimension", ("B9",)),
    Topic("What stays of the seed", ("B10",)),
)
