"""Provide what the operators share: their registration with torch, the test for the native library, activations as numbers, and the noise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from mollifier.activations import Activation, activation
from mollifier.ops import _library

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
KINDS = (Tensor, nn.Parameter)  # tensors of any other class are processed by the reference
OPERATORS = torch.ops.mollifier
below_autograd = torch._C._AutoDispatchBelowAutograd
_DEFINED: Any = torch.library.Library("mollifier", "DEF")  # type: ignore[no-untyped-call]
_functorch, _tracing = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state


def define(schema: str) -> Any:
    """Define an operator and return it."""
    _DEFINED.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    return getattr(OPERATORS, schema.partition("(")[0]).default


def register(
    name: str,
    *,
    fake: Callable[..., Any],
    autograd: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
) -> None:
    """Tell torch everything about an operator beyond its schema.

    Args:
        name: The name of the operator.
        fake: A function that returns results of the right shapes for tensors that have no values.
        autograd: A function that handles calls that may need a derivative. An operator with one also gets a rule for vmap.
        reference: The operator written in torch's own operations, which torch differentiates. It is used on every device other than the CPU,
            and on the CPU if there is no compiled library.
    """
    torch.library.register_fake(f"mollifier::{name}", fake, lib=_DEFINED)
    if autograd is not None:
        _DEFINED.impl(name, autograd, "Autograd")
        torch.library.register_vmap(f"mollifier::{name}", _by_loop(getattr(OPERATORS, name).default), lib=_DEFINED)
    for device in ("CUDA", "XPU", "MPS", "PrivateUse1", *(["CPU"] if _library.LIBRARY is None else [])):
        if reference is not None:
            _DEFINED.impl(name, reference, device)
            _DEFINED.impl(name, reference, f"Autograd{device}")


def _by_loop(operator: Any) -> Callable[..., Any]:
    """Return a rule for vmap that calls the operator once for each element of the batch, with its own level, seed and other arguments."""

    def rule(info: Any, in_dims: tuple[Any, ...], *given: Any) -> tuple[Any, Any]:
        def part(each: Any, dim: Any, number: int) -> Any:
            if isinstance(each, (list, tuple)):
                return [part(*both, number) for both in zip(each, dim or [None] * len(each), strict=True)]
            return each.select(dim, number) if isinstance(each, Tensor) and dim is not None else each

        calls = [
            operator(*(part(*both, number) for both in zip(given, in_dims, strict=True)))
            for number in range(info.batch_size)
        ]
        found = tree_map(lambda *parts: torch.stack(parts), *calls)
        return found, tree_map(lambda _: 0, found)

    return rule


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _loaded() -> bool:
    return _library.LIBRARY is not None


def native(x: Tensor) -> bool:
    """Return whether the native library can process this tensor at this moment; otherwise the reference is used.

    It cannot process tensors of other devices or types, nor run under the transforms of torch.func, forward-mode derivatives or torch.jit,
    nor under torch.export, whose programs must run without this package. Under torch.compile, an operator is one node of the graph.
    """
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting() and x.device.type == "cpu" and x.dtype in DTYPES and bool(_loaded())
    if _library.LIBRARY is None:
        _library.warn()
        return False
    return (
        x.is_cpu
        and x.dtype in DTYPES
        and type(x) in KINDS
        and x.layout is torch.strided
        and not _functorch()
        and _tracing() is None
        and torch.autograd.forward_ad._current_level < 0
    )


def gradients_again(ctx: Any, outs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Any]) -> Any:
    """Return the gradients of what the reference computed so that they can be differentiated again; None where none is wanted."""
    wanted = [each for each, need in zip(inputs, ctx.needs_input_grad, strict=True) if need]
    found = iter(torch.autograd.grad(outs, wanted, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if need else None for need in ctx.needs_input_grad)


def refuse_second() -> None:
    """Refuse a second derivative for which the forward pass did not keep enough."""
    raise RuntimeError(
        "no second derivative: for one of sampled noise this module has not kept its input. Run the forward pass inside mollifier.frozen(model, seed=update), "
        "with a new seed at every update, or train on expected values, or set MOLLIFIER_KERNELS=off"
    )


# The activations that the operators know, in the order of `enum Act` in activations.h, with the options that each one takes.
OPTIONS: dict[str, dict[str, float]] = {
    "sigmoid": {},
    "hard_sigmoid": {},
    "hardsigmoid": {},
    "tanh": {},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "relu": {},
    "leaky_relu": {"negative_slope": 0.01},
    "elu": {"alpha": 1.0},
    "selu": {},
    "silu": {},
    "gelu": {},
    "gelu_tanh": {},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "softsign": {},
    "mish": {},
}
NAMES = list(OPTIONS)
BUILT_IN = set(OPTIONS) - {"gelu_tanh"}
RELU, RELU_OUTPUT = NAMES.index("relu"), len(NAMES)
_KEY = "_numbers"  # the numbers are stored in the activation, which never changes


def knows(act: Activation) -> bool:
    """Return whether this is one of the table's own activations; a user's function may have the same name."""
    return act.listed and act.name in BUILT_IN


def numbers(act: Activation | None) -> list[float]:
    """Return the kind, slope, offset and two options of an activation; an empty list for None.

    >>> from mollifier.activations import activation
    >>> numbers(activation("leaky_relu", negative_slope=0.2))
    [6.0, 1.0, 0.0, 0.2, 0.0]
    """
    if act is None:
        return []
    found = act.__dict__.get(_KEY)
    if found is None:
        name = "gelu_tanh" if act.name == "gelu" and act.options.get("approximate") == "tanh" else act.name
        options = OPTIONS[name]
        first, second, *_ = *(float(act.options.get(key, options[key])) for key in options), 0.0, 0.0
        found = act.__dict__[_KEY] = [float(NAMES.index(name)), act.slope, act.offset, first, second]
    return cast("list[float]", found)


def of_numbers(given: list[float]) -> Activation | None:
    """Return the activation that these numbers describe: the inverse of `numbers`.

    >>> from mollifier.activations import activation
    >>> str(of_numbers(numbers(activation("leaky_relu", negative_slope=0.2))))
    'leaky_relu(negative_slope=0.2)'
    """
    if not given:
        return None
    name = NAMES[RELU if given[0] == RELU_OUTPUT else int(given[0])]
    if name == "gelu_tanh":
        return activation("gelu", approximate="tanh")
    return activation(name, **dict(zip(OPTIONS[name], given[3:], strict=False)))


NO_SEED = torch.empty(0, dtype=torch.int64, device="cpu")  # used for expected values


def draw_seeds(count: int) -> Tensor:
    """Draw this many 63-bit seeds from torch's own generator, so that its seed determines all noise. Every thread gets its own seeds."""
    return torch.randint(2**63 - 1, (count,), device="cpu") if count else NO_SEED


