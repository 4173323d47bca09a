"""What every mollified module has: a level, and a way to get its noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from mollifier.functional import Noise, normal_like, uniform_like

MODES = ("sample", "expected", "exact")


def check_level(value: float) -> float:
    """The level as a float, or a ValueError that says what was given.

    >>> check_level(1)
    1.0
    """
    level = float(value)
    if not 0.0 <= level <= 1.0:  # NaN fails too
        raise ValueError(f"level {value!r}: expected a number in [0, 1], 1 = fully mollified, 0 = the plain network")
    return level


class FrozenNoise:
    """Noise drawn once for each shape and then kept: the same function at every call, for curvature tools.

    >>> import torch
    >>> frozen, x = FrozenNoise(seed=0), torch.zeros(3)
    >>> torch.equal(frozen.draw(normal_like, x), frozen.draw(normal_like, x))
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kept: dict[tuple[Any, ...], Tensor] = {}

    def draw(self, draw: Callable[[Tensor, torch.Generator], Tensor], like: Tensor) -> Tensor:
        key = (draw.__name__, tuple(like.shape), like.dtype, like.device)
        if key not in self.kept:
            generator = torch.Generator(device=like.device).manual_seed(self.seed)
            self.kept[key] = draw(like.detach(), generator)
        return self.kept[key]


class Levelled(nn.Module):
    """A module governed by a level p in [0, 1], kept in a 0-dim buffer so that annealing it never recompiles anything.

        >>> from mollifier.nn import NoisyActivation
        >>> unit = NoisyActivation("sigmoid", units=3, level=0.5)
        >>> unit.level
        tensor(0.5000, dtype=torch.float64)

    Attributes:
        level: The buffer. Write it with `set_level`, `mollifier.set_level` or an `Annealer`.
        active: False where the level is known on the host to be 0: the plain operation runs. It is a plain Python flag,
            so that asking it never waits for an accelerator, and a compiled model is compiled twice at most.
        train_noise, eval_noise: ``"sample"``, ``"expected"`` or ``"exact"``, in train() and in eval().
        frozen: Noise that stays the same from call to call, or None.
        order: Position of the block it belongs to, set by `mollify`; None in networks built by hand.
    """

    level: Tensor

    def __init__(self, level: float = 1.0, train_noise: Noise = "sample", eval_noise: Noise = "expected") -> None:
        super().__init__()
        for mode in (train_noise, eval_noise):
            if mode not in MODES:
                raise ValueError(f"noise {mode!r}: expected one of {', '.join(MODES)}")
        self.register_buffer("level", torch.tensor(check_level(level), dtype=torch.float64))
        self.active = level > 0
        self.train_noise: Noise = train_noise
        self.eval_noise: Noise = eval_noise
        self.frozen: FrozenNoise | None = None
        self.order: int | None = None

    def set_level(self, level: float) -> None:
        """Set the level from a number."""
        self.level.fill_(check_level(level))
        self.active = level > 0

    def noise(self, draw: Callable[..., Tensor], like: Tensor) -> Noise | Tensor:
        """What to give the functional core as ``noise``: the mode of train or eval, or the frozen draws."""
        mode = self.train_noise if self.training else self.eval_noise
        return self.frozen.draw(draw, like) if self.frozen is not None and mode == "sample" else mode

    def sampled(self) -> bool:
        """Is noise drawn afresh at this moment? Then the native kernels may draw it."""
        return (
            self.active and self.frozen is None and (self.train_noise if self.training else self.eval_noise) == "sample"
        )

    def expected(self) -> bool:
        """Is its mean taken for the noise at this moment?"""
        return self.active and (self.train_noise if self.training else self.eval_noise) == "expected"

    def normal(self, like: Tensor) -> Noise | Tensor:
        """Noise of the push."""
        return self.noise(normal_like, like)

    def uniform(self, like: Tensor) -> Noise | Tensor:
        """Noise of the copy."""
        return self.noise(uniform_like, like)

    def idle(self, out: Tensor) -> Tensor:
        """Out itself, for the way past an inactive module.

        Under torch.distributed its own parameters are tied to it with a gradient of zero, since
        DistributedDataParallel waits for every parameter's gradient at every step.
        """
        if self.training and out.requires_grad and torch.distributed.is_initialized():
            return tie(out, list(self.parameters()))
        return out

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Levelled:
        # The level follows the module to another device, but model.half() must not round it: 0.999 in bf16 is 1.
        level = self._buffers.pop("level")
        assert level is not None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.zeros((), device=level.device)).device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        if level.is_meta and device.type != "meta":
            level = torch.ones(())
        self._buffers["level"] = level.to(device=device, dtype=dtype)
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        if not self.level.is_meta:
            self.active = float(self.level) > 0

    def extra_repr(self) -> str:
        return f"level={float(self.level):.3g}"


class Added(nn.Module):
    """What mollification adds to a module of somebody else's: loads from plain checkpoints as well as from its own."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # A plain checkpoint knows nothing of us: what we hold stays as it is, and strict loading finds it.
        if not any(key.startswith(prefix) for key in state_dict):
            state_dict.update({prefix + key: value for key, value in self.state_dict().items()})
        super()._load_from_state_dict(state_dict, prefix, *args)


def tie(out: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Out, of which the parameters have a gradient of zero."""
    own = [parameter for parameter in parameters if parameter.requires_grad]
    if own and torch.is_grad_enabled():
        return cast(Tensor, _Tie.apply(out, *own))  # type: ignore[no-untyped-call]
    return out


class _Tie(torch.autograd.Function):
    """Passes a tensor through, and gives the other arguments a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *own: Tensor) -> Tensor:
        ctx.save_for_backward(*own)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return (grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors))
