"""Where the kernels were: `mollifier.ops` has them now, and says which of them serve.

>>> import mollifier
>>> mollifier.kernels.info() == mollifier.ops.info()
True
"""

from mollifier.ops import Info as Info, info as info

__all__ = ["Info", "info"]
