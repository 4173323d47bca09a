"""A linear layer with its unit in one node; while p is high, only the units that are not copied are computed."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import torch
from torch import Tensor

from mollifier.kernels._library import draw_seed, library
from mollifier.kernels._unit import KEEP, Spec, call_backward, call_forward, numbers, once

# Measured: from here on the dots that are left cost less than the dense product, if the weight fits the second-level cache.
SPARSE_FROM = 0.75
SPARSE_WEIGHT = 1 << 18


def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, spec: Spec) -> Tensor:
    """φ for the layer ``x W + b`` whose own input is copied, padded with zeros; out_features >= in_features."""
    sparse = spec.level >= SPARSE_FROM and weight.numel() <= SPARSE_WEIGHT
    simple = x.dtype == torch.float32 and spec.push == "paper" and not spec.residual
    node = _SparseLinear if sparse and simple else _Linear
    return cast(Tensor, node.apply(x, weight, bias, a, spec))  # type: ignore[no-untyped-call]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, spec: Spec) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        z = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
        spec.in_units, flat = rows.shape[1], numbers(a, z.dtype)
        out, slopes, head = call_forward(z, rows, flat, spec, any(ctx.needs_input_grad) and z.numel() <= KEEP)
        ctx.save_for_backward(rows, weight, *((z, flat) if slopes is None else (slopes,)))
        ctx.rest = head, x.shape, a.shape, a.dtype
        return out if x.dim() == 2 else out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        once()
        rows, weight, *saved = ctx.saved_tensors
        head, shape, a_shape, a_dtype = ctx.rest
        by_x, by_weight, by_bias, by_a, _ = ctx.needs_input_grad
        grad_x = torch.empty_like(rows)
        grad = grad.reshape(len(rows), -1).contiguous()
        grad_z, grad_a = call_backward(head, grad, tuple(saved), grad_x, a_shape)
        return (
            grad_x.addmm_(grad_z, weight).view(shape) if by_x else None,
            grad_z.t() @ rows if by_weight else None,
            grad_z.sum(0) if by_bias else None,
            cast(Tensor, grad_a).to(a_dtype) if by_a else None,
            None,
        )


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, spec: Spec) -> Tensor:
        shape = x.shape
        rows = x.reshape(-1, shape[-1]).contiguous()
        weight, count = weight.contiguous(), len(rows)
        units = len(weight)
        sizes = (ctypes.c_int64 * 3)(count, rows.shape[1], units)
        out, by_x, by_a = (rows.new_empty(count, units) for _ in range(3))
        index, counts = torch.empty(count, units, dtype=torch.int32), torch.empty(count, dtype=torch.int32)
        assert spec.act is not None
        library().mollifier_linear_forward(
            sizes,
            ctypes.addressof(spec.act),
            spec.level,
            spec.c * spec.level,
            draw_seed(),
            *(each.data_ptr() for each in (rows, weight)),
            None if bias is None else bias.data_ptr(),
            a.data_ptr(),
            a.numel(),
            *(each.data_ptr() for each in (out, counts, index, by_x, by_a)),
            torch.get_num_threads(),
        )
        ctx.save_for_backward(rows, weight, counts, index, by_x, by_a)
        ctx.rest = shape, sizes, bias is not None, a.shape
        return out.view(*shape[:-1], units)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        once()
        rows, weight, counts, index, by_x, by_a = ctx.saved_tensors
        shape, sizes, biased, a_shape = ctx.rest
        grad = grad.contiguous()
        grad_x = torch.empty_like(rows) if ctx.needs_input_grad[0] else None
        grad_w, grad_a = torch.zeros_like(weight), torch.zeros(a_shape)
        grad_bias = torch.zeros(len(weight)) if biased else None
        scratch = by_x.clone()  # the graph may be walked again
        library().mollifier_linear_backward(
            sizes,
            *(each.data_ptr() for each in (grad, rows, weight)),
            grad_a.numel(),
            *(each.data_ptr() for each in (counts, index, scratch, by_a)),
            None if grad_x is None else grad_x.data_ptr(),
            grad_w.data_ptr(),
            None if grad_bias is None else grad_bias.data_ptr(),
            grad_a.data_ptr(),
            torch.get_num_threads(),
        )
        return None if grad_x is None else grad_x.view(shape), grad_w, grad_bias, grad_a, None
