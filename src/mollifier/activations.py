"""Activations with their tangents at 0, and the table that holds them.

    >>> import torch
    >>> from mollifier.activations import activation
    >>> sigmoid = activation("sigmoid")
    >>> sigmoid.f(torch.tensor(0.0)), sigmoid.u(torch.tensor(2.0))
    (tensor(0.5000), tensor(1.))

Mollification moves an activation ``f`` toward its tangent ``u`` at 0 (section Linearizing the network), which is all that the
method needs to know about it. `register` adds a user's function or module type to the table.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, wraps
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Activation:
    """An activation and its tangent at 0, ``u(x) = slope x + offset``.

        >>> import torch
        >>> from mollifier.activations import activation
        >>> activation("tanh").u(torch.tensor([3.0]))
        tensor([3.])

    Attributes:
        name: Its name in the table.
        f: The function, elementwise and never in place.
        slope: The slope of the tangent.
        offset: ``u(0)``, which is also ``f(0)``.
        options: The keyword arguments that ``f`` already holds, e.g. ``negative_slope``.
        listed: Whether it is a row of the table. The kernels support only these; another activation may have the same name.
    """

    name: str
    f: Callable[[Tensor], Tensor]
    slope: float
    offset: float
    options: Options = field(default_factory=dict)
    # Whether it comes from the table, so that its name identifies it. A user's activation may have any name.
    listed: bool = field(default=False, init=False, repr=False, compare=False)

    def u(self, x: Tensor) -> Tensor:
        """The tangent at 0."""
        line = x if self.slope == 1.0 else self.slope * x
        return line if self.offset == 0.0 else line + self.offset

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.listed:
            return Activation, (self.name, self.f, self.slope, self.offset, dict(self.options))
        # By name, so that a pickled model needs no picklable functions.
        return _build, (self.name, dict(self.options))

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({shown})" if shown else self.name


@dataclass(frozen=True)
class _Entry:
    """One row of the table: ``options`` are the names of f's further arguments, in order."""

    f: Callable[..., Tensor]
    tangent: tuple[float, float] | Callable[..., tuple[float, float]] | None
    options: tuple[str, ...] = ()


_TABLE: dict[str, _Entry] = {}
_MODULES: dict[type[nn.Module] | str, tuple[str, Options]] = {}
_FUNCTIONS: dict[Callable[..., Any], str] = {}
_METHODS: dict[str, str] = {}
_FIXED: dict[Callable[..., Any], Options] = {}  # the options of functions that take none


