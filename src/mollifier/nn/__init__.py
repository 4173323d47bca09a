"""Modules with state: the noisy activation, the copy, its fixed projection, the block, weight noise, and the paper's hard-sigmoid."""

import warnings
from typing import Any

from mollifier.nn._annealed import Annealed as Annealed
from mollifier.nn.copy import Copy as Copy, MollifiedBlock as MollifiedBlock
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
    "Annealed",
    "Copy",
    "FixedProjection",
    "HardSigmoid",
    "HardSigmoidGRU",
    "HardSigmoidLSTM",
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


def __getattr__(name: str) -> Any:
    """Return the current object for a name from version 0.1, with a warning."""
    if name == "Levelled":
        warnings.warn("mollifier.nn.Levelled is mollifier.nn.Annealed now; the old name will go with version 0.3", DeprecationWarning, stacklevel=2)  # fmt: skip
        return Annealed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
