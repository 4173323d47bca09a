"""Whether the kernels serve, and the calls into them."""

from __future__ import annotations

import ctypes
import os
import threading
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
# In the order of `enum Act` in activations.h, with the options that each takes.
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
    """`struct Activation` of activations.h."""

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
        backend: ``"native"``, ``"eager"`` (functions of torch's own operations) or ``"reference"``.
        why: The reason.
        serves: What each of them serves, a line each.
    """

    backend: str
    why: str
    serves: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}" + "".join(f"\n  {line}" for line in self.serves)


@cache
def _asked() -> str:
    """What MOLLIFIER_KERNELS asks for: ``"off"``, ``"eager"`` or, unset, the best that there is."""
    asked = os.environ.get("MOLLIFIER_KERNELS", "").lower()
    return "off" if asked in ("off", "0", "no") else "eager" if asked == "eager" else ""


@cache
def _state() -> tuple[Any, str]:
    if _asked():
        return None, f"MOLLIFIER_KERNELS={_asked()}"
    try:
        library = load()
    except NoKernelsError as problem:
        warnings.warn(
            f"mollifier: {problem}; the slower eager implementation serves instead", RuntimeWarning, stacklevel=2
        )
        return None, str(problem)
    pointer, number, integer, packed = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_char_p
    library.mollifier_unit_forward.argtypes = [packed, *[pointer] * 3, number, *[pointer] * 3, integer]
    library.mollifier_unit_backward.argtypes = [packed, *[pointer] * 5, number, integer, *[pointer] * 3, integer]
    head: list[Any] = [integer, pointer, packed, number, number, pointer, pointer]
    library.mollifier_chain_forward.argtypes = [*head, integer, pointer, number, pointer, integer]
    library.mollifier_chain_backward.argtypes = [*head, pointer, pointer, number, pointer, integer]
    library.mollifier_noise.argtypes = [ctypes.c_uint64, number, pointer, pointer]
    return library, "compiled for this machine"


def library() -> Any:
    """The loaded kernels, or None."""
    return _state()[0]


def info() -> Info:
    """Which backend serves what on this machine, and why.

    >>> import mollifier
    >>> mollifier.kernels.info().backend in ("native", "eager", "reference")
    True
    """
    found, why = _state()
    if found is None and _asked() == "off":
        return Info("reference", why, ("reference: everything",))
    cases = (
        f"the unit (noisy activation and copy): {', '.join(sorted(BUILT_IN))}",
        "whole sequences of LSTM and GRU layers, sigmoid or hard-sigmoid gates, in float32 and float64; also expected values, where no derivative is taken",
    )
    rest = "reference: all else (expected values, frozen noise, accelerators, torch.func, registered activations, "
    rest += "unbiased gates, proj_size)"
    sampled = "with sampled noise, on the CPU"
    if found is None:
        return Info("eager", why, (*(f"eager, {sampled}: {case}" for case in cases), f"{rest[:-1]}, torch.compile)"))
    return Info(
        "native",
        why,
        (
            f"native, {sampled}, in float32, float64 and bfloat16: {cases[0]}",
            f"native, {sampled}, in float32 and float64: the unit with its linear layer; only what is not copied while p is high",
            f"native, {sampled}: {cases[1]}",
            "native, one operation of torch.compile's graphs: the unit",
            f"eager, {sampled}, in float16: the unit",
            rest,
        ),
    )


# Is torch.compile at work in this thread? It would take the kernels' Python apart, and compile it again at every level.
_TRACED: Callable[[], Any] = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)


def _ready(x: Tensor) -> bool:
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and type(x) in (Tensor, torch.nn.Parameter)
        and x.numel() > 0
        and not torch._C._are_functorch_transforms_active()
        and torch._C._get_tracing_state() is None
        and torch.autograd.forward_ad._current_level < 0
        and not _TRACED()
    )


def serves(x: Tensor) -> bool:
    """Can the native kernels take this tensor, here and now? What is compiled, or runs between the pieces of it, is the reference."""
    return x.dtype in DTYPES and _ready(x) and library() is not None


def eager_serves(x: Tensor) -> bool:
    """Can the eager functions, where the native kernels do not?"""
    return x.is_floating_point() and _ready(x) and (library() is not None or _asked() != "off")


_STRUCTS: dict[str, ActivationStruct] = {}


def knows(act: Activation) -> bool:
    """Is it one of the table's own? Anybody else's function may have the same name."""
    return act.listed and act.name in BUILT_IN


def struct(act: Activation) -> ActivationStruct | None:
    """The activation as the kernels know it; None if it is the user's own."""
    if not knows(act):
        return None
    name = str(act) if act.options else act.name
    if name not in _STRUCTS:
        _STRUCTS[name] = ActivationStruct(*parts(act))
    return _STRUCTS[name]


def parts(act: Activation) -> tuple[float, ...]:
    """The numbers that say which activation it is: kind, slope, offset and two options."""
    key = "gelu_tanh" if act.name == "gelu" and act.options.get("approximate") == "tanh" else act.name
    values = [float(act.options.get(name, default)) for name, default in DEFAULTS.get(key, ())]
    first, second = [*values, 0.0, 0.0][:2]
    return KINDS[key], act.slope, act.offset, first, second


class _Drawn(threading.local):
    """A place for one number, of each thread its own."""

    def __init__(self) -> None:
        self.number = torch.empty((), dtype=torch.int64, device="cpu")


_DRAWN = _Drawn()


def draw_seed() -> int:
    """63 bits from torch's own generator, so that its seed decides all noise."""
    return _DRAWN.number.random_().item()  # type: ignore[return-value]


def draw_seeds(count: int) -> list[int]:
    """What so many calls of `draw_seed` would give."""
    return torch.empty(count, dtype=torch.int64, device="cpu").random_().tolist()


def noise(seed: int, count: int) -> tuple[Tensor, Tensor]:
    """The |ξ| and the uniform draws that the kernels make of a seed.

    >>> import mollifier, torch
    >>> normal, uniform = mollifier.kernels.noise(seed=1, count=1000)
    >>> assert (normal >= 0).all() and (uniform < 1).all()
    """
    native = library()
    if native is None:
        from mollifier.kernels import _eager_noise

        return _eager_noise.noise(seed, count)
    normal, uniform = torch.empty(count), torch.empty(count)
    native.mollifier_noise(seed, count, normal.data_ptr(), uniform.data_ptr())
    return normal, uniform
