"""What mollification adds to a recurrent module: for each layer a level, its a, and the copy of the layer below."""

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
    """How recurrent layers are mollified.

        >>> import torch, mollifier
        >>> options = mollifier.nn.RecurrentOptions(copy=False)                    # gates and activations: bag of words
        >>> lstm = mollifier.nn.MollifiedLSTM(8, 16, options=options)
        >>> lstm(torch.randn(5, 3, 8))[0].shape
        torch.Size([5, 3, 16])

    Attributes:
        gates: Hold the gates at their targets?
        activations: Push candidate and output activations toward their tangents?
        copy: Copy the layer below, unit by unit?
        copy_mask: Draw the copied units anew at every ``"step"``, or once for a whole ``"sequence"``.
        unbiased_gates: Mix the gate with its target instead of pushing it, see `mollifier.functional.noisy_gate`.
        push: ``"paper"``, or ``"odds"``: the tangent exactly at level 1, for the exact linear limit; training with it can explode,
            since the state of a linear recurrence is unbounded. See `mollifier.functional.noisy_activation`.
        time: What t is in the gates' 1/t: the ``"position"`` in the sequence, or the ``"annealing"`` step.
        carry_time: Let the position run on over the calls of a stream (those with a state given); else it starts at 1.
        time_cap: t never exceeds it; None for no cap.
        a: Bounds of the uniform distribution that the a are drawn from.
        c: Factor on the noise of the activations.
        projection: Of the copy, see `Copy`.
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
    """One recurrent layer's level, its a (directions, activations, units) and the copies into each direction."""

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
        """Draw the a anew, and set the clock back."""
        if self.a is not None:
            nn.init.uniform_(self.a, *self.options.a)
        if (clock := self._buffers.get("clock")) is not None:
            clock.fill_(1)

    def settings(self, rows: Tensor, before: Tensor | None) -> dict[str, Any]:
        """What the operator has to know of this layer beside what it is: level, a, time and noise."""
        gates, activations = self.draw(rows)
        time = self.clock if self.options.time == "annealing" else before
        noise: dict[str, Any] = {"gate_noise": gates, "act_noise": activations}
        return {"level": self.level, "a": self.a, "time": time, **noise}

    def draw(self, rows: Tensor) -> tuple[Noise | Tensor, Noise | Tensor]:
        """Noise of the gates and of the activations: modes, or frozen draws, (rows, directions, parts, hidden)."""
        if self.frozen is None:
            return self.mode(), self.mode()
        gates = self.gates if self.options.gates else 0
        activations = self.activations if self.a is not None else 0

        def like(parts: int) -> Tensor:
            return rows.new_empty(len(rows), self.directions, parts, self.hidden)

        if self.options.unbiased_gates:
            return self.uniform(like(gates)), self.normal(like(activations))
        # At once, and for both directions: frozen noise of one kind and shape is the same in every draw.
        both = self.normal(like(gates + activations))
        return (both[:, :, :gates], both[:, :, gates:]) if isinstance(both, Tensor) else (both, both)

    def fused_copies(self) -> list[Tensor] | None:
        """The copies' levels, if the operator can copy along with the layer: anew at every step, units that need no projection."""
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
        """The layer's output with units of its input copied into it; one mask a sequence needs to know whose row each row is."""
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
        """What is noisy, for the report."""
        gates = ["gates"] if self.options.gates else []
        return gates + ([f"{self.a.shape[0] * self.a.shape[1]} × {self.hidden} a"] if self.a is not None else [])

    def copy_rule(self) -> str:
        """How the layer below is copied, for the report."""
        return "none" if self.copies is None else str(self.copies[0].rule)

    def extra_repr(self) -> str:
        on = [name for name in ("gates", "activations", "copy") if getattr(self.options, name)]
        return f"{self.in_units} → {self.out_units}, {', '.join(on)}, {super().extra_repr()}"


class RecurrentMollifier(AddedModule):
    """All layers of one recurrent module, its gate and the time that a stream has reached."""

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
            # steps so far, in eval() and in train(): an evaluation in between does not disturb a training stream
            self.register_buffer("time", torch.zeros(2, dtype=torch.int64, device=first.device))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RecurrentMollifier:
        nowhere = on_meta(self)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if nowhere and self.options.carry_time and not self.time.is_meta:
            self.time.zero_()  # the meta device knew no value
        return self

    @property
    def active(self) -> bool:
        """Is any layer above level 0, or not known to be at 0?"""
        return any(layer.active for layer in self.layers)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.token = token()  # the states of the original are not the copy's

    def before(self, state: Tensor | None, training: bool) -> Tensor:
        """Steps that were taken before this call, as far as t counts them: a stream without a state given is a new one."""
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
        """Count the steps of a stream; computing a step again takes none."""
        if self.options.carry_time and not recomputing():
            self.time[int(training)] = before + steps

    def layer(self, number: int) -> LayerMollifier:
        """Layer by number, typed."""
        layer = self.layers[number]
        assert isinstance(layer, LayerMollifier)
        return layer


def kind_and_gate(module: nn.Module) -> tuple[str, Gate]:
    """LSTM, GRU or RNN, and the gate it has."""
    # of the class: an attribute called gate that a user's subclass has is none of ours
    gate: Gate = "hard_sigmoid" if getattr(type(module), "gate", None) == "hard_sigmoid" else "sigmoid"
    if isinstance(module, nn.RNNBase):
        return module.mode.split("_")[0], gate
    return next(kind for kind in PARTS if isinstance(module, getattr(nn, f"{kind}Cell"))), gate


def cell_of(module: nn.Module, layer: LayerMollifier | None, sizes: list[int]) -> Layer:
    """What an operator has to know of a layer beside its tensors; None is a plain one."""
    kind, gate = kind_and_gate(module)
    mode = module.mode if isinstance(module, nn.RNNBase) else getattr(module, "nonlinearity", "")
    relu = activation("relu") if mode in ("RNN_RELU", "relu") else None  # of an Elman network; None for tanh
    found = Layer(kind, sizes, gate, relu)
    if layer is not None:
        options = layer.options
        found.gates, found.unbiased = options.gates, options.unbiased_gates
        found.c, found.push = options.c, options.push
        found.fixed_time, found.time_cap = options.time == "annealing", options.time_cap
    return found


class Built(nn.Module):
    """Adds the mollifier to what the plain class builds, in front of it and of its mollified forward."""

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
