"""The Annealer: from level 1 to level 0, driven by the loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mollifier.convert._levels import mollified_groups
from mollifier.nn._levelled import check_level
from mollifier.schedules import BUILT_IN, check_settings, solve_k

WRONG_LOSS = "step: the loss has shape {}; expected one number, e.g. loss.mean()"
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
        check_settings(schedule, name, k, horizon, loss_average, stop_at, then, every, layers)
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
        # On the CPU plain numbers are faster than tensors of one; over ranks and on accelerators everything stays on the device.
        near = self._near and not (self.distributed and torch.distributed.is_initialized())
        if loss is not None and self.beta is not None:
            (self._observe_near if near else self._observe)(loss, self.beta)
        if self.updates % self.every:
            return
        if self.k is None and self.schedule == "exponential" and not self._solve():
            self._look()
            return
        (self._advance_near if near else self._advance)(self.updates // self.every)
        self._write()
        if self._near or self.updates % POLL < self.every:
            self._look()

    def _least(self) -> float:
        """What the levels must sum to for annealing to end; the rounding of a sum must not cost an update."""
        return max(self.stop_at, self.p_min * len(self._groups)) * (1.0 + 1e-9) if self.stop_at > 0 else -1.0

    def _advance(self, t: int) -> None:
        ended = self._state[3] > 0
        levels = self._at(t)
        stop = levels.sum() <= self._least()
        if self.then == "plain":
            levels = torch.where(ended | stop, 0.0, levels)
        else:
            levels = torch.where(ended, self._levels, levels)
        self._levels = levels
        self._state[3] = (ended | stop).to(self._state.dtype)

    def _advance_near(self, t: int) -> None:
        levels = self._numbers(t, self.loss_average)
        if sum(levels) <= self._least():
            self._state[3] = 1.0
            if self.then == "plain":
                levels = [0.0] * len(levels)
        self._levels = torch.tensor(levels, dtype=self._levels.dtype)

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
        average, count, _, _ = self._state.tolist()
        return average / (1.0 - self.beta**count) if count and self.beta is not None else 1.0

    @property
    def skipped_losses(self) -> int:
        """How many losses were not finite, over all ranks."""
        return int(self._state[2])

    def finish(self) -> None:
        """End annealing now: all levels go to 0, and the plain network trains on."""
        self._levels = torch.zeros_like(self._levels)
        self._state[3] = 1.0
        self._end()

    def _observe_near(self, loss: Tensor | float, beta: float) -> None:
        if isinstance(loss, Tensor) and loss.numel() != 1:
            raise ValueError(WRONG_LOSS.format(tuple(loss.shape)))
        average, count, skipped, ended = self._state.tolist()
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        if math.isfinite(value):
            average, count = beta * average + (1.0 - beta) * value, count + 1
        else:
            skipped += 1
        self._state = torch.tensor([average, count, skipped, ended], dtype=self._state.dtype)

    def _observe(self, loss: Tensor | float, beta: float) -> None:
        state = self._state
        value = torch.as_tensor(loss, dtype=state.dtype, device=state.device).detach()
        if value.numel() != 1:
            raise ValueError(WRONG_LOSS.format(tuple(value.shape)))
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
        self.k = solve_k(self.horizon / self.every, len(self._groups), self.loss_average, self.stop_at)
        return True

    def _function(self) -> Callable[..., Any]:
        """The schedule with its settings."""
        if not isinstance(self.schedule, str):
            return self.schedule
        if self.schedule == "exponential":
            return partial(BUILT_IN[self.schedule], p_min=self.p_min, k=self.k)
        assert self.horizon is not None
        return partial(BUILT_IN[self.schedule], p_min=self.p_min, horizon=self.horizon / self.every)

    def _at(self, t: int) -> Tensor:
        """The levels, computed on the device; a schedule of the user's own is asked on the host."""
        if isinstance(self.schedule, str):
            levels: Tensor = self._function()(t, self._layer, len(self._groups), self._v())
            return levels
        numbers = self._numbers(t, self.loss_average)
        return torch.tensor(numbers, dtype=self._layer.dtype, device=self._layer.device)

    def _numbers(self, t: int, v: float) -> list[float]:
        function, layers = self._function(), len(self._groups)
        return [max(self.p_min, check_level(function(t, layer, layers, v))) for layer in range(1, layers + 1)]

    def _write(self) -> None:
        """Set the levels without asking the device for anything."""
        targets, sources = [], []
        for group, level in zip(self._groups, self._levels.unbind(), strict=True):
            for module in group:
                targets.append(module.level)
                sources.append(level)
                if (clock := module._buffers.get("clock")) is not None:  # recurrent layers with time="annealing"
                    clock.fill_(self.updates // self.every)
        torch._foreach_copy_(targets, sources)  # one call for all

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
