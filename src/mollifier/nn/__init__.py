"""Modules with state: the noisy activation, the copy, its fixed projection, the block, weight noise, and the paper's hard-sigmoid."""

from mollifier.nn._levelled import Levelled as Levelled
from mollifier.nn.block import MollifiedBlock as MollifiedBlock
from mollifier.nn.copy import Copy as Copy
from mollifier.nn.noisy import HardSigmoid as HardSigmoid, NoisyActivation as NoisyActivation
from mollifier.nn.projection import FixedProjection as FixedProjection
from mollifier.nn.recurrent import (
    HardSigmoidGRU as HardSigmoidGRU,
    HardSigmoidLSTM as HardSigmoidLSTM,
    MollifiedGRU as MollifiedGRU,
    MollifiedGRUCell as MollifiedGRUCell,
    MollifiedLSTM as MollifiedLSTM,
    MollifiedLSTMCell as MollifiedLSTMCell,
    MollifiedRNN as MollifiedRNN,
    MollifiedRNNCell as MollifiedRNNCell,
    RecurrentOptions as RecurrentOptions,
)
from mollifier.nn.step import Sign as Sign, Step as Step
from mollifier.nn.weight_noise import (
    WeightNoise as WeightNoise,
    remove_weight_noise as remove_weight_noise,
    weight_noise as weight_noise,
)

__all__ = [
    "Copy",
    "FixedProjection",
    "HardSigmoid",
    "HardSigmoidGRU",
    "HardSigmoidLSTM",
    "Levelled",
    "MollifiedBlock",
    "MollifiedGRU",
    "MollifiedGRUCell",
    "MollifiedLSTM",
    "MollifiedLSTMCell",
    "MollifiedRNN",
    "MollifiedRNNCell",
    "NoisyActivation",
    "RecurrentOptions",
    "Sign",
    "Step",
    "WeightNoise",
    "remove_weight_noise",
    "weight_noise",
]
