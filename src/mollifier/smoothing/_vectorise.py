"""Compute many values of a loss at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from mollifier.smoothing._noise import split
from mollifier.smoothing._sigma import Scale

Parameters = Mapping[str, Tensor]
LossFunction = Callable[[dict[str, Tensor]], Tensor]


def loss_of(module: nn.Module, criterion: Callable[..., Tensor], *batch: Any) -> tuple[LossFunction, dict[str, Tensor]]:
    """Return a loss as a function of the parameters, and the parameters, for a module, a criterion and a batch.

        >>> import torch
        >>> from mollifier.smoothing import loss_of, mollified_loss
        >>> model, x, y = torch.nn.Linear(4, 1), torch.randn(8, 4), torch.randn(8, 1)
        >>> loss_fn, parameters = loss_of(model, torch.nn.functional.mse_loss, x, y)
        >>> mollified_loss(loss_fn, parameters, sigma=0.1).backward()
        >>> model.weight.grad.shape
        torch.Size([1, 4])

    Args:
        module: Any module; it is not changed. In train() its own noise is drawn again for every sample.
        criterion: ``(output, target) -> loss``.
        *batch: The inputs of the module, and the target last.
    """
    if not batch:
        raise ValueError("loss_of: expected a batch: the inputs of the module and, last, the target")
    *inputs, target = batch
    parameters: dict[str, Tensor] = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(f"loss_of: {type(module).__name__} has no parameters that require a gradient")

    def loss_fn(values: dict[str, Tensor]) -> Tensor:
        return criterion(functional_call(module, values, tuple(inputs)), target)

    return loss_fn, parameters


def one_number(loss: Any) -> Tensor:
    """Return the loss, or raise an error that says what was returned instead."""
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss_fn returned {type(loss).__name__} {loss!r}: expected a tensor with one number")
    if loss.numel() != 1 or not loss.dtype.is_floating_point:
        raise TypeError(
            f"loss_fn returned a {loss.dtype} tensor of shape {tuple(loss.shape)}: expected one floating-point number"
        )
    return loss.reshape(())


def losses(loss_fn: LossFunction, parameters: Parameters, sigma: Mapping[str, Scale], rows: Tensor) -> Tensor:
    """Return L(θ - σ ξ) for each row ξ. A single row is computed without vmap, for functions that vmap does not support."""
    noisy = {name: parameters[name] for name in sigma}

    def one(xi: dict[str, Tensor]) -> Tensor:
        moved = {name: noisy[name] - sigma[name] * xi[name] for name in xi}
        return one_number(loss_fn({**parameters, **moved}))

    if len(rows) == 1:
        values = one(split(rows[0], noisy))[None]
    else:
        try:
            values = vmap(one, randomness="different")(split(rows, noisy))
        except RuntimeError as error:
            error.add_note("mollifier: if torch.func.vmap does not support this loss, chunk=1 calls it once per sample")
            raise
    if not bool(values.isfinite().all()):
        bad = int((~values.isfinite()).sum())
        raise ValueError(
            f"loss_fn is not finite (NaN or infinite) at {bad} of {len(values)} samples of this chunk: "
            "is sigma too large for this loss?"
        )
    return values


def pair_losses(
    loss_fn: LossFunction, parameters: Parameters, sigma: Mapping[str, Scale], rows: Tensor, antithetic: bool
) -> tuple[Tensor, Tensor | None]:
    """Return L(θ - σ ξ), and L(θ + σ ξ) if antithetic, for each row ξ."""
    if not antithetic:
        return losses(loss_fn, parameters, sigma, rows), None
    if len(rows) == 1:
        return losses(loss_fn, parameters, sigma, rows), losses(loss_fn, parameters, sigma, -rows)
    plus, minus = losses(loss_fn, parameters, sigma, torch.cat([rows, -rows])).chunk(2)
    return plus, minus
