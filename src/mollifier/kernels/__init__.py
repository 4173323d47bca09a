"""The method's inner loops made fast, behind the modules and chosen by themselves.

>>> import mollifier
>>> mollifier.kernels.info().backend in ("native", "eager", "reference")
True

Native code where a C++ compiler is found; without one, and with one warning, functions of torch's own operations with derivatives
written by hand. ``MOLLIFIER_KERNELS=eager`` in the environment asks for these, ``MOLLIFIER_KERNELS=off`` for the reference.
"""

from mollifier.kernels._chain import Link as Link, fused_chain as fused_chain, product as product
from mollifier.kernels._compiled import compiled_serves as compiled_serves, compiled_unit as compiled_unit
from mollifier.kernels._eager_recurrent import eager_gru_layer as eager_gru_layer, eager_lstm_layer as eager_lstm_layer
from mollifier.kernels._eager_unit import EagerSpec as EagerSpec, eager_unit as eager_unit
from mollifier.kernels._library import (
    BUILT_IN as BUILT_IN,
    Info as Info,
    eager_serves as eager_serves,
    info as info,
    knows as knows,
    noise as noise,
    serves as serves,
    struct as struct,
)
from mollifier.kernels._recurrent import (
    PLACES as PLACES,
    Cell as Cell,
    Clock as Clock,
    Part as Part,
    has_product as has_product,
    recurrent_layer as recurrent_layer,
)
from mollifier.kernels._unit import Spec as Spec, fused_unit as fused_unit, strength as strength

__all__ = [
    "BUILT_IN",
    "PLACES",
    "Cell",
    "Clock",
    "EagerSpec",
    "Info",
    "Link",
    "Part",
    "Spec",
    "compiled_serves",
    "compiled_unit",
    "eager_gru_layer",
    "eager_lstm_layer",
    "eager_serves",
    "eager_unit",
    "fused_chain",
    "fused_unit",
    "has_product",
    "info",
    "knows",
    "noise",
    "product",
    "recurrent_layer",
    "serves",
    "strength",
    "struct",
]
