"""The base of every mollified module: a level, and a way to get its noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.compiler import is_dynamo_compiling
from torch.nn.modules import module as _modules
from torch.utils.weak import WeakTensorKeyDictionary

from mollifier.functional import Noise, normal_like, uniform_like
from mollifier.nn._frozen import FrozenNoise as FrozenNoise

MODES = ("sample", "expected", "exact")
_in_functorch, _tracing = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state


def check_level(value: float) -> float:
    """Return the level as a float, or raise a ValueError that says what was given.

    >>> check_level(1)
    1.0
    """
    level = float(value)
    if not 0.0 <= level <= 1.0:  # NaN fails too
        raise ValueError(f"level {value!r}: expected a number in [0, 1], 1 = fully mollified, 0 = the plain network")
    return level


def on_cpu(level: Tensor) -> bool:
    """Return whether the level is an ordinary tensor in the host's memory."""
    return type(level) is Tensor and level.is_cpu


def readable(level: Tensor) -> bool:
    """Return whether the host can read this tensor now, without waiting.

    It cannot if the tensor is on an accelerator, has no value (meta, fake, traced) or has several (vmap).
    """
    return (
        on_cpu(level)
        and not is_dynamo_compiling()
        and not (_in_functorch() and is_functorch_wrapped_tensor(level))
        and _tracing() is None
    )


def transformed() -> bool:
    """Return whether code is being compiled, traced or transformed now, so that even a tensor on the CPU may have no value."""
    return is_dynamo_compiling() or _in_functorch() or _tracing() is not None


def any_global_hook() -> bool:
    """Return whether a global hook, one on all modules, is registered."""
    return bool(
        _modules._global_forward_hooks
        or _modules._global_forward_pre_hooks
        or _modules._global_backward_hooks
        or _modules._global_backward_pre_hooks
    )


def hooked(module: nn.Module) -> bool:
    """Return whether skipping the call of this module would be noticed, because it has hooks or a replaced forward, or because of a global hook."""
    return own_hooks(module) or any_global_hook()


def own_hooks(module: nn.Module) -> bool:
    """Return whether the module has hooks of its own or a replaced forward; global hooks do not count."""
    own = module.__dict__
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
    )


# For tensors that are not readable: the number last written to each, with the tensor's version at that time.
_WRITTEN = WeakTensorKeyDictionary()


def _remember(level: Tensor, value: float) -> None:
    if not level.is_inference():  # inference tensors have no version
        _WRITTEN[level] = value, level._version


def _recall(level: Tensor) -> float | None:
    """Return the number last written to the level, or None if anything else has written to it since."""
    if torch.compiler.is_compiling() or level.is_inference():
        return None
    value, version = _WRITTEN.get(level, (None, -1))  # type: ignore[no-untyped-call]
    return value if version == level._version else None


