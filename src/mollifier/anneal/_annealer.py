"""The Annealer: from level 1 to level 0, driven by the loss."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mollifier.anneal._adaptive import DECAY
from mollifier.anneal._average import LossAverage
from mollifier.anneal._numbers import Numbers
from mollifier.anneal._path import Path
from mollifier.anneal._state import check_restorable, load, save
from mollifier.anneal._writing import LevelWriter
from mollifier.convert import restore
from mollifier.convert._levels import mollified_groups
from mollifier.convert._optimizer import check_optimizer
from mollifier.nn._annealed import check_level
from mollifier.nn._gradients import keep_gradients
from mollifier.schedules import BUILT_IN, check_settings, front_width

BY_LOSS = ("exponential", "adaptive")  # these compare losses by their ratio
POLL = 100  # on an accelerator the host checks only every so many updates whether annealing has ended


class Annealer(Path):
    """Anneal the levels of a mollified model. Call `step` once per update.

        >>> import mollifier, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))
        >>> annealer = mollifier.Annealer(mollifier.mollify(model), k=10.0)
        >>> for loss in (0.7, 0.6, 0.5):
        ...     annealer.step(loss)
        >>> annealer
        Annealer('exponential', k=10, updates=3, v=0.599, levels=[0.864], finished=False)

    Annealing starts from the model's present levels: each stays where it is until the schedule has fallen to it. The levels are written
    into the model's buffers. This does not make the host wait for an accelerator, except to check every hundred updates whether
    annealing has ended, and for user-defined schedules.

    Args:
        model: A mollified model, which may be wrapped or compiled.
        schedule: ``"exponential"`` (the paper's), ``"linear"``, ``"square_root"``, ``"cosine"``, ``"front"``, ``"adaptive"`` (both ours), or
            any function ``(t, layer, layers, v) -> p`` of numbers. By default ``"front"`` with a horizon, and ``"exponential"`` without.
        k: Constant of the exponential schedule; a larger k anneals more slowly. The default is 100 if there is no horizon.
        horizon: The update at which annealing ends, whatever the losses were; with ``"adaptive"``, the latest such update. The exponential schedule
            computes k from it and the first loss, for which it waits once; later losses bend its path by a factor of at most e.
        p_min: Levels never fall below this. Without a horizon annealing ends at the latest when all levels have fallen to it.
        loss_average: Decay of the moving average v of the loss. The default is 0.99, or 0.95 with ``"adaptive"``, which must notice a rise soon. None fixes v to 1.
        stop_at: δ: annealing ends when the sum of the levels falls to this. The default is 0.05 per block, or the horizon. 0: never.
        then: What happens when annealing ends. ``"plain"``: all levels are set to 0; ``"hold"``: they stay; ``"restore"``: the model is restored in place.
        every: Updates per tick of the clock t, and between two changes of the levels; a loss is averaged at every update.
        distributed: Whether to average the loss over all ranks, if torch.distributed is initialised.
        guard: Whether to guard against spikes of the loss: a loss counts as at most 10 times its average, and a level that has fallen can rise
            only a little. False uses exactly the paper's formula.
        optimizer: With ``then="restore"``: the optimiser from which to remove the added parameters.
        width: With ``"front"`` and ``"adaptive"``: the number of windows that a layer takes to become plain; the next layer begins one window later.
            The default is 6, and 0.4 more for each block beyond 50.
    """

    def __init__(
        self,
        model: nn.Module,
        schedule: str | Callable[[float, int, int, float], float] | None = None,
        *,
        k: float | None = None,
        horizon: float | None = None,
        p_min: float = 0.0,
        loss_average: float | Literal["auto"] | None = "auto",
        stop_at: float | None = None,
        then: Literal["plain", "hold", "restore"] = "plain",
        every: int = 1,
        distributed: bool = True,
        guard: bool = True,
        optimizer: torch.optim.Optimizer | None = None,
        width: float | None = None,
    ) -> None:
        self._groups = mollified_groups(model, "Annealer")
        # straight from the dictionaries, at every step, because a buffer may be replaced
        self._places: list[list[dict[str, Any]]] = [[module._buffers for module in group] for group in self._groups]
        self._clocks = [
            each for places in self._places for each in places if each.get("clock") is not None
        ]  # for time="annealing"
        layers = len(self._groups)
        if schedule is None:
            schedule = "exponential" if k is not None or horizon is None else "front"
        known: dict[str, object] = {**BUILT_IN, "adaptive": None}
        name = next((key for key, function in known.items() if schedule in (key, function)), None)
        if loss_average == "auto":
            loss_average = DECAY if name == "adaptive" else 0.99
        width = front_width(layers) if width is None else width
        check_settings(schedule, name, k, horizon, loss_average, stop_at, then, every, layers, width)
        check_level(p_min)
        if then == "restore":
            check_restorable(model)
            check_optimizer(model, optimizer, "Annealer")
        elif optimizer is not None:
            raise ValueError('optimizer=… needs then="restore", which removes the added parameters from it')
        self._model, self._optimizer = model, optimizer
        self.updates = 0
        self._ended = self._restored = False
        start = torch.stack([group[0].level.detach() for group in self._groups])
        super().__init__(
            schedule if name is None else name, k, horizon, p_min, stop_at, int(every), guard, width, start
        )
        self.then = then
        self._on_host = start.device.type == "cpu"  # checking it costs nothing
        self._writer = LevelWriter(self._places if self._on_host else [])
        self._average = LossAverage(
            loss_average, start, negative=name not in BY_LOSS, guard=guard, distributed=distributed
        )
        self._done = Numbers(start.new_zeros(1))  # 1 when annealing has ended
        self._now = Numbers(start)
        self._write()
        keep_gradients(model)

    def step(self, loss: Tensor | float | None = None) -> None:
        """Count an update, add its loss to the average, and set the levels.

        A loss that is not finite, or below 0 in the exponential and adaptive schedules, is ignored: it is counted in `skipped_losses`,
        and the first one causes a warning. Without a loss v is 1.
        """
        if self._ended:
            return
        # Over ranks and on accelerators everything stays on the device.
        average = self._average
        on_host = self._on_host and not (average.distributed and torch.distributed.is_initialized())
        if loss is not None:
            (average.observe_on_host if on_host else average.observe_on_device)(loss)
        self.updates += 1
        last = self.horizon is not None and self.updates >= self.horizon and self.stop_at != 0
        if not last and self.updates % self.every:
            return
        waiting = self.k is None and self._timed and not self._solve(average)
        if last or not waiting:
            t = min(self.updates, self.horizon) / self.every if last and self.horizon else self.updates // self.every
            (self._advance_on_host if on_host else self._advance)(t, last)
            self._write()
        if self._done.list[0] or average.news if self._on_host else last or self.updates % POLL < self.every:
            self._look()

    def _advance(self, t: float, last: bool) -> None:
        done = self._done.tensor
        ended = done > 0
        levels = self._on_tensors(t, self._average)
        stop = ended | (levels.sum() <= self._least()) | last
        levels = torch.where(ended, self._levels, levels) if self.then == "hold" else torch.where(stop, 0.0, levels)
        self._now.tensor, self._lowest.tensor = levels, torch.minimum(levels, self._lowest.tensor)
        self._done.tensor = stop.to(done.dtype)

    def _advance_on_host(self, t: float, last: bool) -> None:
        levels = self._on_numbers(t, self._average.value)
        if last or sum(levels) <= self._least():
            self._done.write([1.0])
            if self.then != "hold":
                levels = [0.0] * len(levels)
                self._lowest.write(levels)
        self._now.write(levels)

    @property
    def finished(self) -> bool:
        """Whether annealing has ended."""
        return self._ended or self._done.list[0] > 0

    @property
    def progress(self) -> float:
        """How far annealing has progressed, from 0 to 1: by the place of an adaptive front, by the clock if there is a horizon, or by the
        sum of the levels.

        Without a fixed clock it may go back a little, and reading it makes the host wait for an accelerator.
        """
        if self.finished:
            return 1.0
        if self._front is not None:
            return self._front.place / self._front.end
        if self.horizon is not None:
            return min(1.0, self.updates / self.horizon)
        start, least = sum(self._start.list), max(self._least(), 0.0)
        return min(1.0, (start - sum(self.levels)) / (start - least)) if start > least else 1.0

    @property
    def levels(self) -> list[float]:
        """The levels as last set, one per block in forward order."""
        return list(self._now.list)

    @property
    def _levels(self) -> Tensor:
        return self._now.tensor

    @property
    def beta(self) -> float | None:
        """Decay of the moving average."""
        return self._average.beta

    @property
    def loss_average(self) -> float:
        """v: the bias-corrected moving average of the loss, or 1."""
        return self._average.value

    @property
    def skipped_losses(self) -> int:
        """The number of losses that were ignored, over all ranks."""
        return self._average.skipped

    def finish(self) -> None:
        """End annealing now: all levels are set to 0, and training continues with the plain network."""
        self._now.tensor, self._lowest.tensor = torch.zeros_like(self._levels), torch.zeros_like(self._levels)
        self._done.tensor = torch.ones_like(self._done.tensor)
        self._end()

    def _write(self) -> None:
        """Set the levels without making the host wait for the device."""
        if self._on_host:
            self._writer.write(self._now.list)
        else:
            pairs = zip(self._places, self._levels.unbind(), strict=True)
            targets, sources = zip(*((each["level"], value) for places, value in pairs for each in places), strict=True)
            torch._foreach_copy_(targets, sources)  # one call for all
        for buffers in self._clocks:
            buffers["clock"].fill_(self.updates // self.every)

    def _look(self) -> None:
        for text in self._average.warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        if self._done.list[0] > 0 if self._on_host else bool(self._done.tensor > 0):
            self._end()

    def _end(self) -> None:
        self._ended = True
        for group, level in zip(self._groups, self.levels, strict=True):
            for module in group:
                module.set_level(level)
        if self.then == "restore" and not self._restored:
            restore(self._model, optimizer=self._optimizer)
            self._restored = True

    def __repr__(self) -> str:
        name = self.schedule if isinstance(self.schedule, str) else getattr(self.schedule, "__name__", "custom")
        settings = {"k": self.k, "horizon": self.horizon}
        shown = "".join(f", {key}={value:g}" for key, value in settings.items() if value is not None)
        levels = [round(level, 3) for level in self.levels]
        few = str(levels) if len(levels) <= 6 else f"[{levels[0]}, …, {levels[-1]}] of {len(levels)} blocks"
        return (
            f"Annealer({name!r}{shown}, updates={self.updates}, v={self.loss_average:.3g}, levels={few}, "
            f"finished={self.finished})"
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to resume: numbers, strings and tensors only, so that ``weights_only=True`` loads it."""
        return save(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a `state_dict`, and set the model's levels to those of that moment.

        Raises:
            ValueError: If it was saved with another number of blocks or another schedule, or the model has been restored.
                Nothing is changed then.
        """
        load(self, state)
        self._ended = False
        self._write()
        if self._done.list[0] > 0:
            self._end()
