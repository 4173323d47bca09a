"""A run of linear layers with their units in one node; while p is high, only the units that are not copied are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mollifier import functional
from mollifier.activations import Activation
from mollifier.functional import Push
from mollifier.ops import _library
from mollifier.ops._activation import knows, numbers, of_numbers
from mollifier.ops._library import native
from mollifier.ops._noise import draw_seeds, noise
from mollifier.ops._operator import (
    OPERATORS,
    below_autograd,
    define,
    differentiate,
    elsewhere,
    fake,
    vmap_by_loop,
)
from mollifier.ops._unit import reference, unit

# Bytes that are asked for at once. Beyond 32 MiB glibc asks the system anew at every step, which costs more than the step's arithmetic.
LOT = 30 << 20
SETTINGS = 10  # numbers for each link, see `Link.settings`

# Returns the output, and what the backward pass needs. biases, signs: of those links that have them. levels: of each link the noise's and the copy's.
define(
    "chain(Tensor x, Tensor[] weights, Tensor[] biases, Tensor[] a, Tensor[] levels, Tensor[] signs, Tensor seeds, float[] settings, bool expected, "
    "bool keep) -> (Tensor, Tensor)"
)
# by: for each link the sum of 1 (weight), 2 (bias) and 4 (a), where these gradients are wanted. Only these are returned, after x's.
define(
    "chain_backward(Tensor grad, Tensor x, Tensor kept, Tensor[] weights, Tensor[] a, Tensor[] signs, float[] settings, bool expected, bool by_x, "
    "int[] by) -> Tensor[]"
)
_forward, _backward = OPERATORS.chain.default, OPERATORS.chain_backward.default
Two = tuple[Tensor, Tensor]


class Link(NamedTuple):
    """A linear layer whose own input is copied, padded with zeros: out_features >= in_features, unless there are signs.

    Attributes:
        weight: (out, in).
        bias: (out,), or None.
        a: (out,) or (1,).
        act: The activation.
        level: p of the noise.
        copy_level: p of the copy.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``.
        residual: Add below to what is not copied.
        signs: (in,): the layer narrows, and the copy is made of sums with these weights, see `mollifier.functional.signed_sums`.
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
        """What is not a tensor, as the operator wants it."""
        return [
            *numbers(self.act),
            self.c,
            self.push == "odds",
            self.residual,
            self.bias is not None,
            self.signs is not None,
        ]


def chain_serves(x: Tensor) -> bool:
    """Is there one call for a whole run of layers, of tensors such as this?"""
    return (
        x.dtype in (torch.float32, torch.float64)
        and not torch.compiler.is_compiling()  # its compiler makes more of the linear layers than we do
        and not torch.is_autocast_enabled("cpu")
        and native(x)
        and bool(cast(Any, _library.LIBRARY).mollifier_has_product())
    )


