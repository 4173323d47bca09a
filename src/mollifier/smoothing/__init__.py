"""Section 2 of the paper, for any loss: smooth it by Monte Carlo, differentiate a loss without a derivative, check a mollifier.

>>> import torch
>>> from mollifier.smoothing import mollified_loss, weak_gradient
>>> theta = {"x": torch.tensor(0.5, dtype=torch.float64, requires_grad=True)}
>>> step = lambda p: (p["x"] > 0).double()
>>> g = torch.Generator().manual_seed(0)
>>> round(mollified_loss(step, theta, sigma=1.0, samples=40_000, generator=g).item(), 2)      # Φ(0.5) = 0.69
0.69
>>> gradients, errors = weak_gradient(step, theta, sigma=1.0, samples=4000, generator=g)    # Φ'(0.5) = 0.35
>>> bool((gradients["x"] - 0.3521).abs() < 4 * errors["x"])
True
"""

from mollifier.smoothing._check import (
    CheckReport as CheckReport,
    GeneralizedMollifier as GeneralizedMollifier,
    NoisyMollifier as NoisyMollifier,
    check_mollifier as check_mollifier,
)
from mollifier.smoothing._kernels import KERNELS as KERNELS, Kernel as Kernel
from mollifier.smoothing._loss import (
    mollified_loss as mollified_loss,
    mollified_value as mollified_value,
)
from mollifier.smoothing._noise import KernelNoise as KernelNoise, draw_noise as draw_noise
from mollifier.smoothing._sigma import Sigma as Sigma
from mollifier.smoothing._vectorise import loss_of as loss_of
from mollifier.smoothing._weak import weak_gradient as weak_gradient

__all__ = [
    "KERNELS",
    "CheckReport",
    "GeneralizedMollifier",
    "Kernel",
    "KernelNoise",
    "NoisyMollifier",
    "Sigma",
    "check_mollifier",
    "draw_noise",
    "loss_of",
    "mollified_loss",
    "mollified_value",
    "weak_gradient",
]
