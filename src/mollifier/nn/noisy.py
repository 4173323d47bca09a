"""An activation pushed toward its tangent by noise: Algorithm 1 with its learned a and its level."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mollifier import ops
from mollifier.activations import Activation, activation as find, add, hard_sigmoid
from mollifier.functional import Noise, Push
from mollifier.nn._annealed import Annealed


class NoisyActivation(Annealed):
    """ψ of Algorithm 1: samples in train(), expected values in eval(), and the plain activation at level 0.

        >>> import torch
        >>> from mollifier.nn import NoisyActivation
        >>> layer = torch.nn.Sequential(torch.nn.Linear(40, 100), NoisyActivation("sigmoid", units=100))
        >>> layer(torch.randn(8, 40)).shape
        torch.Size([8, 100])

    Args:
        activation: A name from the table of activations, a module such as ``nn.LeakyReLU(0.2)``, or an `Activation`.
        units: Number of units, each with an a of its own; 1 shares one a among all units.
        unit_dim: The dimension of the units: -1 for `nn.Linear`, -3 for the channels of an `nn.Conv2d`.
        level: The level p, from 1 (mollified) to 0 (plain).
        a: Bounds of the uniform distribution that the initial values of the learned a are drawn from.
        c: Factor on the noise.
        push: ``"paper"`` or ``"odds"``, see `mollifier.functional.noisy_activation`.
        train_noise: The noise mode in train(): ``"sample"``, ``"expected"`` or ``"exact"``.
        eval_noise: The noise mode in eval().
        device: The device of a.
        dtype: The dtype of a.
    """

    def __init__(
        self,
        activation: str | nn.Module | Activation = "sigmoid",
        units: int = 1,
        *,
        unit_dim: int = -1,
        level: float = 1.0,
        a: tuple[float, float] = (-2.0, 2.0),
        c: float = 20.0,
        push: Push = "paper",
        train_noise: Noise = "sample",
        eval_noise: Noise = "expected",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(level, train_noise, eval_noise)
        if units < 1 or unit_dim >= 0:
            raise ValueError(f"units={units}, unit_dim={unit_dim}: expected units >= 1 and unit_dim < 0 (from the end)")
        if not a[0] <= a[1] or c < 0:
            raise ValueError(f"a={a}, c={c}: expected a = (low, high) with low <= high, and c >= 0")
        self.activation = find(activation)
        self.units, self.unit_dim, self.c, self.push = units, unit_dim, float(c), push
        self.a = nn.Parameter(torch.empty(units, device=device, dtype=dtype))
        self.a_bounds = a
        self.reset_parameters()
        self.level = self.level.to(self.a.device)

    def reset_parameters(self) -> None:
        """Draw a anew for each unit."""
        nn.init.uniform_(self.a, *self.a_bounds)

    def forward(self, x: Tensor) -> Tensor:
        if not self.active or not (x.is_floating_point() or x.is_complex()):  # the ReLU of whole numbers is no unit
            return self.pass_through(self.activation.f(x))
        if not self.fits(x):
            raise ValueError(
                f"NoisyActivation has {self.units} units on dimension {self.unit_dim}, but its input has shape "
                f"{tuple(x.shape)}. Give units=1 to share one a, or the right units and unit_dim."
            )
        unit_dim = self.unit_dim if self.units > 1 else -1
        settings: dict[str, Any] = {"c": self.c, "push": self.push, "unit_dim": unit_dim, "normal": self.normal(x)}
        return ops.unit(x, None, self.a, self.activation, level=self.level, **settings)

    def fits(self, x: Tensor) -> bool:
        """Return whether x has as many units as there are values of a; a single shared a fits any x."""
        return self.units == 1 or (x.dim() >= -self.unit_dim and x.shape[self.unit_dim] == self.units)

    def extra_repr(self) -> str:
        where = f", unit_dim={self.unit_dim}" if self.unit_dim != -1 else ""
        return f"{self.activation}, units={self.units}{where}, c={self.c:g}, {super().extra_repr()}"


class HardSigmoid(nn.Module):
    """The paper's plain hard-sigmoid, ``clip(0.25 x + 0.5, 0, 1)``; torch's own has slope 1/6.

    >>> import torch
    >>> from mollifier.nn import HardSigmoid
    >>> HardSigmoid()(torch.tensor([-3.0, 0.0, 1.0]))
    tensor([0.0000, 0.5000, 0.7500])
    """

    def forward(self, x: Tensor) -> Tensor:
        return hard_sigmoid(x)


add("hard_sigmoid", hard_sigmoid, (0.25, 0.5), modules={HardSigmoid: {}})
