"""The additions of mollification to a recurrent module: for each layer a level, its a, and the copy of the layer below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from mollifier import functional
from mollifier.activations import activation
from mollifier.functional import Gate, Noise, Push, uniform_like
from mollifier.nn._annealed import AddedModule, Annealed, hooked, on_meta
from mollifier.nn.copy import Copy, Projection
from mollifier.nn.recurrent._time import reached, recomputing, take, taken, token
from mollifier.ops import PARTS, Layer


@dataclass(frozen=True)
class RecurrentOptions:
    """Options for the mollification of recurrent layers.

        >>> import torch, mollifier
        >>> options = mollifier.nn.RecurrentOptions(copy=False)                    # gates and activations: bag of words
        >>> lstm = mollifier.nn.MollifiedLSTM(8, 16, options=options)
        >>> lstm(torch.randn(5, 3, 8))[0].shape
        torch.Size([5, 3, 16])

    Attributes:
        gates: Whether to hold the gates at their targets.
        activations: Whether to push candidate and output activations toward their tangents.
        copy: Whether to copy the layer below, unit by unit.
        copy_mask: When to draw the copied units: anew at every ``"step"``, or once for a whole ``"sequence"``.
        unbiased_gates: Whether to mix the gate with its target instead of pushing it, see `mollifier.functional.noisy_gate`.
        push: ``"paper"`` or ``"odds"``. ``"odds"`` gives exactly the tangent at level 1, and so the exact linear limit; training with
            it can explode, since the state of a linear recurrence is unbounded. See `mollifier.functional.noisy_activation`.
        time: The meaning of t in the gates' 1/t: the ``"position"`` in the sequence, or the ``"annealing"`` step.
        carry_time: Whether the position continues across the calls of a stream (those with a state given); otherwise it starts at 1.
        time_cap: The largest value of t; None for no cap.
        a: Bounds of the uniform distribution that the initial values of a are drawn from.
        c: Factor on the noise of the activations.
        projection: The projection of the copy, see `Copy`.
    """

    gates: bool = True
    activations: bool = True
    copy: bool = True
    copy_mask: Literal["step", "sequence"] = "step"
    unbiased_gates: bool = False
    push: Push = "paper"
    time: Literal["position", "annealing"] = "position"
    carry_time: bool = False
    time_cap: int | None = None
    a: tuple[float, float] = (-2.0, 2.0)
    c: float = 20.0
    projection: Projection = "auto"

    def __post_init__(self) -> None:
        allowed = {"copy_mask": ("step", "sequence"), "time": ("position", "annealing"), "push": ("paper", "odds")}
        allowed |= {"projection": get_args(Projection)}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(map(repr, values))}")
        if self.time_cap is not None and self.time_cap < 1:
            raise ValueError(f"time_cap={self.time_cap}: expected a number of steps >= 1")
        if not self.a[0] <= self.a[1] or self.c < 0:
            raise ValueError(f"a={self.a}, c={self.c}: expected a = (low, high) with low <= high, and c >= 0")


class LayerMollifier(Annealed):
    """The level of one recurrent layer, its a of shape (directions, activations, units), and the copy into each direction."""

    clock: Tensor

    def __init__(
        self,
        kind: str,
        in_units: int,
        hidden: int,
        out_units: int,
        directions: int,
        options: RecurrentOptions,
        *,
        level: float = 1.0,
        train_noise: Noise = "sample",
        eval_noise: Noise = "expected",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(level, train_noise, eval_noise)
        self.options, self.kind = options, kind
        self.in_units, self.out_units = in_units, out_units
        self.activations, self.gates = PARTS[kind]
        self.hidden, self.directions = hidden, directions
        self.a = self.copies = None
        if options.activations:
            self.a = nn.Parameter(torch.empty(directions, self.activations, hidden, device=device, dtype=dtype))
        if options.copy:
            shared: dict[str, Any] = {
                "projection": options.projection,
                "level": level,
                "device": device,
                "dtype": dtype,
            }
            shared |= {"train_noise": train_noise, "eval_noise": eval_noise}
            self.copies = nn.ModuleList(Copy(in_units, out_units, seed=d, **shared) for d in range(directions))
        if options.time == "annealing":
            self.register_buffer("clock", torch.ones((), dtype=torch.int64, device=device))
        self.level = self.level.to(device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a anew and reset the clock."""
        if self.a is not None:
            nn.init.uniform_(self.a, *self.options.a)
        if (clock := self._buffers.get("clock")) is not None:
            clock.fill_(1)

    def settings(self, rows: Tensor, before: Tensor | None) -> dict[str, Any]:
        """Return the settings of this layer that the operator needs besides its `Layer`: level, a, time and noise."""
        gates, activations = self.draw(rows)
        time = self.clock if self.options.time == "annealing" else before
        noise: dict[str, Any] = {"gate_noise": gates, "act_noise": activations}
        return {"level": self.level, "a": self.a, "time": time, **noise}

    def draw(self, rows: Tensor) -> tuple[Noise | Tensor, Noise | Tensor]:
        """Return the noise of the gates and of the activations: modes, or frozen draws of shape (rows, directions, parts, hidden)."""
        if self.frozen is None:
            return self.mode(), self.mode()
        gates = self.gates if self.options.gates else 0
        activations = self.activations if self.a is not None else 0

        def like(parts: int) -> Tensor:
            return rows.new_empty(len(rows), self.directions, parts, self.hidden)

        if self.options.unbiased_gates:
            return self.uniform(like(gates)), self.normal(like(activations))
        # Drawn at once for both parts and directions, since frozen noise of one kind and shape is the same in every draw.
        both = self.normal(like(gates + activations))
        return (both[:, :, :gates], both[:, :, gates:]) if isinstance(both, Tensor) else (both, both)

    def fused_copies(self) -> list[Tensor] | None:
        """Return the copies' levels if the operator can copy while it runs the layer (a new mask at every step, no projection), or None."""
        if self.copies is None or self.options.copy_mask != "step":
            return None
        mode, levels = self.operator_mode(), []
        for copy in self.copies:
            assert isinstance(copy, Copy)
            plain = copy.projection is None and not copy.residual and copy.active and not hooked(copy)
            if mode is None or copy.operator_mode() != mode or not plain:
                return None
            levels.append(copy.level)
        return levels

    def copy_below(self, direction: int, below: Tensor, above: Tensor, examples: Tensor | None, batch: int) -> Tensor:
        """Return the layer's output with units of its input copied into it; ``examples``, the sequence of each row, is for one mask per sequence."""
        if self.copies is None:
            return above
        copy = self.copies[direction]
        assert isinstance(copy, Copy)
        if self.options.copy_mask == "step":
            mixed: Tensor = copy(below, above)
            return mixed
        noise = copy.uniform(like := above.new_empty(batch, above.shape[1]))
        if isinstance(noise, Tensor) or noise == "sample":
            draws = noise if isinstance(noise, Tensor) else uniform_like(like)
            noise = draws[examples]
        return functional.copy_mix(copy.shortcut(below, above), above, level=self.level, noise=noise)

    def parts(self) -> list[str]:
        """Return what is noisy, for the report."""
        gates = ["gates"] if self.options.gates else []
        return gates + ([f"{self.a.shape[0] * self.a.shape[1]} × {self.hidden} a"] if self.a is not None else [])

    def copy_rule(self) -> str:
        """Return the rule by which the layer below is copied, for the report."""
        return "none" if self.copies is None else str(self.copies[0].rule)

    def extra_repr(self) -> str:
        on = [name for name in ("gates", "activations", "copy") if getattr(self.options, name)]
        return f"{self.in_units} → {self.out_units}, {', '.join(on)}, {super().extra_repr()}"