class Annealed(nn.Module):
    """A module governed by a level p in [0, 1], kept in a 0-dim buffer so that annealing it never recompiles anything.

        >>> from mollifier.nn import NoisyActivation
        >>> unit = NoisyActivation("sigmoid", units=3, level=0.5)
        >>> unit.level
        tensor(0.5000, dtype=torch.float64)
        >>> _ = unit.state_dict()["level"].fill_(0.0)                       # whoever changes the buffer changes the level
        >>> unit.active
        False

    Attributes:
        level: The buffer, and the only place where the level is kept. `set_level`, `mollifier.set_level` and an `Annealer` write it.
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
        self.train_noise: Noise = train_noise
        self.eval_noise: Noise = eval_noise
        self.frozen: FrozenNoise | None = None
        self.order: int | None = None

    def known_level(self) -> float | None:
        """Return the level as a number, or None where the host does not know it.

        On the CPU the level is read at every call. On an accelerator, where reading it would mean waiting, it is known if
        `set_level` or a checkpoint was the last to write it (torch does not count writes through ``.data``, so these go
        unnoticed). Under torch.compile, torch.export and vmap, and on the meta device, it is unknown and stays a tensor.
        """
        level = self._buffers["level"]
        if readable(level):  # type: ignore[arg-type]
            return level.item()  # type: ignore[union-attr]
        return _recall(level)  # type: ignore[arg-type]

    def at_zero(self) -> bool:
        """Return whether the level is 0: faster than `known_level`, but only valid where nothing is `transformed`."""
        level: Tensor = self._buffers["level"]  # type: ignore[assignment]
        return on_cpu(level) and level.item() == 0.0

    @property
    def active(self) -> bool:
        """Whether the level is above 0 or unknown; otherwise the plain operation runs."""
        return self.known_level() != 0.0

    def set_level(self, level: float) -> None:
        """Set the level from a number."""
        value = check_level(level)
        self.level.fill_(value)
        _remember(self.level, value)

    def noise(self, draw: Callable[..., Tensor], like: Tensor) -> Noise | Tensor:
        """Return the ``noise`` argument for the functional core: the mode for train() or eval(), or the frozen draws."""
        mode = self.mode()
        return self.frozen.draw(draw, like) if self.frozen is not None and mode == "sample" else mode

    def mode(self) -> Noise:
        """Return the noise mode that applies now, in train() or in eval()."""
        return self.train_noise if self.training else self.eval_noise

    def operator_mode(self) -> Noise | None:
        """Return the mode if an operator can make the noise itself (fresh draws, or their mean), or None if it is frozen or exact."""
        mode = self.mode()
        return mode if mode == "expected" or (mode == "sample" and self.frozen is None) else None

    def expected(self) -> bool:
        """Return whether the noise is currently replaced by its mean."""
        return self.mode() == "expected"

    def normal(self, like: Tensor) -> Noise | Tensor:
        """Return the noise of the push."""
        return self.noise(normal_like, like)

    def uniform(self, like: Tensor) -> Noise | Tensor:
        """Return the noise of the copy."""
        return self.noise(uniform_like, like)

    def pass_through(self, out: Tensor) -> Tensor:
        """Return ``out`` itself, for the path that bypasses an inactive module.

        Under torch.distributed the module's own parameters are tied to ``out`` with a gradient of zero, since
        DistributedDataParallel waits for every parameter's gradient at every step.
        """
        if self.training and out.requires_grad and torch.distributed.is_initialized():
            return with_zero_gradients(out, list(self.parameters()))
        return out

    def reset_parameters(self) -> None:
        """Draw the learned parameters anew, as in torch's own modules. The level stays unchanged."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Annealed:
        level = self._buffers["level"]
        assert level is not None
        nowhere = on_meta(self)
        super()._apply(lambda each: _moved(each, fn) if each is level else fn(each), recurse)  # type: ignore[no-untyped-call]
        if nowhere and not on_meta(self):
            self.reset_parameters()  # the meta device holds no values, and neither does a plain checkpoint
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        level = self.level
        if type(level) is Tensor and not level.is_meta:
            _remember(level, level.item())  # waiting for an accelerator is fine here

    def extra_repr(self) -> str:
        known = type(self.level) is Tensor and not self.level.is_meta
        return f"level={float(self.level):.3g}" if known else f"level on {self.level.device}"


def _moved(level: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the level, moved to where ``fn`` moves a module, in full precision: in bfloat16 0.999 would become 1."""
    device = fn(torch.zeros((), device=level.device)).device
    if device == level.device:
        new = fn(level)  # may share memory, convert the level, or return an empty tensor
        return level if new is level or new.dtype != level.dtype or new.is_meta else new.copy_(level)
    dtype = torch.float32 if device.type == "mps" else torch.float64
    if level.is_meta:
        return torch.ones((), device=device, dtype=dtype)  # the meta device held no value: start mollified
    value = level.item() if readable(level) else _recall(level)
    new = level.to(device=device, dtype=dtype)
    if value is not None and not new.is_meta:
        _remember(new, value)
    return new


def on_meta(module: nn.Module) -> bool:
    """Return whether any part of the module is on the meta device, and so has no value."""
    return any(each.is_meta for each in (*module.parameters(), *module.buffers()))


class AddedModule(nn.Module):
    """A module that mollification adds to an existing one; it loads from plain checkpoints as well as from its own."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, *args: Any) -> None:
        # A plain checkpoint has no entries for this module: its values stay as they are, and strict loading finds them.
        if not any(key.startswith(prefix) for key in state_dict):
            if local_metadata.get("assign_to_params_buffers") and on_meta(self):
                self.to_empty(device=torch.get_default_device())  # on the meta device there is nothing to keep
            state_dict.update({prefix + key: value for key, value in self.state_dict().items()})
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


def with_zero_gradients(out: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Return ``out``, tied to the parameters so that they get a gradient of zero."""
    own = [parameter for parameter in parameters if parameter.requires_grad]
    if own and torch.is_grad_enabled():
        return cast(Tensor, _ZeroGradients.apply(out, *own))  # type: ignore[no-untyped-call]
    return out


class _ZeroGradients(torch.autograd.Function):
    """Pass a tensor through and give the other arguments a gradient of zero."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, *own: Tensor) -> Tensor:
        ctx.save_for_backward(*own)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return (grads[0], *(torch.zeros_like(parameter) for parameter in ctx.saved_tensors))
