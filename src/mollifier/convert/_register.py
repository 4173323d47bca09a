"""Register the user's own activations and residual blocks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mollifier.activations import add, names, tangent_at_zero, visible
from mollifier.convert._structure import register_residual

Function = Callable[[Tensor], Tensor]


def register(
    target: Function | type[nn.Module],
    f: Function | None = None,
    *,
    name: str | None = None,
    tangent: tuple[float, float] | None = None,
    kind: Literal["activation", "block"] = "activation",
) -> Any:
    """Register an activation, or a class of residual blocks, so that `mollify` recognises it.

        >>> import mollifier, torch
        >>> @mollifier.register
        ... def squareplus(x):
        ...     return (x + torch.sqrt(x * x + 4)) / 2
        >>> class Squareplus(torch.nn.Module):
        ...     def forward(self, x):
        ...         return squareplus(x)
        >>> _ = mollifier.register(Squareplus, squareplus, name="Squareplus")
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), Squareplus(), torch.nn.Linear(2, 1))
        >>> mollifier.report(mollifier.mollify(net)).blocks[0].activations
        ['Squareplus (2 a)']

    A function is recognised where a forward calls it or a module keeps it as an attribute, and a module type wherever an instance of it
    is used. Only calls of the function that `register` returns are recognised, so use it as a decorator. A pickled model needs the same
    registration before it is loaded.

    Args:
        target: The function, elementwise and not in place; or the module type, with its function in ``f``; or,
            with ``kind="block"``, a class of residual blocks (layers in a chain, then the addition, then the activation).
        f: The function that the module type computes. Without it, ``register(Type)`` returns a decorator for the function.
        name: The name in the table and in reports; by default the name of the target.
        tangent: Slope and offset of the line that it is pushed toward; by default its tangent at 0, by autograd.
        kind: ``"activation"`` or ``"block"``.

    Returns:
        The registered function or class, so that it can be used as a decorator.

    Raises:
        ValueError: If the name is taken, or the function is not elementwise or flat at 0.
    """
    if kind == "block":
        if not (isinstance(target, type) and issubclass(target, nn.Module)):
            raise ValueError(f"register: kind='block' expects a subclass of nn.Module, got {target!r}")
        register_residual(target)
        return target
    if kind != "activation":
        raise ValueError(f"register: kind={kind!r}: expected 'activation' or 'block'")
    if isinstance(target, type):
        module = target
        if f is None:
            return lambda function: register(module, function, name=name, tangent=tangent)
        _add(name or module.__name__, f, tangent, {module: {}})
        return f
    function = visible(target) if isinstance(target, FunctionType) else target
    _add(name or str(getattr(target, "__name__", target)), function, tangent, {}, target)
    return function


def _add(
    name: str,
    f: Function,
    tangent: tuple[float, float] | None,
    modules: dict[type[nn.Module] | str, Any],
    *functions: Function,
) -> None:
    if name in names():
        raise ValueError(f"register: the name {name!r} is taken; give another with name=…")
    if not _is_elementwise(f):
        raise ValueError(f"register: {name} is not elementwise: each output must depend only on its own input")
    slope, offset = tangent or tangent_at_zero(f)
    if not all(map(torch.isfinite, torch.tensor([slope, offset]))) or slope == 0.0:
        raise ValueError(
            f"register: the tangent of {name} at 0 is {slope:g} x + {offset:g}, which transmits no signal; give tangent=(slope, offset)"
        )
    add(name, f, (slope, offset), modules=modules, functions=functions)


def _is_elementwise(f: Function) -> bool:
    """Return whether the function maps each number independently of the others."""
    # unsorted, to detect cummax and the like
    numbers = torch.tensor([[0.3, -1.0, 0.8], [-0.2, 1.0, -0.6]], dtype=torch.float64)
    out = f(numbers.clone())
    if not isinstance(out, Tensor) or out.shape != numbers.shape:
        return False
    alone = torch.cat([f(number.clone()) for number in numbers.view(6, 1, 1)])
    return torch.allclose(alone.view(2, 3), out, rtol=1e-9, atol=1e-12, equal_nan=True)