class RecurrentMollifier(AddedModule):
    """All layers of one recurrent module, its gate, and the time that a stream has reached."""

    time: Tensor

    def __init__(self, module: nn.Module, options: RecurrentOptions, **settings: Any) -> None:
        super().__init__()
        kind, gate = kind_and_gate(module)
        if kind == "RNN":
            options = replace(options, gates=False)
        first = next(module.parameters())
        settings = {"device": first.device, "dtype": first.dtype, **settings}
        self.options, self.gate, self.token = options, gate, token()
        directions = 2 if getattr(module, "bidirectional", False) else 1
        hidden = int(module.hidden_size)  # type: ignore[arg-type]
        out_units = int(getattr(module, "proj_size", 0)) or hidden
        layers = []
        for number in range(int(getattr(module, "num_layers", 1))):
            in_units = int(module.input_size) if number == 0 else directions * out_units  # type: ignore[arg-type]
            layers.append(LayerMollifier(kind, in_units, hidden, out_units, directions, options, **settings))
        self.layers = nn.ModuleList(layers)
        if options.carry_time:
            # steps so far, counted separately in eval() and train(), so that an evaluation does not disturb a training stream
            self.register_buffer("time", torch.zeros(2, dtype=torch.int64, device=first.device))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecurrentMollifier:
        nowhere = on_meta(self)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if nowhere and self.options.carry_time and not self.time.is_meta:
            self.time.zero_()  # the meta device held no value
        return self

    @property
    def active(self) -> bool:
        """Whether the level of any layer is above 0 or unknown."""
        return any(layer.active for layer in self.layers)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.token = token()  # the original's states do not belong to the copy

    def before(self, state: Tensor | None, training: bool) -> Tensor:
        """Return the number of steps before this call that t counts; without a given state, a new stream starts at 0."""
        if state is None:
            return torch.zeros((), dtype=torch.int64, device=self.layer(0).level.device)
        if (again := taken(state, self.token)) is not None:
            return again
        own = reached(state, self.token)
        if self.options.carry_time:
            steps = self.time[int(training)].clone()
        else:
            steps = self.before(None, training) if own is None else own
        take(state, self.token, steps)
        return steps

    def tick(self, before: Tensor, steps: int, training: bool) -> None:
        """Count the steps of a stream; recomputed steps are not counted again."""
        if self.options.carry_time and not recomputing():
            self.time[int(training)] = before + steps

    def layer(self, number: int) -> LayerMollifier:
        """Return a layer by its number, with its type."""
        layer = self.layers[number]
        assert isinstance(layer, LayerMollifier)
        return layer


