"""The layers of a description: one file a kind, each with all its meanings."""

from firstguess.network.layer import KINDS, Layer, sequence_text, steps, text
from firstguess.network.layers.activate import Activate
from firstguess.network.layers.affine import Scale, Shift
from firstguess.network.layers.attention import Attention
from firstguess.network.layers.avgpool import AvgPool
from firstguess.network.layers.batchcenter import BatchCenter
from firstguess.network.layers.batchnorm import BatchNorm
from firstguess.network.layers.conv import Conv
from firstguess.network.layers.dense import Dense
from firstguess.network.layers.embed import Embed
from firstguess.network.layers.first_token import FirstToken
from firstguess.network.layers.gated import Gated
from firstguess.network.layers.groupnorm import GroupNorm
from firstguess.network.layers.instancenorm import InstanceNorm
from firstguess.network.layers.layernorm import LayerNorm
from firstguess.network.layers.maxpool import MaxPool
from firstguess.network.layers.patches import Patches
from firstguess.network.layers.pool_tokens import PoolTokens
from firstguess.network.layers.positions import Positions
from firstguess.network.layers.residual import Residual
from firstguess.network.layers.rmsnorm import RMSNorm
from firstguess.network.layers.tokenmix import TokenMix
from firstguess.network.layers.unembed import Unembed

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
