"""Whether the kernels serve, and the calls into them."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from mollifier.activations import Activation
from mollifier.kernels._build import NoKernelsError, load

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
# In the order of `enum Act` in common.h, with the options that each takes.
KINDS = {
    name: number
    for number, name in enumerate(
        [
            "sigmoid",
            "hard_sigmoid",
            "hardsigmoid",
            "tanh",
            "hardtanh",
            "relu",
            "leaky_relu",
            "elu",
            "selu",
            "silu",
            "gelu",
            "gelu_tanh",
            "softplus",
            "softsign",
            "mish",
        ]
    )
}
DEFAULTS: dict[str, tuple[tuple[str, float], ...]] = {
    "hardtanh": (("min_val", -1.0), ("max_val", 1.0)),
    "leaky_relu": (("negative_slope", 0.01),),
    "elu": (("alpha", 1.0),),
    "softplus": (("beta", 1.0), ("threshold", 20.0)),
}
BUILT_IN = set(KINDS) - {"gelu_tanh"}


class ActivationStruct(ctypes.Structure):
    """`struct Activation` of common.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("slope", ctypes.c_double),
        ("offset", ctypes.c_double),
        ("first", ctypes.c_double),
        ("second", ctypes.c_double),
    )


@dataclass(frozen=True)
class Info:
    """Which backend serves what, and why.

    Attributes:
        backend: ``"native"`` or ``"eager"``.
        why: The reason.
        serves: What the native kernels serve.
    """

    backend: str
    why: str
    serves: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}" + "".join(f"\n  {line}" for line in self.serves)


@cache
def _state() -> tuple[Any, str]:
    if os.environ.get("MOLLIFIER_KERNELS", "").lower() in ("off", "0", "no"):
        return None, "MOLLIFIER_KERNELS=off"
    try:
        library = load()
    except NoKernelsError as problem:
        warnings.warn(
            f"mollifier: {problem}; the slower eager implementation serves instead", RuntimeWarning, stacklevel=2
        )
        return None, str(problem)
    pointer, number, real, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
    head: list[Any] = [integer, pointer, pointer, real, real, integer, integer, ctypes.c_uint64]
    library.mollifier_unit_forward.argtypes = [*head, pointer, pointer, pointer, number, *[pointer] * 3, integer]
    library.mollifier_unit_backward.argtypes = [*head, *[pointer] * 5, number, integer, *[pointer] * 3, integer]
    library.mollifier_linear_forward.argtypes = [
        *[pointer] * 2, real, real, ctypes.c_uint64, *[pointer] * 4, number, *[pointer] * 5, integer,
    ]  # fmt: skip
    library.mollifier_linear_backward.argtypes = [*[pointer] * 4, number, *[pointer] * 8, integer]
    library.mollifier_noise.argtypes = [ctypes.c_uint64, number, pointer, pointer]
    return library, "compiled for this machine"


def library() -> Any:
    """The loaded kernels, or None."""
    return _state()[0]


def info() -> Info:
    """Which backend serves what on this machine, and why.

    >>> import mollifier
    >>> mollifier.kernels.info().backend in ("native", "eager")
    True
    """
    found, why = _state()
    if found is None:
        return Info("eager", why)
    return Info(
        "native",
        why,
        (
            f"the unit (noisy activation and copy) in float32, float64 and bfloat16: {', '.join(sorted(BUILT_IN))}",
            "the unit with its linear layer, and only what is not copied of it while p is high: float32, float64",
            "whole sequences of LSTM and GRU layers, sigmoid or hard-sigmoid gates: float32, float64",
            "these with sampled noise, on the CPU, in eager mode; all else (expected values, frozen noise, accelerators, "
            "torch.compile, torch.func, registered activations, unbiased gates, proj_size): eager",
        ),
    )


# Is torch.compile at work in this thread? It would take the kernels' Python apart, and compile it again at every level.
_TRACED: Callable[[], Any] = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)


def serves(x: Tensor) -> bool:
    """Can the kernels take this tensor, here and now? What is compiled, or runs between the pieces of it, is the reference."""
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype in DTYPES
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.numel() > 0
        and not torch._C._are_functorch_transforms_active()
        and torch._C._get_tracing_state() is None
        and torch.autograd.forward_ad._current_level < 0
        and not _TRACED()
        and library() is not None
    )


_STRUCTS: dict[str, ActivationStruct] = {}


def struct(act: Activation) -> ActivationStruct | None:
    """The activation as the kernels know it; None if it is the user's own."""
    if act.name not in BUILT_IN:
        return None
    name = str(act)
    if name not in _STRUCTS:
        _STRUCTS[name] = _struct(act)
    return _STRUCTS[name]


def _struct(act: Activation) -> ActivationStruct:
    key = "gelu_tanh" if act.name == "gelu" and act.options.get("approximate") == "tanh" else act.name
    values = [float(act.options.get(name, default)) for name, default in DEFAULTS.get(key, ())]
    first, second = [*values, 0.0, 0.0][:2]
    return ActivationStruct(KINDS[key], act.slope, act.offset, first, second)


_DRAWN = torch.empty((), dtype=torch.int64)


def draw_seed() -> int:
    """63 bits from torch's own generator, so that its seed decides all noise."""
    return _DRAWN.random_().item()  # type: ignore[return-value]


def noise(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """The |ξ| and the uniform draws that the kernels make of a seed.

    >>> import mollifier, torch
    >>> if mollifier.kernels.info().backend == "native":
    ...     normal, uniform = mollifier.kernels.noise(seed=1, count=1000)
    ...     assert (normal >= 0).all() and (uniform < 1).all()
    """
    native = library()
    if native is None:
        raise RuntimeError(f"there are no native kernels: {info().why}")
    normal, uniform = torch.empty(count), torch.empty(count)
    native.mollifier_noise(seed, count, normal.data_ptr(), uniform.data_ptr())
    return normal, uniform