def kind_and_gate(module: nn.Module) -> tuple[str, Gate]:
    """Return the kind of a module (LSTM, GRU or RNN) and its gate."""
    # read from the class and compared, since a user's subclass may have an unrelated attribute called gate
    gate: Gate = "hard_sigmoid" if getattr(type(module), "gate", None) == "hard_sigmoid" else "sigmoid"
    if isinstance(module, nn.RNNBase):
        return module.mode.split("_")[0], gate
    return next(kind for kind in PARTS if isinstance(module, getattr(nn, f"{kind}Cell"))), gate


def cell_of(module: nn.Module, layer: LayerMollifier | None, sizes: list[int]) -> Layer:
    """Return what an operator needs to know about a layer besides its tensors; if ``layer`` is None, the layer is plain."""
    kind, gate = kind_and_gate(module)
    mode = module.mode if isinstance(module, nn.RNNBase) else getattr(module, "nonlinearity", "")
    relu = activation("relu") if mode in ("RNN_RELU", "relu") else None  # for an Elman network; None means tanh
    found = Layer(kind, sizes, gate, relu)
    if layer is not None:
        options = layer.options
        found.gates, found.unbiased = options.gates, options.unbiased_gates
        found.c, found.push = options.c, options.push
        found.fixed_time, found.time_cap = options.time == "annealing", options.time_cap
    return found


class Built(nn.Module):
    """A base class that adds the mollifier to what the plain class builds; it precedes the mollified forward and the plain class."""

    def __init__(
        self,
        *args: Any,
        level: float = 1.0,
        options: RecurrentOptions | None = None,
        train_noise: Noise = "sample",
        eval_noise: Noise = "expected",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        settings: dict[str, Any] = {"level": level, "train_noise": train_noise, "eval_noise": eval_noise}
        self._mollifier = RecurrentMollifier(self, options or RecurrentOptions(), **settings)
