"""What the papers claim, what the records add up to, and which checks were changed after a first look."""

from __future__ import annotations

from dataclasses import dataclass

from firstguess_papers.items import Verdict


@dataclass(frozen=True)
class Claim:
    """One claim that can be measured: `id` (I: IGB, N: NORM, M: MF, B: ours), what it says, where it is made."""

    id: str
    text: str
    where: str


_ROWS = (
    ("I1", "With more data, a linear network's split narrows to one half; ReLU's stays broad with its peak "
     "at one half; with max-pooling it piles up at 0 and 1", "Fig 5"),
    ("I2", "Over the data an output node is Gaussian around a center of its own; the variance is the same from node to "
     "node, the center is not", "§3, App. B, C"),
    ("I3", "The spread of the centers shrinks with the number of points for a linear network, not for ReLU", "Fig 6"),
    ("I4", "One large network does not show the ensemble's average: the fraction does not self-average, although the "
     "ensemble's mean is 1/M", "§4.1"),
    ("I5", "An activation causes bias iff its mean on centred inputs is not 0; odd ones cause none", "App. G"),
    ("I6", "ReLU minus its mean causes no bias", "Fig 8"),
    ("I7", "Inputs that are not centred (pixels from 0 to 1) bring bias, even with an odd activation", "§4.1"),
    ("I8", "Max-pooling creates bias and amplifies it: γ grows with the pool, the maximum concentrates near √(2 ln K)",
     "§4.2, App. E"),
    ("I9", "Depth amplifies bias (ReLU ends with all data in one class) but never creates it", "§4.2, App. F.2"),
    ("I10", "Nodes of the first hidden layer share one center; from the second layer on they do not, if the "
     "activation's mean is not 0", "§3"),
    ("I11", "Weights of order 1/N instead of 1/√N would give no bias", "§5"),
    ("I12", "With many classes the paper compares a class with its strongest rival only, and claims no quality for it: "
     "how good is it? (a finding of ours, not a refutation)", "App. H"),
    ("I13", "Correlations in the data amplify: on MNIST even/odd both CNNs are biased, ReLU with max-pooling more",
     "Fig 10"),
    ("I14", "On CIFAR-10 the CNN with ReLU and max-pooling is more biased; each class gets 1/10 on average over "
     "networks", "Fig 11"),
    ("I15", "With 100 classes most classes get no guess at all: the law peaks at 0", "Fig 12"),
    ("I16", "ResNet34 and a vision transformer are biased before training, too", "Fig 13"),
    ("I17", "Small learning rate: with bias per-class curves split and one class's recall stays low long; without, "
     "they coincide", "Fig 14"),
    ("I18", "Large learning rate: with bias, unstable hand-over between classes, as under class imbalance", "Fig 15"),
    ("I19", "The theory takes limits in an order (dimension, then width layer by layer; data; depth): is it needed?",
     "App. C, Remark 1; MF"),
    ("I20", "Any centred independent weights of the same variance give the same law", "§3; NORM §2"),
    ("I21", "Bias comes from activation and pooling together: max-pooling gives tanh and linear networks bias", "§4.2"),
    ("I22", "A constant added to tanh brings bias; subtracting a batch's own mean removes ReLU's", "App. G.3"),
    ("I23", "Structure in the data amplifies bias", "§3, App. I.1"),
    ("I24", "Ranked fractions: the law of the k-th largest, and the entropy of the guesses", "App. H; NORM App. A, B"),
    ("I25", "Bias does not profoundly affect where training ends, beside NORM's lasting test gap",
     "App. I.3; NORM §5.2"),
    ("I26", "Between slow and unstable, bias narrows the window of good learning rates", "App. I.3"),
    ("I27", "Logits of one network: class centers stand apart, and with more bias all points move away from the "
     "boundary", "§3, Figs 3, 4; NORM App. C.1"),
    ("N1", "BatchNorm before the activation keeps the bias of a single layer at every depth", "Th 4.1, Fig 3"),
    ("N2", "BatchNorm after the activation: no bias, at any depth and batch size", "Th 4.2"),
    ("N3", "LayerNorm before the activation: as without a norm, bias grows with depth", "Th 4.3"),
    ("N4", "LayerNorm after the activation: no bias", "Th 4.4"),
    ("N5", "BatchNorm and LayerNorm differ even when the batch is all the data, as soon as nodes differ", "§2, §4.1.4"),
    ("N6", "RMSNorm does what LayerNorm does", "§4.1.3"),
    ("N7", "BatchNorm with the sample left out of its own statistics: the estimators of mean and scale have the same "
     "expectation and slightly more variance, and the difference vanishes; values have heavier tails, and become "
     "Gaussian with larger batches", "E.1.2, Figs E.1, E.2"),
    ("N8", "CIFAR-10 images follow the law for random data closely", "Fig 3"),
    ("N9", "MNIST departs in size, not in direction: a norm after the activation is less biased than before; LayerNorm "
     "after is not fully neutral, BatchNorm after nearly", "Figs G.5, G.6"),
    ("N10", "Moving the norms of a ResNet101 and a Swin-L after the activations changes the largest guess fraction",
     "Fig G.9"),
    ("N11", "A constant added to all pixels is a knob for the bias", "G.3"),
    ("N12", "Neutral starts converge faster than prejudiced ones; the gap between classes persists", "Figs 2, G.1–G.4"),
    ("N13", "Norm after the activation: unfiltered starts behave as neutral ones, and bias is absorbed faster, most of "
     "all with LayerNorm", "Figs 4, G.1, G.2"),
    ("N14", "Twenty hidden layers: per-class curves still split, global accuracy overlaps", "Figs G.7, G.8"),
    ("N15", "ResNet34 and MLP-Mixer: norm after converges faster, the largest fraction decays earlier, a test gap "
     "remains; the more the data are shifted, the slower both, and the wider the gap between placements",
     "Figs 5, G.10, G.11"),
    ("N16", "The theorems on norms hold for other activations without qualitative differences", "§4.1, App. B"),
    ("N17", "InstanceNorm and GroupNorm are trivial extensions of LayerNorm", "§2, footnote"),
    ("N18", "BatchNorm before stays constant in depth with pooling, too; BatchNorm after works for any mean and "
     "variance of the input", "App. E.1, E.2.1"),
    ("N19", "Nodes are Gaussian under Lindeberg-type conditions: where are they not?", "App. D; IGB App. B"),
    ("N20", "Choosing hyper-parameters early in training picks what serves the favoured class", "§1, §3.1, §6"),
    ("N21", "The boundary first translates (bias), then rotates (signal), on two time scales", "App. C.1"),
    ("M1", "q_aa = σ_μ² + σ_y², q_ab = σ_μ² and c = γ/(1+γ) at every depth; signals concentrate as width grows",
     "Th 3.1, Fig 2"),
    ("M2", "ReLU: c tends to 1 in all phases, exponentially when ordered, as a power law when chaotic", "§4"),
    ("M3", "tanh: c tends to 1 when ordered, to less when chaotic; neutral only deep in chaos", "Fig 3, Table 1"),
    ("M4", "Phase diagrams with max- and average-pooling; ReLU's lines at 4π/(3π+2) and 4π/(π+1)", "Figs"),
    ("M5", "Where gradients survive best, at the edge of chaos, the network is deeply biased, not neutral", "Prop 4.1"),
    ("M6", "Chaotic ReLU networks: the favoured class's gradient vanishes, the others' explode", "Figs"),
    ("M7", "A plain vision transformer shows the same transition in its gradients", "Figs"),
    ("M8", "Residual networks have one critical phase; norms blur the distinction", "App."),
    ("M9", "Finite networks depart from theory, less as width grows", "limits"),
    ("M10", "At the edge of chaos learning is fastest and so is the absorption of the largest bias; ordered networks "
     "keep it, deep chaos learns poorly", "main Figs"),
    ("M11", "A trained vision transformer with weights × 0.5 becomes strongly biased, × 1.5 less but unstable; as it "
     "is, best", "Figs"),
    ("M12", "Evaluating after few steps favours the initially favoured classes", "discussion"),
    ("M13", "The edge is the state of largest initial bias", "key findings"),
    ("M14", "ReLU's variances by phase; norms and skip connections move the phases' boundaries", "§4, limitations"),
    ("M15", "Unequal gradients of classes slow learning; tuning at the edge shortens the search for hyper-parameters",
     "§4, practical trick"),
    ("B1", "On real data the kernel reading has the spread of guesses right, where the law for random data does not",
     "theory.md §6"),
    ("B2", "In transformers the kind of norm does not matter at initialization; post-norm is more biased than "
     "pre-norm, increasingly with depth; gating creates none; shared embeddings dominate real models", "theory.md §9"),
    ("B3", "A tied language-model head guesses its own input with a probability that does not depend on γ",
     "theory.md §9"),
    ("B4", "At constant gradients bias is nonlinearity, (1 + γ)·g = P: knobs reach any γ on that frontier",
     "theory.md §10"),
    ("B5", "Tuned depth trains as fast as a shallow network of equal nonlinearity, not faster; the residual form with "
     "the norm after the activation inside the branch has the best early worst class", "theory.md §10"),
    ("B6", "The absorption time has a closed form; ordered networks absorb linearly in depth, their signal is what "
     "vanishes", "theory.md §7"),
    ("B7", "Adam's early phase follows from tangent kernels by layer; finite width is one random factor",
     "theory.md §7"),
    ("B8", "Moving a head's bias changes γ and nothing else; under imbalance class weights dwarf biased starts",
     "theory.md §10"),
    ("B9", "What the theory of infinite width misses in real networks, width and dimension give", "theory.md §12"),
    ("B10", "Training absorbs the guesses and leaves the hidden direction, by which the seed stays known; weight decay "
     "ends it in 1/(η·wd) steps", "theory.md §14"),
)  # fmt: skip
CLAIMS = {row[0]: Claim(*row) for row in _ROWS}


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
        "a norm.", "N6", "norm/rmsnorm", ("holds",), "after ReLU, RMSNorm leaves",
    ),
    Finding(
        "With pooling there are two edges, not one",
        "The lines that the paper gives for pooled ReLU networks are where the size of signals stays. Gradients keep "
        "their size elsewhere: without pooling both are one line, with it they part.",
        "M4", "mf/phases", ("holds with a limit",), chart="relu-maxpool.png",
    ),
    Finding(
        "The strongest rival alone overstates bias between many classes",
        "The paper compares a class with its strongest rival, as an approximation whose quality it does not claim. "
        "Several rivals matter: the exact law costs no more.", "I12", "igb/multiclass", _NOT_QUITE,
    ),
    Finding(
        "Smaller weights do not remove bias in general",
        "Weights of order 1/N shrink centers and spreads alike, and the arg-max does not see a common scale.",
        "I11", "igb/weight_scale", _NOT, "as guesses",
    ),
    Finding(
        "Norms after the activations lower the largest guess fraction of large networks",
        "The paper says in one place that moving the norms of a ResNet101 and a Swin-L raises it, in another that it "
        "reduces bias. The second is right, where a ResNet's norms also go after its sums.",
        "N10", "norm/fig-g9", ("holds", "holds with a limit"), "“reduces”",
    ),
    Finding(
        "That neutral starts learn faster is the optimizer's doing",
        "Under Adam prejudiced starts take longer than neutral ones. Under plain gradient descent the difference is "
        "smaller.", "N12", "norm/fig2", ("holds",), "effect of the optimizer",
    ),
    Finding(
        "The edge of chaos is not where bias is absorbed fastest",
        "That it learns best is another claim, judged apart.", "M10", "mf/training", _NOT, "absorbs fastest",
    ),
)  # fmt: skip
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


