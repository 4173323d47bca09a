"""Run several linear layers with their units in one autograd node; while p is high, compute only the units that are not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mollifier import functional
from mollifier.activations import Activation
from mollifier.functional import Push
from mollifier.ops import _library, _operator
from mollifier.ops._operator import below_autograd, define, draw_seeds, knows, native, numbers
from mollifier.ops._unit import reference, unit

# Bytes that are allocated at once. Above 32 MiB, glibc requests new memory from the system at every step, which costs more than the step's
# arithmetic.
LOT = 30 << 20
SETTINGS = 8  # numbers per link, see `Link.settings`
NONE = torch.empty(0)  # stands for a bias or for signs that a link does not have

# Returns the output and what the backward pass needs. levels: for each link, the level of the noise and that of the copy.
_forward = define(
    "chain(Tensor x, Tensor[] weights, Tensor[] biases, Tensor[] a, Tensor[] levels, Tensor[] signs, Tensor seeds, float[] settings, bool expected, "
    "bool keep) -> (Tensor, Tensor)"
)
# by: whether the gradient is wanted, for x, for each weight, for each bias and for each a. Only the wanted ones are returned, in this order.
_backward = define(
    "chain_backward(Tensor grad, Tensor x, Tensor kept, Tensor[] weights, Tensor[] a, Tensor[] signs, float[] settings, bool expected, "
    "int[] by) -> Tensor[]"
)
Two = tuple[Tensor, Tensor]


class Link(NamedTuple):
    """Describe a linear layer whose own input is copied, padded with zeros: out_features >= in_features, unless there are signs.

    Attributes:
        weight: The weight, (out, in).
        bias: The bias, (out,), or None.
        a: The learned scale of the saturation, (out,) or (1,).
        act: The activation.
        level: p of the noise.
        copy_level: p of the copy.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``.
        residual: Whether the input is added to the units that are not copied.
        signs: For a layer that narrows, the weights (in,) of the sums that are copied, see `mollifier.functional.signed_sums`.
    """

    weight: Tensor
    bias: Tensor | None
    a: Tensor
    act: Activation
    level: Tensor
    copy_level: Tensor
    c: float = 20.0
    push: Push = "paper"
    residual: bool = False
    signs: Tensor | None = None

    def settings(self) -> list[float]:
        """Return the settings that are not tensors, in the form that the operator expects."""
        return [*numbers(self.act), self.c, self.push == "odds", self.residual]


def chain_serves(x: Tensor) -> bool:
    """Return whether one call can process a whole run of layers for tensors such as this one."""
    return (
        x.dtype in (torch.float32, torch.float64)
        and not torch.compiler.is_compiling()  # torch.compile optimises the linear layers better than we do
        and not torch.is_autocast_enabled("cpu")
        and native(x)
        and bool(cast(Any, _library.LIBRARY).mollifier_has_product())
    )


def chain(x: Tensor, links: Sequence[Link], *, expected: bool = False) -> Tensor:
    """Apply the links to x one after the other, the first link first, with sampled noise or with expected values.

    >>> import torch
    >>> from mollifier.activations import activation
    >>> level = torch.tensor(0.5)
    >>> link = Link(torch.randn(5, 3), torch.zeros(5), torch.ones(1), activation("tanh"), level, level)
    >>> chain(torch.randn(8, 3), [link]).shape
    torch.Size([8, 5])
    """
    if not chain_serves(x) or not all(knows(link.act) for link in links):
        mode = "expected" if expected else "sample"
        return _by_layer(x, links, [(mode, mode)] * len(links), unit)
    lots = _lots(links, x.numel() // x.shape[-1] * x.element_size()) if torch.is_grad_enabled() else [links]
    for some in lots:
        x = cast(Tensor, _run(False, x, *_arguments(some, expected)))
    return x


def _by_layer(
    x: Tensor, links: Sequence[Link], noises: Sequence[tuple[Any, Any]], run: Callable[..., Tensor]
) -> Tensor:
    """Compute one layer at a time, with `run` (the operator or the reference) for its unit."""
    for (weight, bias, a, act, level, copy_level, c, push, residual, signs), (normal, uniform) in zip(
        links, noises, strict=True
    ):
        below = x if signs is None else functional.signed_sums(x, signs.to(x), len(weight), -1)
        settings: dict[str, Any] = {"c": c, "push": push, "unit_dim": -1, "residual": residual}
        above = F.linear(x, weight, bias)
        x = run(above, below, a, act, level=level, copy_level=copy_level, normal=normal, uniform=uniform, **settings)
    return x


def _arguments(links: Sequence[Link], expected: bool) -> Any:
    """Return the arguments of the operator, except x."""
    return (
        [link.weight for link in links],
        [NONE if link.bias is None else link.bias for link in links],
        [link.a for link in links],
        [level for link in links for level in (link.level, link.copy_level)],
        [NONE if link.signs is None else link.signs for link in links],
        draw_seeds(0 if expected else len(links)),
        [number for link in links for number in link.settings()],
        expected,
        torch.is_grad_enabled(),
    )


def _lots(links: Sequence[Link], column: int) -> list[Sequence[Link]]:
    """Return the links in groups that keep no more than `LOT` bytes each; each unit of a link keeps three columns."""
    sizes = [3 * column * link.weight.shape[0] for link in links]
    if sum(sizes) <= LOT:
        return [links]
    lots: list[list[Link]] = []
    free = 0
    for link, size in zip(links, sizes, strict=True):
        if size > free:
            lots.append([])
            free = LOT
        lots[-1].append(link)
        free -= size
    return [*lots]


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: bool, x: Tensor, levels: Any, signs: Any, seeds: Tensor, settings: Any, expected: bool, *tensors: Tensor) -> Tensor | Two:  # fmt: skip
        """Run the operator and save what the backward pass needs; ``whole`` asks for all its results instead of the output alone,
        ``tensors`` are all weights, all biases and all a.
        """
        count = len(signs)
        weights, biases, a = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
        with below_autograd():
            y, kept = _forward(x, weights, biases, a, levels, signs, seeds, settings, expected, True)
        ctx.save_for_backward(x, kept, *tensors)
        ctx.rest = signs, settings, expected
        if not whole:
            return cast(Tensor, y)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(kept)
        return y, kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad
        if grad is None:
            return (None,) * len(needed)
        x, kept, *tensors = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _again(ctx, grad, x, kept, tensors)
        count = len(tensors) // 3
        weights, a, by = tensors[:count], tensors[2 * count :], [needed[1], *needed[7:]]
        found = iter(_backward(grad, x, kept, weights, a, *ctx.rest, by))
        return tuple(next(found) if need else None for need in needed)


# This skips what Function.apply does for functorch, because the operator has its own rule for vmap.
_apply: Callable[..., Tensor | Two] = super(torch.autograd.Function, _Chain).apply


def _run(
    whole: bool, x: Tensor, weights: list[Tensor], biases: list[Tensor], a: list[Tensor], levels: list[Tensor], signs: list[Tensor], seeds: Tensor, settings: list[float],
    expected: bool, keep: bool
) -> Tensor | Two:  # fmt: skip
    """Run the operator, in a node of the graph if a derivative may be wanted; return all its results, or the output alone."""
    tensors = (*weights, *biases, *a)
    if torch.is_grad_enabled() and (x.requires_grad or any(each.requires_grad for each in tensors)):
        return _apply(whole, x, levels, signs, seeds, settings, expected, *tensors)
    with below_autograd():
        found: Two = _forward(x, weights, biases, a, levels, signs, seeds, settings, expected, keep)
    return found if whole else found[0]


def _again(ctx: Any, grad: Tensor, x: Tensor, kept: Tensor, tensors: list[Tensor]) -> tuple[Tensor | None, ...]:
    """Compute the gradients with the reference and the same noise, so that they can be differentiated again."""
    count = len(tensors) // 3
    # for each link its kind, level, copy level and seed, as they were in the forward pass
    head = kept.flatten()[: count * 32 // kept.element_size()].view(torch.int64).view(count, 4)
    levels = list(head[:, 1:3].contiguous().view(torch.float64).flatten().unbind())
    signs, settings, expected = ctx.rest
    each = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
    with torch.enable_grad():
        out, _ = _composite(x, *each, levels, signs, head[:, 3], settings, expected, True)
        found: tuple[Tensor | None, ...] = _operator.gradients_again(
            ctx, [out], [grad], [None, x, *[None] * 5, *tensors]
        )
    return found


def _composite(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], a: list[Tensor], levels: list[Tensor], signs: list[Tensor], seeds: Tensor, settings: list[float],
    expected: bool, keep: bool
) -> Two:  # fmt: skip
    """Compute the operator where there is no kernel: by the reference, with the kernels' noise, differentiated by torch."""
    links, noises = [], []
    for k, (weight, bias, sign) in enumerate(zip(weights, biases, signs, strict=True)):
        *act, c, odds, residual = settings[SETTINGS * k : SETTINGS * (k + 1)]
        push: Push = "odds" if odds else "paper"
        function = cast(Activation, _operator.of_numbers(act))
        tensors = weight, bias if bias.numel() else None, a[k], function, levels[2 * k], levels[2 * k + 1]
        links.append(Link(*tensors, c, push, bool(residual), sign if sign.numel() else None))
        shape = *x.shape[:-1], len(weight)
        noises.append(_operator.noise_for(x, shape, seeds if expected else seeds[k], expected))
    return _by_layer(x, links, noises, reference), x.new_empty(0)


def _fake(x: Tensor, weights: list[Tensor], *rest: Any) -> Two:
    keep, rows = rest[-1], x.numel() // x.shape[-1]

    def whole(size: int) -> int:
        return (size + 15) // 16 * 16

    size = whole(len(weights) * 32 // x.element_size())
    for weight in weights:
        size += whole(rows * len(weight)) + (whole(2 * rows * len(weight)) if keep else 0)
    last = len(weights[-1])
    return x.new_empty((*x.shape[:-1], last)), x.new_empty(size - whole(rows * last))


def _fake_backward(grad: Any, x: Tensor, kept: Any, weights: list[Tensor], a: list[Tensor], *rest: Any) -> list[Tensor]:
    shapes = [
        x.shape,
        *(each.shape for each in weights),
        *(each.shape[:1] for each in weights),
        *(each.shape for each in a),
    ]
    return [x.new_empty(shape) for shape, wanted in zip(shapes, rest[-1], strict=True) if wanted]


_operator.register("chain", fake=_fake, autograd=lambda *given: _run(True, *given), reference=_composite)
_operator.register("chain_backward", fake=_fake_backward)
torch.library.register_autocast("mollifier::chain", "cpu", torch.float32)
