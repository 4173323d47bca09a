"""Runs: a layer, optional modules in between, and an activation, with a copy around them that works however they are called.

The modules of a run may be called by their container, one by one, in a slice of it, or by the user's own forward. They therefore do not rely
on their caller: the layer remembers its input and output, the modules in between pass the record on, and the activation at the end
checks whether its input came that way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mollifier.convert._classes import KEY, OURS
from mollifier.nn import Copy, NoisyActivation
from mollifier.nn._fused import close
from mollifier.nn.copy import check_unchanged, version


class RunRecord:
    """The record of a run: the input of its layer and the output of its last module. One per layer and thread.

    >>> run, below, out = RunRecord(), torch.zeros(2), torch.ones(2)
    >>> run.begin(below, out)
    >>> run.finish(torch.ones(2)) is None, run.finish(out) is below, run.finish(out) is None
    (True, True, True)
    """

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self._trails: dict[int, tuple[Tensor, int | None, Tensor]] = {}

    @property
    def active(self) -> bool:
        """Return whether any of its ends copies."""
        return self.ends[0].copies if len(self.ends) == 1 else any(end.copies for end in self.ends)

    def begin(self, below: Tensor, out: Tensor, before: int | None = None) -> None:
        """Record that the layer took ``below``, of this version, and returned ``out``."""
        self._trails[_thread()] = (below, before, out)

    def follow(self, given: Tensor, out: Tensor) -> None:
        """Record that a module between layer and activation took ``given`` and returned ``out``."""
        trail = self._trails.get(_thread())
        if trail is not None and _same(trail[2], given):
            self._trails[_thread()] = (*trail[:2], out)

    def finish(self, given: Tensor) -> Tensor | None:
        """Return the input of the layer, if ``given`` is the result of the run so far, and end the record."""
        trail = self._trails.get(_thread())
        if trail is None or not _same(trail[2], given):
            return None
        del self._trails[_thread()]
        check_unchanged(trail[0], trail[1])
        return trail[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"ends": self.ends, "_trails": {}}  # a copied or unpickled record is not in the middle of a forward


def _same(out: Tensor, given: Tensor) -> bool:
    """Return whether ``given`` is the module's output, even if a full backward hook has replaced the tensor object."""
    if out is given:
        return True
    if torch.compiler.is_compiling() or not isinstance(given, Tensor):
        return False
    wanted, node = out.grad_fn, given.grad_fn
    while node is not None and type(node).__name__ == "BackwardHookFunctionBackward":
        node = node.next_functions[0][0]
        if node is wanted and node is not None:
            return True
    return False


def _thread() -> int:
    return 0 if torch.compiler.is_compiling() else threading.get_ident()


class RunEnd(nn.Module):
    """The end of a run: its noisy activation and its copy.

    Attributes:
        noise: The noisy activation; None if activations stay as they are.
        copy: The copy past the whole run.
        function: The name of the activation.
        run: The record of the run that leads here.
    """

    def __init__(self, noise: NoisyActivation | None, copy: Copy, function: str, run: RunRecord) -> None:
        super().__init__()
        self.noise, self.copy, self.function, self.run = noise, copy, function, run
        run.ends.append(self)

    def arrival(self, x: Tensor) -> Tensor | None:
        """Return the input of its layer, if x came from there and this end copies it."""
        alone = len(self.run.ends) == 1  # then the layer has checked already
        return self.run.finish(x) if alone or self.copies else None

    @property
    def copies(self) -> bool:
        """Return whether it copies at the current level, or must be part of a graph that contains all parameters."""
        copy: Copy = self._modules["copy"]  # type: ignore[assignment]
        return copy.active or copy.residual or torch.distributed.is_initialized()

    def forward(self, below: Tensor, x: Tensor, plain: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the activation of x, mixed with the input of the layer."""
        return close(self.noise, self.copy, below, x, plain)


def ends_of(module: nn.Module) -> list[RunEnd]:
    """The runs that end in this module."""
    state = module._modules.get(KEY)
    ends = state._modules.get("ends") if state is not None else None
    return [] if ends is None else list(ends._modules.values())  # type: ignore[arg-type]


RUNS = f"{OURS}runs"  # in the __dict__ of a member: the runs that it is part of


def called(layer: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a layer that begins a run, and remember its input."""
    run: RunRecord = layer.__dict__[RUNS][0]
    if not run.active:
        return forward(*args, **kwargs)
    below = args[0] if args else kwargs["input"]
    before = version(below)
    out = forward(*args, **kwargs)
    run.begin(below, out, before)
    return out


def followed(between: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a module between the layer and the activation of one or several runs."""
    out = forward(*args, **kwargs)
    given = args[0] if args else kwargs["input"]
    for run in between.__dict__[RUNS]:
        run.follow(given, out)
    return out
