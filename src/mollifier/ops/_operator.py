"""How an operator of ours is told to torch: its schema, its derivative, what serves on other devices, and vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

_DEFINED: Any = torch.library.Library("mollifier", "DEF")  # type: ignore[no-untyped-call]
OPERATORS = torch.ops.mollifier
below_autograd = torch._C._AutoDispatchBelowAutograd
# Devices that torch may have beside the CPU, for which the compiled library brings a kernel.
OTHERS = ("CUDA", "XPU", "MPS", "PrivateUse1")
_COMPOSITES: dict[str, Callable[..., Any]] = {}


def define(schema: str) -> None:
    """Define an operator."""
    _DEFINED.define(schema, tags=(torch.Tag.pt2_compliant_tag,))


def implement(name: str, run: Callable[..., Any], key: str) -> None:
    """Let this function be the operator under a key of torch's dispatcher."""
    _DEFINED.impl(name, run, key)


def differentiate(name: str, run: Callable[..., Any]) -> None:
    """Let this function answer calls of the operator that may want a derivative."""
    _DEFINED.impl(name, run, "Autograd")


def elsewhere(name: str, run: Callable[..., Any]) -> None:
    """Let this function of torch's own operations be the operator on other devices; torch differentiates it."""
    _COMPOSITES[name] = run
    for device in OTHERS:
        _DEFINED.impl(name, run, device)
        _DEFINED.impl(name, run, f"Autograd{device}")


def everywhere() -> None:
    """Let them be the operators on the CPU, too: there is no compiled library."""
    for name, run in _COMPOSITES.items():
        _DEFINED.impl(name, run, "CPU")
        _DEFINED.impl(name, run, "AutogradCPU")


def fake(name: str, run: Callable[..., Any]) -> None:
    """Let this function say what the operator returns, of tensors that have no values."""
    torch.library.register_fake(f"mollifier::{name}", run, lib=_DEFINED)


def refuse_second() -> None:
    """Refuse a second derivative for which the forward pass did not keep enough."""
    raise RuntimeError(
        "no second derivative: for one of sampled noise this module has not kept its input. Run the forward pass inside mollifier.frozen(model, seed=update), "
        "with a new seed at every update, or train on expected values, or set MOLLIFIER_KERNELS=off"
    )


def vmap_by_loop(name: str) -> None:
    """Give the operator a rule for vmap: one call for each of the batch, with its own level, seed and all else."""
    operator = getattr(OPERATORS, name).default

    def rule(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, Any]:
        def part(each: Any, dim: Any, number: int) -> Any:
            if isinstance(each, (list, tuple)):
                return [part(*both, number) for both in zip(each, dim or [None] * len(each), strict=True)]
            return each.select(dim, number) if isinstance(each, Tensor) and dim is not None else each

        calls = [
            operator(*(part(*both, number) for both in zip(given, in_dims, strict=True)))
            for number in range(info.batch_size)
        ]
        found = tree_map(lambda *parts: torch.stack(parts), *calls)
        return found, tree_map(lambda _: 0, found)

    torch.library.register_vmap(f"mollifier::{name}", rule, lib=_DEFINED)