def visible(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make calls of a Python function visible to torch's function modes, as those of torch's own functions are.

    >>> @visible
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(1))
    tensor([2.])
    """

    @wraps(function)
    def call(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if has_torch_function((x,)):  # also while a mode is active
            result: Tensor = handle_torch_function(call, (x,), x, *args, **kwargs)
            return result
        return function(x, *args, **kwargs)

    call._visible = True  # type: ignore[attr-defined]
    return call


def is_visible(function: Any) -> bool:
    """Return whether torch's function modes see calls of a function. They do not see a user's Python function, unless `visible` wraps it.

    >>> is_visible(torch.tanh), is_visible(F.silu), is_visible(hard_sigmoid), is_visible(lambda x: x)
    (True, True, True, False)
    """
    own = isinstance(function, FunctionType) and not function.__module__.startswith("torch.")
    return not own or hasattr(function, "_visible")


@visible
def hard_sigmoid(x: Tensor) -> Tensor:
    """The paper's hard-sigmoid, ``clip(0.25 x + 0.5, 0, 1)``: the sigmoid's own tangent, clipped."""
    return (0.25 * x + 0.5).clamp(0.0, 1.0)


def _torch_hardsigmoid(x: Tensor) -> Tensor:
    # F.hardsigmoid has no second derivative; clamp has, with the same values.
    return (x + 3.0).clamp(0.0, 6.0) / 6.0


def _line_inside(min_val: float = -1.0, max_val: float = 1.0) -> tuple[float, float]:
    if not min_val <= 0.0 <= max_val or min_val == max_val:
        raise ValueError(f"hardtanh on [{min_val}, {max_val}] is flat at 0 and has no tangent to be pushed toward")
    return 1.0, 0.0


def tangent_at_zero(f: Callable[[Tensor], Tensor]) -> tuple[float, float]:
    """Compute slope and offset of f's tangent at 0 by autograd.

    >>> import torch
    >>> tangent_at_zero(torch.sigmoid)
    (0.25, 0.5)
    """
    with torch.enable_grad():
        zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
        value = f(zero)
        (slope,) = torch.autograd.grad(value, zero) if value.requires_grad else (torch.zeros(()),)
    return float(slope), float(value.detach())


def _build(name: str, options: Options | None = None) -> Activation:
    if name not in _TABLE:
        close = difflib.get_close_matches(name, _TABLE, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(sorted(_TABLE))
        raise ValueError(
            f"{name!r} is not a known activation.{hint} Known: {known}. Add yours with mollifier.register."
        )
    entry, options = _TABLE[name], dict(options or {})
    f = partial(entry.f, **options) if options else entry.f
    if entry.tangent is None:
        slope, offset = tangent_at_zero(f)
    elif callable(entry.tangent):
        slope, offset = entry.tangent(**options)
    else:
        slope, offset = entry.tangent
    found = Activation(name, f, slope, offset, options)
    object.__setattr__(found, "listed", True)
    return found


def activation(spec: str | nn.Module | Callable[..., Any] | Activation, **options: Any) -> Activation:
    """Return the `Activation` for a name, a module or a function.

        >>> from torch import nn
        >>> activation(nn.LeakyReLU(0.2)).options
        {'negative_slope': 0.2}

    Raises:
        ValueError: If it is not in the table.
    """
    if isinstance(spec, Activation):
        return spec
    if isinstance(spec, str):
        return _build(spec, options)
    found = of_module(spec) if isinstance(spec, nn.Module) else of_function(spec, (), options)
    if found is None:
        raise ValueError(f"{spec!r} is not a known activation. Add it with mollifier.register(...).")
    return found


def of_module(module: nn.Module) -> Activation | None:
    """Return the activation that a module computes, or None."""
    kind = getattr(module, "_plain_class", type(module))  # also where mollify swapped the class
    row = _MODULES.get(kind) or _MODULES.get(f"{kind.__module__}.{kind.__qualname__}")
    if row is None:
        return None
    name, fixed = row
    options = {key: getattr(module, key) for key in _TABLE[name].options if hasattr(module, key)}
    return _build(name, {**options, **fixed})


def of_function(function: Any, args: tuple[Any, ...] = (), kwargs: Options | None = None) -> Activation | None:
    """Return the activation that a function or method computes with these further arguments, or None."""
    try:
        name = _METHODS.get(function) if isinstance(function, str) else _FUNCTIONS.get(function)
    except TypeError:  # unhashable: certainly not in the table
        return None
    if name is None:
        return None
    if function in _FIXED:
        return _build(name, _FIXED[function])
    options = dict(zip(_TABLE[name].options, args, strict=False)) | dict(kwargs or {})
    options.pop("inplace", None)
    return _build(name, {key: value for key, value in options.items() if key in _TABLE[name].options})


def function_name(function: Any) -> str | None:
    """Return the name of the activation that a function or tensor method computes, or None.

    >>> function_name(torch.Tensor.relu), function_name(torch.exp)
    ('relu', None)
    """
    return _FUNCTIONS.get(function)


def function_names() -> set[str]:
    """Return the names of functions and methods by which code calls activations.

    >>> {"relu", "tanh_", "softplus"} <= function_names()
    True
    """
    return {str(getattr(function, "__name__", "")) for function in _FUNCTIONS} | set(_METHODS)


def python_functions() -> tuple[Callable[..., Any], ...]:
    """Return the table's functions that are written in Python, as most users' functions are."""
    return tuple(function for function in _FUNCTIONS if isinstance(function, FunctionType))


def names() -> list[str]:
    """Return the names of all known activations."""
    return sorted(_TABLE)


def add(
    name: str,
    f: Callable[..., Tensor],
    tangent: tuple[float, float] | Callable[..., tuple[float, float]] | None = None,
    *,
    options: tuple[str, ...] = (),
    modules: Mapping[type[nn.Module] | str, Options] | None = None,
    functions: tuple[Callable[..., Any], ...] = (),
    methods: tuple[str, ...] = (),
) -> None:
    """Add a row to the table; `mollifier.register` is the public function, which checks its arguments."""
    _TABLE[name] = _Entry(f, tangent, options)
    _MODULES.update({kind: (name, fixed) for kind, fixed in (modules or {}).items()})
    _FUNCTIONS.update(dict.fromkeys((f, *functions), name))
    _METHODS.update(dict.fromkeys(methods, name))
    _FUNCTIONS.update({getattr(Tensor, method): name for method in methods})


_HF = "transformers.activations."
_SELU_SCALE = 1.0507009873554804934193349852946
# Functions with a kink at 0 get the line to the right of it (ReLU: x); None computes the tangent by autograd.
# fmt: off
add("sigmoid", torch.sigmoid, (0.25, 0.5), modules={nn.Sigmoid: {}}, functions=(F.sigmoid,), methods=("sigmoid", "sigmoid_"))
add("hardsigmoid", _torch_hardsigmoid, (1 / 6, 0.5), modules={nn.Hardsigmoid: {}}, functions=(F.hardsigmoid,))
add("tanh", torch.tanh, (1.0, 0.0), modules={nn.Tanh: {}}, functions=(F.tanh,), methods=("tanh", "tanh_"))
add("hardtanh", F.hardtanh, _line_inside, options=("min_val", "max_val"), modules={nn.Hardtanh: {}, nn.ReLU6: {}},
    functions=(F.hardtanh_, F.relu6))
_FIXED[F.relu6] = {"min_val": 0.0, "max_val": 6.0}
add("relu", torch.relu, (1.0, 0.0), modules={nn.ReLU: {}}, functions=(F.relu, F.relu_, torch.relu_), methods=("relu", "relu_"))
add("leaky_relu", F.leaky_relu, (1.0, 0.0), options=("negative_slope",), modules={nn.LeakyReLU: {}}, functions=(F.leaky_relu_,))
add("elu", F.elu, (1.0, 0.0), options=("alpha",), modules={nn.ELU: {}}, functions=(F.elu_,))
add("selu", torch.selu, (_SELU_SCALE, 0.0), modules={nn.SELU: {}}, functions=(F.selu, torch.selu_, F.selu_))
add("silu", F.silu, (0.5, 0.0), modules={nn.SiLU: {}, _HF + "SiLUActivation": {}})
add("gelu", F.gelu, (0.5, 0.0), options=("approximate",), modules={
    nn.GELU: {},
    _HF + "GELUActivation": {},
    _HF + "NewGELUActivation": {"approximate": "tanh"},
    _HF + "FastGELUActivation": {"approximate": "tanh"},
    _HF + "GELUTanh": {"approximate": "tanh"},
})
add("softplus", F.softplus, lambda beta=1.0, threshold=20.0: (0.5, math.log(2.0) / beta), options=("beta", "threshold"),
    modules={nn.Softplus: {}})
add("softsign", F.softsign, (1.0, 0.0), modules={nn.Softsign: {}})
add("mish", F.mish, None, modules={nn.Mish: {}})
# fmt: on
