"""The layers of a description: one file a kind, each with its closed-form meaning."""

from firstguess.layers.activate import Activate
from firstguess.layers.avgpool import AvgPool
from firstguess.layers.base import Layer, steps, text
from firstguess.layers.batchnorm import BatchNorm
from firstguess.layers.conv import Conv
from firstguess.layers.dense import Dense
from firstguess.layers.grammar import KINDS, parse_layers, sequence_text
from firstguess.layers.groupnorm import GroupNorm
from firstguess.layers.layernorm import LayerNorm
from firstguess.layers.maxpool import MaxPool
from firstguess.layers.residual import Residual
from firstguess.layers.rmsnorm import RMSNorm
from firstguess.layers.scale import Scale
from firstguess.layers.shift import Shift

__all__ = [
    "KINDS",
    "Activate",
    "AvgPool",
    "BatchNorm",
    "Conv",
    "Dense",
    "GroupNorm",
    "Layer",
    "LayerNorm",
    "MaxPool",
    "RMSNorm",
    "Residual",
    "Scale",
    "Shift",
    "parse_layers",
    "sequence_text",
    "steps",
    "text",
]
