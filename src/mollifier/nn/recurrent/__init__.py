"""Recurrent modules: gates held at targets that yield a bag of words, noisy activations, and the copy of the layer below."""

from mollifier.nn.recurrent._layer import (
    LayerMollifier as LayerMollifier,
    RecurrentMollifier as RecurrentMollifier,
    RecurrentOptions as RecurrentOptions,
)
from mollifier.nn.recurrent.cells import (
    CellForward as CellForward,
    MollifiedGRUCell as MollifiedGRUCell,
    MollifiedLSTMCell as MollifiedLSTMCell,
    MollifiedRNNCell as MollifiedRNNCell,
)
from mollifier.nn.recurrent.modules import (
    HardSigmoidGRU as HardSigmoidGRU,
    HardSigmoidLSTM as HardSigmoidLSTM,
    MollifiedGRU as MollifiedGRU,
    MollifiedLSTM as MollifiedLSTM,
    MollifiedRNN as MollifiedRNN,
    RecurrentForward as RecurrentForward,
)
