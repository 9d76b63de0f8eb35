"""What the papers claim about untrained networks, in our words. Every claim gets at least one line in the ledger."""

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
    ("N10", "Moving the norms of a ResNet101 and a Swin-L behind the activations changes the largest guess fraction "
     "(stand-ins only so far: smaller networks, not these)", "Fig G.9"),
    ("N11", "A constant added to all pixels is a knob for the bias", "G.3"),
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
    ("B1", "On real data the kernel reading has the spread of guesses right, where the law for random data does not",
     "theory.md §6"),
)  # fmt: skip
CLAIMS = {row[0]: Claim(*row) for row in _ROWS}
