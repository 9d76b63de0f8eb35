"""The layers of a description: a file for each kind, or for a few of one family, with all their meanings."""

# ruff: noqa: F401
# pyright: reportUnusedImport=false
from firstguess.network.layer import KINDS, Layer, sequence_text, steps, text
from firstguess.network.layers.activate import Activate, Gated
from firstguess.network.layers.affine import Scale, Shift
from firstguess.network.layers.attention import Attention, TokenMix
from firstguess.network.layers.batchnorm import BatchCenter, BatchNorm
from firstguess.network.layers.dense import Conv, Dense
from firstguess.network.layers.embed import Embed, FirstToken, Patches, PoolTokens, Positions, Unembed
from firstguess.network.layers.layernorm import GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from firstguess.network.layers.pools import AvgPool, MaxPool
from firstguess.network.layers.residual import Residual
