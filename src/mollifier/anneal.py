"""The Annealer: from level 1 to level 0, driven by the loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mollifier.convert._levels import mollified_groups
from mollifier.nn._levelled import check_level
from mollifier.schedules import BUILT_IN, solve_k

POLL = 100  # on an accelerator the host asks this seldom whether annealing has ended


class Annealer:
    """Anneals the levels of a mollified model. Call `step` once an update.

        >>> import mollifier, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))
        >>> annealer = mollifier.Annealer(mollifier.mollify(model), k=10.0)
        >>> for loss in (0.7, 0.6, 0.5):
        ...     annealer.step(loss)
        >>> [round(level, 3) for level in mollifier.levels(model)]
        [0.864]

    The levels are written into the model's buffers. Nothing of that waits for an accelerator, except for a look every
    hundred updates whether annealing has ended, and for schedules of the user's own.

    Args:
        model: A mollified model, also wrapped or compiled.
        schedule: ``"exponential"`` (the paper's), ``"linear"``, ``"square_root"``, ``"cosine"``, or any function
            ``(t, layer, layers, v) -> p`` of numbers.
        k: Constant of the exponential schedule: the larger, the slower. 100 if neither it nor a horizon is given.
        horizon: Updates after which annealing is to end. The exponential schedule solves k for it at the first
            loss that it sees, which it then waits for once (a falling loss ends it sooner); the others end there by definition.
        p_min: Levels never fall below this; annealing ends when all have come down to it, if not before.
        loss_average: Decay of the moving average v of the loss; None fixes v to 1.
        stop_at: δ: annealing ends when the levels sum to this; by default 0.05 a block. 0: never.
        then: What happens then. ``"plain"``: all levels go to 0; ``"hold"``: they stay.
        every: Updates a tick of the clock t, and between two changes of the levels; a loss is averaged at every update.
        distributed: Average the loss over all ranks, where torch.distributed runs.
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: str | Callable[[float, int, int, float], float] = "exponential",
        *,
        k: float | None = None,
        horizon: float | None = None,
        p_min: float = 0.0,
        loss_average: float | None = 0.99,
        stop_at: float | None = None,
        then: Literal["plain", "hold"] = "plain",
        every: int = 1,
        distributed: bool = True,
    ) -> None:
        self._groups = mollified_groups(model, "Annealer")
        layers = len(self._groups)
        name = next((key for key, function in BUILT_IN.items() if schedule in (key, function)), None)
        _check(schedule, name, k, horizon, loss_average, stop_at, then, every, layers)
        check_level(p_min)
        self.schedule = schedule if name is None else name
        self.horizon, self.p_min, self.beta, self.then, self.every = horizon, p_min, loss_average, then, int(every)
        self.k = 100.0 if k is None and horizon is None and name == "exponential" else k
        self.stop_at = 0.05 * layers if stop_at is None else float(stop_at)
        self.distributed = distributed
        self.updates = 0
        self._ended = self._warned = False
        device = self._groups[0][0].level.device
        dtype = self._groups[0][0].level.dtype
        self._near = device.type == "cpu"  # asking it costs nothing
        self._layer = torch.arange(1, layers + 1, device=device, dtype=dtype)
        # on the device: moving average, losses averaged, losses that were not finite, annealing has ended
        self._state = torch.zeros(4, device=device, dtype=dtype)
        self._levels = torch.ones(layers, device=device, dtype=dtype)
        self._write()

    def step(self, loss: Tensor | float | None = None) -> None:
        """Count an update, average its loss in, and set the levels.

        A loss that is not finite is not averaged in: it is counted in `skipped_losses`, and warned of once. Without any loss v is 1.
        """
        if self._ended:
            return
        self.updates += 1
        if loss is not None and self.beta is not None:
            self._observe(loss, self.beta)
        if self.updates % self.every:
            return
        if self.k is None and self.schedule == "exponential" and not self._solve():
            self._look()
            return
        ended = self._state[3] > 0
        levels = self._at(self.updates // self.every)
        # (the rounding of a sum must not cost an update)
        least = max(self.stop_at, self.p_min * len(self._groups))
        stop = levels.sum() <= least * (1.0 + 1e-9) if self.stop_at > 0 else torch.zeros_like(ended)
        if self.then == "plain":
            levels = torch.where(ended | stop, 0.0, levels)
        else:
            levels = torch.where(ended, self._levels, levels)
        self._levels = levels
        self._state[3] = (ended | stop).to(self._state.dtype)
        self._write()
        if self._near or self.updates % POLL < self.every:
            self._look()

    @property
    def finished(self) -> bool:
        """Has annealing ended?"""
        return self._ended or bool(self._state[3] > 0)

    @property
    def levels(self) -> list[float]:
        """The levels as last set, one a block in forward order."""
        levels: list[float] = self._levels.tolist()
        return levels

    @property
    def loss_average(self) -> float:
        """v: the bias-corrected moving average of the loss, or 1."""
        return float(self._v())

    @property
    def skipped_losses(self) -> int:
        """How many losses were not finite, over all ranks."""
        return int(self._state[2])

    def finish(self) -> None:
        """End annealing now: all levels go to 0, and the plain network trains on."""
        self._levels = torch.zeros_like(self._levels)
        self._state[3] = 1.0
        self._end()

    def _observe(self, loss: Tensor | float, beta: float) -> None:
        state = self._state
        value = torch.as_tensor(loss, dtype=state.dtype, device=state.device).detach()
        if value.numel() != 1:
            raise ValueError(f"step: the loss has shape {tuple(value.shape)}; expected one number, e.g. loss.mean()")
        value = value.reshape(())
        good = value.isfinite()
        sums = torch.stack([torch.where(good, value, 0.0), good.to(state.dtype), (~good).to(state.dtype)])
        if self.distributed and torch.distributed.is_initialized():
            torch.distributed.all_reduce(sums)
        any_good = sums[1] > 0
        mean = sums[0] / sums[1].clamp_min(1.0)
        state[0] = torch.where(any_good, beta * state[0] + (1.0 - beta) * mean, state[0])
        state[1] += any_good
        state[2] += sums[2]

    def _v(self) -> Tensor:
        average, count = self._state[0], self._state[1]
        if self.beta is None:
            return torch.ones_like(average)
        correction = 1.0 - torch.pow(self.beta, count)
        return torch.where(count > 0, average / correction.clamp_min(1e-12), torch.ones_like(average))

    def _solve(self) -> bool:
        """Find k for the horizon, at the first loss (1 if none is given); False while no loss was finite."""
        assert self.horizon is not None
        if self.skipped_losses and float(self._state[1]) == 0:
            return False
        self.k = solve_k(self.horizon / self.every, len(self._groups), float(self._v()), self.stop_at)
        return True

    def _at(self, t: int) -> Tensor:
        layers = len(self._groups)
        if isinstance(self.schedule, str):
            options: dict[str, Any] = {"p_min": self.p_min}
            if self.schedule == "exponential":
                options["k"] = self.k
            else:
                assert self.horizon is not None
                options["horizon"] = self.horizon / self.every
            levels: Tensor = BUILT_IN[self.schedule](t, self._layer, layers, self._v(), **options)
            return levels
        v = float(self._v())
        numbers = [max(self.p_min, check_level(self.schedule(t, layer, layers, v))) for layer in range(1, layers + 1)]
        return torch.tensor(numbers, dtype=self._layer.dtype, device=self._layer.device)

    def _write(self) -> None:
        """Set the levels without asking the device for anything."""
        for group, level in zip(self._groups, self._levels.unbind(), strict=True):
            for module in group:
                module.level.copy_(level)
                module.active = True
                if (clock := module._buffers.get("clock")) is not None:  # recurrent layers with time="annealing"
                    clock.fill_(self.updates // self.every)

    def _look(self) -> None:
        skipped = self.skipped_losses
        if skipped and not self._warned:
            self._warned = True
            warnings.warn(
                f"Annealer: a loss was not finite and was left out of the average ({skipped} so far; see skipped_losses)",
                RuntimeWarning,
                stacklevel=3,
            )
        if bool(self._state[3] > 0):
            self._end()

    def _end(self) -> None:
        self._ended = True
        for group, level in zip(self._groups, self.levels, strict=True):
            for module in group:
                module.set_level(level)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on; numbers, strings and tensors only, so that ``weights_only=True`` loads it."""
        names = ("horizon", "p_min", "beta", "k", "stop_at", "then", "every", "updates")
        settings = {name: getattr(self, name) for name in names}
        schedule = self.schedule if isinstance(self.schedule, str) else "custom"
        return {**settings, "schedule": schedule, "state": self._state.clone(), "levels": self._levels.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, and set the model's levels to those of that moment.

        Raises:
            ValueError: If it was taken with another number of blocks or another schedule. Nothing is changed then.
        """
        mine = self.state_dict()
        missing = sorted(set(mine) - set(state))
        if missing:
            raise ValueError(f"load_state_dict: {', '.join(missing)} missing: this is not the state of an Annealer")
        if len(state["levels"]) != len(self._groups):
            raise ValueError(
                f"load_state_dict: state of {len(state['levels'])} blocks, the model has {len(self._groups)}"
            )
        if state["schedule"] != mine["schedule"]:
            raise ValueError(f"load_state_dict: state of schedule {state['schedule']!r}, this is {mine['schedule']!r}")
        for name in ("horizon", "p_min", "beta", "k", "stop_at", "then", "every", "updates"):
            setattr(self, name, state[name])
        self._state = state["state"].to(self._state).clone()
        self._levels = state["levels"].to(self._levels).clone()
        self._ended = False
        self._write()
        self._warned = self.skipped_losses > 0
        if bool(self._state[3] > 0):
            self._end()


def _check(
    schedule: Any,
    name: str | None,
    k: float | None,
    horizon: float | None,
    loss_average: float | None,
    stop_at: float | None,
    then: str,
    every: int,
    layers: int,
) -> None:
    """Refuse settings that make no sense."""
    if name is None and not callable(schedule):
        raise ValueError(f"schedule={schedule!r}: expected one of {', '.join(BUILT_IN)}, or a function")
    if k is not None and (horizon is not None or name != "exponential"):
        raise ValueError("k belongs to the exponential schedule, and stands instead of a horizon: give one of them")
    if horizon is None and name not in ("exponential", None):
        raise ValueError(f"schedule={name!r} needs horizon=…, the number of updates to anneal over")
    for what, value in (("k", k), ("horizon", horizon), ("every", every)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{what}={value}: expected a number above 0")
    if loss_average is not None and not 0.0 <= loss_average < 1.0:
        raise ValueError(f"loss_average={loss_average}: expected a decay in [0, 1), or None to fix v to 1")
    if then not in ("plain", "hold"):
        raise ValueError(f"then={then!r}: expected 'plain' or 'hold'")
    if stop_at is not None and not 0.0 <= stop_at < layers:
        raise ValueError(f"stop_at={stop_at}: expected 0 <= stop_at < {layers}, the number of blocks")
    if stop_at == 0 and horizon is not None and name == "exponential":
        raise ValueError(
            "horizon with stop_at=0: the exponential schedule never reaches 0; give k, or a stop_at above 0"
        )