def chain(x: Tensor, links: Sequence[Link], *, expected: bool = False) -> Tensor:
    """φ of φ of … φ(x), the first link first; sampled noise or expected values.

    >>> import torch
    >>> from mollifier.activations import activation
    >>> level = torch.tensor(0.5)
    >>> link = Link(torch.randn(5, 3), torch.zeros(5), torch.ones(1), activation("tanh"), level, level)
    >>> chain(torch.randn(8, 3), [link]).shape
    torch.Size([8, 5])
    """
    if not chain_serves(x) or not all(knows(link.act) for link in links):
        return _by_layer(x, links, "expected" if expected else "sample")
    if not torch.is_grad_enabled():
        return cast(Tensor, _forward(x, *_arguments(links, expected), False)[0])
    for some in _lots(links, x.numel() // x.shape[-1] * x.element_size()):
        weights, biases, a, *rest = _arguments(some, expected)
        x = _apply(x, len(weights), len(biases), *rest, *weights, *biases, *a)[0]
    return x


def _by_layer(x: Tensor, links: Sequence[Link], mode: Any) -> Tensor:
    """One layer at a time."""
    for link in links:
        above = F.linear(x, link.weight, link.bias)
        settings: Any = {"c": link.c, "push": link.push, "residual": link.residual, "normal": mode}
        x = unit(above, _short(x, link), link.a, link.act, level=link.level, copy_level=link.copy_level, **settings)
    return x


def _short(x: Tensor, link: Link) -> Tensor:
    """What is copied, but for the zeros it is padded with."""
    return x if link.signs is None else functional.signed_sums(x, link.signs.to(x), len(link.weight), -1)


def _arguments(links: Sequence[Link], expected: bool) -> tuple[Any, ...]:
    """Of the operator, but for x and keep."""
    return (
        [link.weight for link in links],
        [link.bias for link in links if link.bias is not None],
        [link.a for link in links],
        [level for link in links for level in (link.level, link.copy_level)],
        [link.signs for link in links if link.signs is not None],
        draw_seeds(0 if expected else len(links)),
        [number for link in links for number in link.settings()],
        expected,
    )


def _lots(links: Sequence[Link], column: int) -> Iterator[list[Link]]:
    """The links in lots that keep no more than `LOT` bytes; a unit of one link keeps three columns."""
    some: list[Link] = []
    size = 0
    for link in links:
        mine = 3 * column * len(link.weight)
        if some and size + mine > LOT:
            yield some
            some, size = [], 0
        some.append(link)
        size += mine
    yield some


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        count: int,
        biased: int,
        levels: list[Tensor],
        signs: list[Tensor],
        seeds: Tensor,
        settings: list[float],
        expected: bool,
        *tensors: Tensor,
    ) -> Two:
        ctx.set_materialize_grads(False)
        weights, biases, a = tensors[:count], tensors[count : count + biased], tensors[count + biased :]
        with below_autograd():
            y, kept = _forward(x, weights, biases, a, levels, signs, seeds, settings, expected, True)
        ctx.save_for_backward(x, kept, *tensors)
        ctx.rest = count, biased, signs, settings, expected
        ctx.mark_non_differentiable(kept)
        return y, kept

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        x, kept, *saved = ctx.saved_tensors
        count, biased, signs, settings, expected = ctx.rest
        by_x, needed = ctx.needs_input_grad[0], ctx.needs_input_grad[8:]
        if grad is None:
            return (None,) * (8 + len(needed))
        weights, a = saved[:count], saved[-count:]
        if torch.is_grad_enabled():
            return _again(ctx, grad, x, kept, saved)
        # the place of each link's bias among the biases
        places = [number for number in range(count) if settings[SETTINGS * number + 8]]
        by = [needed[number] + 4 * needed[count + biased + number] for number in range(count)]
        for place, number in enumerate(places):
            by[number] += 2 * needed[count + place]
        found = iter(_backward(grad, x, kept, weights, a, signs, settings, expected, by_x, by))
        grad_x = next(found) if by_x else None
        grads: list[Tensor | None] = [None] * len(needed)
        for number in range(count):
            for bit, place in (
                (1, number),
                (2, count + places.index(number) if by[number] & 2 else 0),
                (4, count + biased + number),
            ):
                if by[number] & bit:
                    grads[place] = next(found)
        return (grad_x, *(None,) * 7, *grads)


# without what Function.apply does for functorch, which is not there where this is called
_apply: Callable[..., Any] = super(torch.autograd.Function, _Chain).apply


