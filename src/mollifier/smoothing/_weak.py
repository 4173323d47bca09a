"""The weak gradient: the derivative of the mollified loss without any derivative of the loss."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from mollifier.smoothing._kernels import Kernel
from mollifier.smoothing._loss import Moments, check_chunk
from mollifier.smoothing._noise import KernelNoise, draw_noise, split
from mollifier.smoothing._sigma import Sigmas, scales
from mollifier.smoothing._vectorise import LossFunction, Parameters, one_number, pair_losses

Gradients = dict[str, Tensor]


def weak_gradient(
    loss_fn: LossFunction,
    parameters: Parameters,
    sigma: Sigmas,
    *,
    samples: int = 256,
    antithetic: bool = True,
    baseline: bool = True,
    kernel: str | Kernel = "gaussian",
    generator: Generator | None = None,
    noise: KernelNoise | None = None,
    chunk: int | None = None,
) -> tuple[Gradients, Gradients]:
    """Compute ∇(L * K) = L * ∇K (section 2) by Monte Carlo: E[L(θ - σ ξ) · d log K(ξ)/dξ] / σ. L may be a step function.

        >>> import torch
        >>> from mollifier.smoothing import weak_gradient
        >>> theta = {"x": torch.zeros(1)}
        >>> sign = lambda p: torch.where(p["x"] >= 0, 1.0, -1.0).sum()
        >>> g = torch.Generator().manual_seed(0)
        >>> gradients, errors = weak_gradient(sign, theta, sigma=1.0, samples=10_000, generator=g)
        >>> bool((gradients["x"] - 0.7979).abs() < 4 * errors["x"])     # the density of N(0, 1) at 0, times the jump of 2
        True

    Antithetic pairs replace L by (L(θ - σ ξ) - L(θ + σ ξ)) / 2, in which any constant cancels; without pairs the baseline L(θ) is
    subtracted. Neither changes the mean. Pairs have the smaller variance where L bends, single samples where it is nearly straight.

    Args:
        loss_fn: The same as in `mollified_loss`; its gradient is not used.
        parameters: The tensors, by name.
        sigma: The same as in `mollified_loss`. Parameters that no key names have no entry in the result.
        samples: The number of losses. The error is proportional to the square root of the number of parameters over the number of samples.
        antithetic: Whether to draw pairs ξ, -ξ.
        baseline: Whether to subtract L(θ) (without pairs).
        kernel: ``"gaussian"`` or ``"bump"``. ``"uniform"`` is refused: it has no derivative.
        generator: The generator of the noise.
        noise: Noise from `draw_noise`, instead of samples, antithetic, kernel and generator.
        chunk: The number of losses computed at once.

    Returns:
        The gradients and their standard errors, by name.
    """
    scale = scales(sigma, parameters)
    if not scale:
        raise ValueError("weak_gradient: sigma has been annealed to 0, where there is no noise and so no weak gradient")
    noise = noise or draw_noise(samples, antithetic=antithetic, kernel=kernel, generator=generator)
    check_chunk(chunk)
    score = noise.kernel.score
    if score is None:
        raise ValueError(
            f"weak_gradient: kernel {noise.kernel.name!r} is flat inside and jumps at its ends, so that d log K is 0 where it exists, and "
            "the gradient is concentrated on the faces of the box, which no draw hits. Use 'gaussian' or 'bump'; mollified_loss accepts 'uniform'."
        )
    if noise.units < 2:
        raise ValueError(f"samples={noise.samples}: a standard error needs two draws (antithetic: two pairs)")
    noisy = {name: parameters[name].detach() for name in scale}
    moments = Moments()
    with torch.no_grad():
        centre = one_number(loss_fn(dict(parameters))) if baseline and not noise.antithetic else 0.0
        for rows in noise.chunks(noisy, chunk):
            plus, minus = pair_losses(loss_fn, parameters, scale, rows, noise.antithetic)
            weights = (plus - centre if minus is None else 0.5 * (plus - minus)).to(rows.dtype)
            terms = score(rows).mul_(weights[:, None])
            mean = terms.mean(0)
            moments.add(len(rows), mean, terms.sub_(mean).square_().sum(0))
        means, errors = split(moments.mean, noisy), split(moments.error, noisy)
        return (
            {name: mean / scale[name] for name, mean in means.items()},
            {name: error / scale[name] for name, error in errors.items()},
        )
