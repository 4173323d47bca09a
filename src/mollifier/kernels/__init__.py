"""The method's inner loops in native code, behind the modules and chosen by themselves.

>>> import mollifier
>>> mollifier.kernels.info().backend in ("native", "eager")
True

``MOLLIFIER_KERNELS=off`` in the environment forces the reference. Without a C++ compiler it serves as well, with one warning.
"""

from mollifier.kernels._library import Info as Info, info as info, noise as noise, serves as serves, struct as struct
from mollifier.kernels._linear import fused_linear as fused_linear
from mollifier.kernels._recurrent import (
    Cell as Cell,
    gru_layer as gru_layer,
    has_product as has_product,
    lstm_layer as lstm_layer,
)
from mollifier.kernels._unit import Spec as Spec, fused_unit as fused_unit

__all__ = [
    "Cell",
    "Info",
    "Spec",
    "fused_linear",
    "fused_unit",
    "gru_layer",
    "has_product",
    "info",
    "lstm_layer",
    "noise",
    "serves",
    "struct",
]