class _Buffer(threading.local):
    """Hold one tensor per thread."""

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.seed = torch.empty(1, dtype=torch.int64, device="cpu")


_BUFFER = _Buffer()


def draw_seed() -> Tensor:
    """Draw one seed for an operator that reads it at once: the next call in this thread overwrites it. Takes half the time of `draw_seeds`."""
    return _BUFFER.seed.random_(0, 2**63 - 1)


_noise = define("noise(Tensor seed, int count) -> (Tensor, Tensor)")
_LOW = 0xFFFFFFFF


def noise(seed: int | Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the |ξ| and the uniform draws that the operators derive from a seed and the index of each element.

    >>> import mollifier
    >>> normal, uniform = mollifier.ops.noise(seed=1, count=1000)
    >>> assert (normal >= 0).all() and (uniform < 1).all()
    """
    found: tuple[Tensor, Tensor] = _noise(torch.as_tensor(seed, dtype=torch.int64), count)
    return found


def noise_for(x: Tensor, shape: Sequence[int], seed: Tensor, expected: bool) -> tuple[Any, Any]:
    """Return the noise for a unit of this shape and x's type, in the form that `mollifier.functional` takes.

    The uniform draws stay in at least single precision: in half precision they would differ, and other units than the kernels' would be copied.
    """
    if expected:
        return "expected", "expected"
    normal, uniform = noise(seed, torch.Size(shape).numel())
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return normal.to(x).view(shape), uniform.to(x.device, wide).view(shape)


def _mixed(seed: int) -> tuple[int, int]:
    """Return the two 32-bit words that a seed is mixed into (splitmix64), like `seed_of` in noise.h."""
    wide = (1 << 64) - 1
    s = (seed + 0x9E3779B97F4A7C15) & wide
    s = ((s ^ (s >> 30)) * 0xBF58476D1CE4E5B9) & wide
    s = ((s ^ (s >> 27)) * 0x94D049BB133111EB) & wide
    s ^= s >> 31
    return s & _LOW, s >> 32


def _noise_reference(seed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Compute the hash of noise.h in torch's operations, and |ξ| by the inverse of its distribution function."""
    low, high = _mixed(int(seed))
    x = (torch.arange(count, device=seed.device) + low) & _LOW
    for shift, factor, more in ((17, 0xED5AD4BB, high), (11, 0xAC4C1B51, 0), (15, 0x31848BAB, 0)):
        x = ((x ^ (x >> shift)) * factor & _LOW) ^ more
    x = x ^ (x >> 14)
    middles = ((x & 0xFFFF).double() + 0.5) / 65536.0
    return (2.0**0.5 * torch.erfinv(middles)).float(), (x >> 16).float() / 65536.0


_DEFINED.impl("noise", _noise_reference, "CompositeExplicitAutograd")
register("noise", fake=lambda seed, count: (torch.empty(count), torch.empty(count)))
