"""The method's inner loops as torch operators: native on the CPU, `mollifier.functional` everywhere else.

    >>> import mollifier
    >>> mollifier.ops.info().backend in ("native", "reference")
    True

Only this package decides which of the two is used. The native kernels are compiled when the package is built, for plain x86-64, AVX2 and
AVX-512; setting ``MOLLIFIER_KERNELS=off`` in the environment selects the reference.
"""

from mollifier.ops._chain import Link as Link, chain as chain, chain_serves as chain_serves
from mollifier.ops._library import Info as Info, info as info
from mollifier.ops._loop import PARTS as PARTS, Layer as Layer
from mollifier.ops._operator import draw_seeds as draw_seeds, knows as knows, noise as noise
from mollifier.ops._recurrent import recurrent as recurrent
from mollifier.ops._unit import unit as unit

__all__ = [
    "PARTS",
    "Info",
    "Layer",
    "Link",
    "chain",
    "chain_serves",
    "draw_seeds",
    "info",
    "knows",
    "noise",
    "recurrent",
    "unit",
]
