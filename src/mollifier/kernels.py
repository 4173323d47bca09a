"""The former place of the kernels: they are in `mollifier.ops` now, which also says which of them are used.

>>> import mollifier
>>> mollifier.kernels.info() == mollifier.ops.info()
True
"""

from mollifier.ops import Info as Info, info as info

__all__ = ["Info", "info"]
