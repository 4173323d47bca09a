"""Record shapes and order of the calls in a forward, from an example input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mollifier.convert._calls import ForwardSummary
from mollifier.convert._recorded import Recorder
from mollifier.convert._structure import Width, affine_width, argument_names, first_tensors, unit_dim_of
from mollifier.convert._unchanged import unchanged


@dataclass
class CallRecord:
    """The calls of one module: when it was first called, and with which shapes."""

    first: int
    unit_dim: int
    inputs: list[tuple[int, ...]] = field(default_factory=list)
    outputs: list[tuple[int, ...]] = field(default_factory=list)

    def units(self) -> int | None:
        """Return the units of an activation, if all calls agree on them."""
        counts = {shape[self.unit_dim] if len(shape) >= -self.unit_dim else None for shape in self.inputs}
        return counts.pop() if len(counts) == 1 else None


def record_calls(model: nn.Module, example: Any) -> tuple[dict[str, CallRecord], dict[str, ForwardSummary]]:
    """Run the model once on an example, in eval() and without gradients, and note every call.

    The random state, the mode, the buffers and the attributes are restored afterwards; only lazy modules stay initialised.
    """
    seen: dict[str, CallRecord] = {}
    clock = [0, -1]  # calls so far; unit dimension of the last affine layer
    recorder = Recorder(model)
    handles = []
    with unchanged(model):
        try:
            for name, module in model.named_modules():
                handles.append(module.register_forward_pre_hook(_entering(name, module, seen, clock), with_kwargs=True))
                handles.append(module.register_forward_hook(_leaving(name, seen)))
                handles.append(module.register_forward_pre_hook(recorder.enter))
                handles.append(module.register_forward_hook(recorder.leave))
            with torch.no_grad(), recorder:
                model.eval()
                if isinstance(example, dict):
                    model(**example)
                else:
                    model(*example if isinstance(example, (tuple, list)) else (example,))
        finally:
            for handle in handles:
                handle.remove()
    return seen, recorder.found


def _entering(name: str, module: nn.Module, seen: dict[str, CallRecord], clock: list[int]) -> Callable[..., None]:
    names = argument_names(type(module))

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        clock[0] += 1
        width = affine_width(module)  # here, since a lazy module has just been initialised
        if width is not None:
            clock[1] = width.unit_dim
        call = seen.setdefault(name, CallRecord(clock[0], clock[1]))
        shape = _shape(first_tensors(names, args, kwargs))
        if shape is not None:
            call.inputs.append(shape)

    return hook


def _leaving(name: str, seen: dict[str, CallRecord]) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], out: Any) -> None:
        shape = _shape(out if isinstance(out, (tuple, list)) else (out,))
        if shape is not None:
            seen[name].outputs.append(shape)

    return hook


def _shape(items: Any) -> tuple[int, ...] | None:
    return next((tuple(item.shape) for item in items if isinstance(item, Tensor)), None)


def recorded_width(name: str, module: nn.Module, seen: CallRecord) -> Width:
    """Return the observed width of a block, or raise a ValueError if no copy path leads from its input to its output."""
    dim = unit_dim_of(module)
    if len(seen.inputs) != 1 or len(seen.outputs) != 1:
        raise ValueError(
            f"block {name!r} was called {len(seen.inputs)} times in one forward: name modules that are called once"
        )
    below, above = seen.inputs[0], seen.outputs[0]
    if below == above:
        return Width(below[dim], above[dim], dim) if len(below) >= -dim else Width(None, None, dim)
    fixed = slice(0, dim)  # what comes before the units cannot change; what comes after is pooled
    if len(below) != len(above) or below[fixed] != above[fixed]:
        raise ValueError(
            f"block {name!r} takes {below} to {above}: there is no copy path between these shapes. "
            "Name a block whose output keeps the dimensions of its input, such as the layers inside it."
        )
    return Width(below[dim], above[dim], dim)