REVISIONS: dict[str, str] = {
    "I2": "the width sweep uses as many input dimensions as nodes (at 300 dimensions these set a floor); margin "
    "0.15 → 0.1",
    "I5": "ten output nodes instead of two, so that the comparison with theory can be decided",
    "I12": "the required check was narrowed from all numbers of classes to at most ten (it fails either way); "
    "margin of the exact law against networks 0.03 → 0.04, which the quick errors can resolve",
    "I13": "half as many networks on noise, for time",
    "I20": "after a quick run: what weights without a variance must show is bias left by LayerNorm after ReLU, not "
    "another spread of the plain network, which has none",
    "I22, N16, N18": "after a quick run: γ is read at hidden layers instead of ten outputs; where nodes are centred "
    "γ is 0 by construction, so that the largest guess fraction is checked, too",
    "I23": "after a quick run: the kernel reading, which has no error, decides, and networks must not contradict it",
    "N1": "compared with the closed form's 0.227 instead of the measured value without a norm, whose error "
    "could not decide",
    "N2, N4": "the spread of even guesses is subtracted before the threshold, and the check without a limit is one-"
    "sided",
    "N3": "paired errors; γ read at a hidden layer instead of two output nodes",
    "N5": "points and input dimensions now grow with the width; growing the width alone said: does not hold",
    "N6": "squares are averaged over networks before the root; 40 networks instead of 6",
    "N7": "hidden layer, and 120 networks instead of 30",
    "N10": "at full size the checks are those of the stand-ins, whose numbers had been seen; the library's own "
    "initialization is tried on Swin-L only",
    "N11": "more networks; in eval mode only 'rises' is tested, not 'rises by 0.1'",
    "M1, M6, M9": "more networks of the same seed, so the larger samples contain the first ones; M9's second entry: "
    "after a pilot of 300 to 800 networks, cosines of pairs instead of γ, which 32 points blur",
    "M2": "the exponent may be 0.1 from −2 instead of 0.05 (it is −2.05 at the edge), and must be steady",
    "M5": "γ at 100 layers instead of 40, judged on its logarithm",
    "M8": "the check without a limit on norms uses the closed form; with measured values it said: holds",
    "M14": "after a quick run: growth of the centers at the edge from a quarter of the depth on instead of half",
    "B1": "reworded, and one reading added",
    "I17, I18": "quick runs came first: biases start at 0, weights have variance 1/3 (from predicted thresholds), "
    "only biased starts in the plain arm; an imbalanced arm is reported",
    "I19, I24": "after quick runs: ranks one to five of ten are checked; the line for finite width is another, which "
    "no check uses",
    "I26": "the grid of rates was refined above the threshold, and 24 networks instead of 12, after a quick run",
    "N12": "undecided under plain descent counts as a limit; the rate on even/odd digits 1e-4 → 1e-5 after a quick run",
    "N13": "steps that are saved are paired, after a quick run",
    "N14": "the split is required at step 10, after a quick run could not decide it later",
    "N15": "“the gap widens” is undecided where neither placement learns; networks absorbed at neither drop out; "
    "after full runs: held-out accuracy decides only where a placement has some, and faster is judged by accuracy "
    "averaged over looks instead of at the end, where both Mixers knew all their images (it said: does not hold)",
    "N20": "a second entry, by the rate only, was added after a quick run of the first",
    "N21": "the factor of 2 between the scales moved from required to limit after a quick run",
    "B4": "after the full run: the last check wants values within 15 %, whatever their errors (it had said: holds); "
    "the figure's points moved",
    "B5": "before any full run, after a pilot of two networks an arm and a quick run: rates, the threshold on "
    "CIFAR-10, more networks for the first steps; the worst class is compared on average over the settings. After a "
    "full run that could not decide: 120 instead of 30 more networks for the first steps, and speeds beside the "
    "shallow network are required on average over the settings, in single ones they are a limit; the worst class is "
    "compared among deep arms and, apart, with the shallow one",
    "B6": "after a full run that could not decide: 96 instead of 24 ReLU networks",
    "B8": "after a quick run: the moved head is judged by accuracy over the looks instead of steps to the threshold, "
    "and on points that differ from network to network (margin 0.02 → 0.03); class weights must be ahead by 0.05 "
    "instead of 0.1; the tilted start guesses 99 % instead of 90 % as the rare class. After the full run: a fault that "
    "moved heads by 5 % too much was mended (it had said: holds); 48 instead of 16 networks, and the tilted start by "
    "optimizer, because it could not decide",
    "B9": "after a quick run, before any full one: the error of a drawn prediction counts",
    "B10": "after a quick run, before the full one: the lazy prediction of mean logits is checked too, and networks "
    "have other names",
    "N12, N13": "the least differences worth deciding (0.05 of a ratio of steps, 0.01 of a gap, 5 steps) were stated "
    "after the first full runs and before sampling went on",
    "M10, M11, M12, M15": "sizes, rates and guards (a sweep in which nothing learns decides nothing) were set on quick "
    "runs, before any full one",
}


def revision_lines() -> list[str]:
    """For the ledger."""
    return [f"- **{claims}**: {text}." for claims, text in REVISIONS.items()]
