"""Runs: a layer, optional modules in between, and an activation, with a copy around them that works however they are called.

The modules of a run may be called by their container, one by one, in a slice of it, or by the user's own forward. They therefore do not rely
on their caller: the layer remembers its input and output, the modules in between pass the record on, and the activation at the end
checks whether its input came that way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from mollifier.convert._classes import KEY, OURS
from mollifier.nn import Copy, NoisyActivation
from mollifier.nn._annealed import hooked
from mollifier.nn._fused import close
from mollifier.nn.copy import check_unchanged, version

# The most outputs that wait for their activation, if they are kept alive and if they are not. One that never gets there takes no place for long.
HELD, AWAITED = 4, 256


class Trail(NamedTuple):
    """One call of a layer: its input, and what has become of its output so far; with the versions of both."""

    below: Tensor
    before: int | None
    out: Tensor | ReferenceType[Tensor]
    after: int | None


class RunRecord:
    """The record of a run: for each output of its layer that is on its way to an activation, the input. One list per layer and thread.

    A layer may be called several times before the first of its outputs reaches the activation. Outputs are held by weak references, so that
    one that never gets there is not kept in memory; but not in a compiled forward, which forgets them at its end.

    >>> run, below, out = RunRecord(), torch.zeros(2), torch.ones(2)
    >>> run.begin(below, out)
    >>> run.finish(torch.ones(2)) is None, run.finish(out) is below, run.finish(out) is None
    (True, True, True)
    """

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []
        self.compiling_owner = False  # whether the forward that calls layer and activation is being compiled
        self._trails: dict[int, list[Trail]] = {}

    @property
    def active(self) -> bool:
        """Return whether any of its ends copies."""
        return self.ends[0].copies if len(self.ends) == 1 else any(end.copies for end in self.ends)

    def begin(self, below: Tensor, out: Tensor, before: int | None = None, held: bool = False) -> None:
        """Record that the layer took ``below``, of this version, and returned ``out``; ``held``: keep ``out`` alive."""
        if not isinstance(out, Tensor):  # as of a subclass that returns its bias separately
            return
        thread = _thread()
        held = held or not thread
        trail = Trail(below, before, out if held else ref(out), version(out))
        others = self._trails.get(thread)
        if others is None or (not thread and not self.compiling_owner):
            self._trails[thread] = [trail]
            return
        most = HELD if held and thread else AWAITED
        self._trails[thread] = [*[other for other in others if _output(other) is not None][1 - most :], trail]

    def follow(self, given: Tensor, out: Tensor, before: int | None = None, held: bool = False) -> None:
        """Record that a module between layer and activation took ``given``, of this version, and returned ``out``."""
        thread = _thread()
        trails = self._trails.get(thread)
        if trails is None:
            return
        for place, trail in enumerate(trails):
            if _same(trail, given, before):
                trails[place] = Trail(trail.below, trail.before, out if held or not thread else ref(out), version(out))

    def finish(self, given: Tensor) -> Tensor | None:
        """Return the input of the layer, if ``given`` is the result of the run so far and was not changed in place, and end the record."""
        thread = _thread()
        trails = self._trails.get(thread)
        if trails is None:
            return None
        now = version(given)
        for place, trail in enumerate(trails):
            if _same(trail, given, now):
                if len(trails) > 1:
                    trails.pop(place)
                else:
                    del self._trails[thread]
                check_unchanged(trail.below, trail.before)
                return trail.below
        return None

    def compile(self, begun: bool) -> None:
        """Record that the compilation of the forward that calls layer and activation begins or ends; nothing remains in its graph."""
        self.compiling_owner = begun
        self._trails.pop(_thread(), None)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "ends": self.ends,
            "compiling_owner": False,
            "_trails": {},
        }  # a copied or unpickled record is not in the middle of a forward


def _output(trail: Trail) -> Tensor | None:
    return trail.out if isinstance(trail.out, Tensor) else trail.out()


def _same(trail: Trail, given: Tensor, now: int | None) -> bool:
    """Return whether ``given``, of this version, is the module's output, even if a full backward hook has replaced the tensor object."""
    out = _output(trail)
    if out is given:
        return trail.after == now
    if torch.compiler.is_compiling() or out is None or not isinstance(given, Tensor):
        return False
    wanted, node = out.grad_fn, given.grad_fn
    while node is not None and type(node).__name__ == "BackwardHookFunctionBackward":
        node = node.next_functions[0][0]
        if node is wanted and node is not None:
            return True
    return False


def _thread() -> int:
    """Return the number of the thread, or 0 while a forward is compiled."""
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
OWN_RUNS = f"{OURS}own_runs"  # in the __dict__ of a module whose own forward calls their members


def called(layer: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a layer that begins a run, and remember its input."""
    run: RunRecord = layer.__dict__[RUNS][0]
    if not run.active:
        return forward(*args, **kwargs)
    below = args[0] if args else kwargs["input"]
    before = version(below)
    out = forward(*args, **kwargs)
    run.begin(below, out, before, hooked(layer))
    return out


def followed(between: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a module between the layer and the activation of one or several runs."""
    given = args[0] if args else kwargs["input"]
    before = version(given)
    out = forward(*args, **kwargs)
    for run in between.__dict__[RUNS]:
        run.follow(given, out, before, hooked(between))
    return out
