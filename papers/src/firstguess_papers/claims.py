"""What the papers claim, before and in training, in our words. Every claim gets at least one line in the ledger."""

from __future__ import annotations

from dataclasses import dataclass


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
