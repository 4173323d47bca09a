"""The mollified loss and its pathwise gradient."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Generator, Tensor

from mollifier.smoothing._kernels import Kernel
from mollifier.smoothing._noise import KernelNoise, draw_noise
from mollifier.smoothing._sigma import Scale, Sigmas, scales
from mollifier.smoothing._vectorise import LossFunction, Parameters, one_number, pair_losses


def mollified_loss(
    loss_fn: LossFunction,
    parameters: Parameters,
    sigma: Sigmas,
    *,
    samples: int = 64,
    antithetic: bool = True,
    kernel: str | Kernel = "gaussian",
    generator: Generator | None = None,
    noise: KernelNoise | None = None,
    chunk: int | None = None,
    graph: bool = False,
) -> Tensor:
    """Estimate the loss convolved with a kernel, by Monte Carlo: 1/N Σ L(θ - ξ⁽ⁱ⁾) (appendix, Monte-Carlo estimate of mollification).

        >>> import torch
        >>> from mollifier.smoothing import mollified_loss
        >>> theta = {"x": torch.tensor([3.0], requires_grad=True)}
        >>> loss = mollified_loss(lambda p: p["x"].square().sum(), theta, sigma=0.5, samples=2)
        >>> loss.backward()
        >>> theta["x"].grad                     # a pair of a quadratic: exact
        tensor([6.])

    The gradient with respect to the parameters is 1/N Σ ∇L(θ - ξ⁽ⁱ⁾), computed chunk by chunk like the values, so that memory does not grow with
    the number of samples. If L is piecewise constant, this gradient is 0 and useless: use `weak_gradient`.

    Args:
        loss_fn: A function from a dict of named tensors to one number; see `loss_of` for a module.
        parameters: The tensors, by name.
        sigma: Standard deviation of the noise: a number, a `Sigma`, or a dict of them by name of parameter or of group (``"encoder"`` is
            all of ``"encoder.…"``, ``""`` all; the longest wins, and what no key names gets no noise).
        samples: N, the number of samples.
        antithetic: Whether to draw pairs ξ, -ξ, which are exact where L is linear, and never worse where it is monotone.
        kernel: ``"gaussian"``, ``"bump"`` or ``"uniform"``, scaled to variance 1 and then by sigma.
        generator: The generator of the noise.
        noise: Noise from `draw_noise`, instead of the four arguments above.
        chunk: The number of losses computed at once; by default 64 to 512, or fewer if that gives over 4 million perturbed numbers. 1: without vmap.
        graph: Whether to keep the whole graph, for second derivatives, torch.func transforms around this function, and gradients in tensors
            other than the parameters and sigma. Memory then grows with the number of samples.

    Raises:
        ValueError: If sigma or samples is not above 0, or a loss is not finite.
        TypeError: If the loss is not one number in a tensor.
    """
    scale = scales(sigma, parameters)
    if not scale:
        return one_number(loss_fn(dict(parameters)))
    noise = noise or draw_noise(samples, antithetic=antithetic, kernel=kernel, generator=generator)
    check_chunk(chunk)
    inputs = {**parameters, **{_KEY + name: s for name, s in scale.items() if isinstance(s, Tensor)}}
    inputs = {name: tensor for name, tensor in inputs.items() if tensor.requires_grad}
    if graph or not inputs or not torch.is_grad_enabled():
        return cast(Tensor, sum(_sums(loss_fn, parameters, scale, noise, chunk))) / noise.samples
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    held = {**parameters, **{name: leaf for name, leaf in leaves.items() if not name.startswith(_KEY)}}
    held_scale = {name: leaves.get(_KEY + name, value) for name, value in scale.items()}
    total: Tensor | float = 0.0
    gradients = [torch.zeros_like(leaf) for leaf in leaves.values()]
    for part in _sums(loss_fn, held, held_scale, noise, chunk):
        total = total + part.detach()
        if part.requires_grad:
            found = torch.autograd.grad(part, list(leaves.values()), allow_unused=True)
            for gradient, new in zip(gradients, found, strict=True):
                if new is not None:
                    gradient += new / noise.samples
    return cast(Tensor, _Known.apply(total / noise.samples, gradients, *inputs.values()))  # type: ignore[no-untyped-call]


_KEY = "σ of "


def mollified_value(
    loss_fn: LossFunction,
    parameters: Parameters,
    sigma: Sigmas,
    *,
    samples: int = 64,
    antithetic: bool = True,
    kernel: str | Kernel = "gaussian",
    generator: Generator | None = None,
    noise: KernelNoise | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Estimate the same number without a gradient, and its standard error. The arguments are those of `mollified_loss`.

    >>> import torch
    >>> from mollifier.smoothing import mollified_value
    >>> theta, g = {"x": torch.zeros(1)}, torch.Generator().manual_seed(0)
    >>> value, error = mollified_value(lambda p: p["x"].abs().sum(), theta, sigma=1.0, samples=1000, generator=g)
    >>> bool((value - 0.7979).abs() < 4 * error)
    True
    """
    scale = scales(sigma, parameters)
    noise = noise or draw_noise(samples, antithetic=antithetic, kernel=kernel, generator=generator)
    check_chunk(chunk)
    if noise.units < 2:
        raise ValueError(f"samples={noise.samples}: a standard error needs two draws (antithetic: two pairs)")
    with torch.no_grad():
        if not scale:
            value = one_number(loss_fn(dict(parameters)))
            return value, torch.zeros_like(value)
        moments = Moments()
        for rows in noise.chunks({name: parameters[name] for name in scale}, chunk):
            plus, minus = pair_losses(loss_fn, parameters, scale, rows, noise.antithetic)
            values = plus if minus is None else 0.5 * (plus + minus)
            moments.add(len(values), values.mean(), (values - values.mean()).square().sum())
        return moments.mean, moments.error


class Moments:
    """The mean and standard error of numbers that arrive in chunks (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = self.square = torch.zeros(())

    def add(self, count: int, mean: Tensor, square: Tensor) -> None:
        """Add a chunk: the number of values, their mean, and the sum of squared deviations from it."""
        if self.count == 0:
            self.count, self.mean, self.square = count, mean, square
            return
        total, shift = self.count + count, mean - self.mean
        self.mean = self.mean + shift * (count / total)
        self.square = self.square + square + shift.square() * (self.count * count / total)
        self.count = total

    @property
    def error(self) -> Tensor:
        """The standard error of the mean."""
        return (self.square / ((self.count - 1) * self.count)).sqrt()


def check_chunk(chunk: int | None) -> None:
    """Raise a ValueError unless it is a valid chunk size."""
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk}: expected at least 1")


def _sums(
    loss_fn: LossFunction, parameters: Parameters, scale: dict[str, Scale], noise: KernelNoise, chunk: int | None
) -> Any:
    """Yield the sum of the losses of each chunk."""
    for rows in noise.chunks({name: parameters[name].detach() for name in scale}, chunk):
        plus, minus = pair_losses(loss_fn, parameters, scale, rows, noise.antithetic)
        yield plus.sum() if minus is None else plus.sum() + minus.sum()


class _Known(torch.autograd.Function):
    """A value whose gradient was computed along with it."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True: the second derivative would silently be 0
            raise RuntimeError("mollified_loss: higher derivatives need the whole graph: mollified_loss(…, graph=True)")
        return None, None, *(grads[0] * gradient for gradient in ctx.saved_tensors)