def _read(kept: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """The levels and the seeds as they were, from what was kept: kind, level, level of the copy and seed of each link."""
    head = kept.flatten()[: count * 32 // kept.element_size()].view(torch.int64).view(count, 4)
    return list(head[:, 1:3].contiguous().view(torch.float64).flatten().unbind()), head[:, 3]


def _links(
    tensors: Sequence[Tensor], levels: list[Tensor], signs: list[Tensor], count: int, biased: int, settings: list[float]
) -> list[Link]:
    """The links again, of the operator's arguments."""
    weights, biases, a = tensors[:count], iter(tensors[count : count + biased]), tensors[count + biased :]
    links, summed = [], iter(signs)
    for k in range(count):
        *act, c, odds, residual, has_bias, narrows = settings[SETTINGS * k : SETTINGS * (k + 1)]
        push: Push = "odds" if odds else "paper"
        bias, function = next(biases) if has_bias else None, cast(Activation, of_numbers(act))
        links.append(Link(weights[k], bias, a[k], function, levels[2 * k], levels[2 * k + 1], c, push, bool(residual)))
        links[k] = links[k]._replace(signs=next(summed) if narrows else None)
    return links


def _by_functional(x: Tensor, links: Sequence[Link], noises: list[Any]) -> Tensor:
    for link, (normal, uniform) in zip(links, noises, strict=True):
        above = F.linear(x, link.weight, link.bias)
        settings = link.level, link.copy_level, link.c, link.push, -1, link.residual
        x = reference(above, _short(x, link), link.a, link.act, *settings, normal, uniform)
    return x


def _noises(x: Tensor, links: Sequence[Link], seeds: Tensor, expected: bool) -> list[Any]:
    """The noise of each link, as `mollifier.functional` takes it."""
    if expected:
        return [("expected", "expected")] * len(links)
    rows = x.shape[:-1]
    drawn = [noise(seed, rows.numel() * len(link.weight)) for seed, link in zip(seeds, links, strict=True)]
    shapes = [(*rows, len(link.weight)) for link in links]
    return [tuple(each.to(x).view(shape) for each in both) for both, shape in zip(drawn, shapes, strict=True)]


def _again(ctx: Any, grad: Tensor, x: Tensor, kept: Tensor, tensors: list[Tensor]) -> tuple[Tensor | None, ...]:
    """The gradients as functions that can be differentiated again: by the reference, with the same noise."""
    count, biased, signs, settings, expected = ctx.rest
    levels, seeds = _read(kept, count)
    with torch.enable_grad():
        links = _links(tensors, levels, signs, count, biased, settings)
        out = _by_functional(x, links, _noises(x, links, seeds, expected))
        inputs = [x, *(None,) * 7, *tensors]
        wanted = [each for each, need in zip(inputs, ctx.needs_input_grad, strict=True) if need]
        found = iter(torch.autograd.grad(out, wanted, grad, create_graph=True))  # type: ignore[arg-type]
    return tuple(next(found) if need else None for need in ctx.needs_input_grad)


def _fake(x: Tensor, weights: list[Tensor], *rest: Any) -> Two:
    keep, rows = rest[-1], x.numel() // x.shape[-1]

    def whole(size: int) -> int:
        return (size + 15) // 16 * 16

    size = whole(len(weights) * 32 // x.element_size())
    for weight in weights:
        size += whole(rows * len(weight)) + (whole(2 * rows * len(weight)) if keep else 0)
    last = len(weights[-1])
    return x.new_empty((*x.shape[:-1], last)), x.new_empty(size - whole(rows * last))


def _fake_backward(
    grad: Tensor,
    x: Tensor,
    kept: Tensor,
    weights: list[Tensor],
    a: list[Tensor],
    signs: Any,
    settings: Any,
    expected: Any,
    by_x: bool,
    by: list[int],
) -> list[Tensor]:
    found = [torch.empty_like(x, memory_format=torch.contiguous_format)] if by_x else []
    for weight, mine, which in zip(weights, a, by, strict=True):
        rooms = ((1, weight.shape), (2, weight.shape[:1]), (4, mine.shape))
        found += [x.new_empty(shape) for bit, shape in rooms if which & bit]
    return found


def _autograd(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], a: list[Tensor], levels: list[Tensor], signs: list[Tensor], seeds: Tensor, settings: list[float],
    expected: bool, keep: bool
) -> Two:  # fmt: skip
    tensors = (*weights, *biases, *a)
    if torch.is_grad_enabled() and any(each.requires_grad for each in (x, *tensors)):
        rest = len(weights), len(biases), levels, signs, seeds, settings, expected
        return cast(Two, _Chain.apply(x, *rest, *tensors))  # type: ignore[no-untyped-call]
    with below_autograd():
        return cast(Two, _forward(x, weights, biases, a, levels, signs, seeds, settings, expected, keep))


def _composite(
    x: Tensor, weights: list[Tensor], biases: list[Tensor], a: list[Tensor], levels: list[Tensor], signs: list[Tensor], seeds: Tensor, settings: list[float],
    expected: bool, keep: bool
) -> Two:  # fmt: skip
    """The operator where there is no kernel: the reference, with the kernels' noise, differentiated by torch."""
    links = _links([*weights, *biases, *a], levels, signs, len(weights), len(biases), settings)
    return _by_functional(x, links, _noises(x, links, seeds, expected)), x.new_empty(0)


fake("chain", _fake)
fake("chain_backward", _fake_backward)
differentiate("chain", _autograd)
elsewhere("chain", _composite)
vmap_by_loop("chain")
torch.library.register_autocast("mollifier::chain", "cpu", torch.float32)
