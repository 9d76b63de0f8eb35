"""The layers of a description: a file for each kind, or for a few of one family, with all their meanings."""

from firstguess.network.layer import KINDS, Layer, sequence_text, steps, text
from firstguess.network.layers.activate import Activate
from firstguess.network.layers.affine import Scale, Shift
from firstguess.network.layers.attention import Attention
from firstguess.network.layers.avgpool import AvgPool
from firstguess.network.layers.batchnorm import BatchCenter, BatchNorm
from firstguess.network.layers.conv import Conv
from firstguess.network.layers.dense import Dense
from firstguess.network.layers.embed import Embed, FirstToken, Patches, Positions
from firstguess.network.layers.gated import Gated
from firstguess.network.layers.groupnorm import GroupNorm
from firstguess.network.layers.instancenorm import InstanceNorm
from firstguess.network.layers.layernorm import LayerNorm, RMSNorm
from firstguess.network.layers.maxpool import MaxPool
from firstguess.network.layers.read_out import PoolTokens, Unembed
from firstguess.network.layers.residual import Residual
from firstguess.network.layers.tokenmix import TokenMix

__all__ = [
    "KINDS",
    "Activate",
    "Attention",
    "AvgPool",
    "BatchCenter",
    "BatchNorm",
    "Conv",
    "Dense",
    "Embed",
    "FirstToken",
    "Gated",
    "GroupNorm",
    "InstanceNorm",
    "Layer",
    "LayerNorm",
    "MaxPool",
    "Patches",
    "PoolTokens",
    "Positions",
    "RMSNorm",
    "Residual",
    "Scale",
    "Shift",
    "TokenMix",
    "Unembed",
    "sequence_text",
    "steps",
    "text",
]
