"""Noise on the weights, h = f((W - ξ) h): the Monte-Carlo mollification of section 2, as a parametrization."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mollifier.nn._annealed import Annealed


class WeightNoise(Annealed):
    """W - p ξ with ξ ~ N(mean, std²), drawn at every use in train(); in eval() and at level 0 it is W itself.

        >>> import torch
        >>> from torch.nn.utils import parametrize
        >>> from mollifier.nn import WeightNoise
        >>> layer = torch.nn.Linear(3, 2)
        >>> _ = parametrize.register_parametrization(layer, "weight", WeightNoise(std=0.1))
        >>> torch.equal(layer.weight, layer.weight)
        False

    The level scales the noise, so `mollifier.set_level` and the `Annealer` drive it like any other mollified module.

    Args:
        std: Standard deviation of ξ at level 1.
        mean: The mean of ξ.
        level: The level, from 1 to 0.
    """

    def __init__(self, std: float, mean: float = 0.0, *, level: float = 1.0) -> None:
        super().__init__(level)
        if not std >= 0.0:
            raise ValueError(f"std={std}: expected a number >= 0")
        self.std, self.mean = std, mean

    def forward(self, weight: Tensor) -> Tensor:
        if not self.active or not self.training:
            return weight
        noise = self.normal(weight)
        draws = noise if isinstance(noise, Tensor) else torch.randn_like(weight)
        return weight - (self.level * (self.mean + self.std * draws)).to(weight.dtype)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the weight unchanged (the inverse for ξ = 0), so that assigning to the weight sets W."""
        return weight

    def extra_repr(self) -> str:
        return f"std={self.std:g}, mean={self.mean:g}, {super().extra_repr()}"


def weight_noise(model: nn.Module, std: float, *, mean: float = 0.0, level: float = 1.0) -> nn.Module:
    """Put `WeightNoise` on the weight of every linear and convolutional layer, in place.

    >>> import torch
    >>> from mollifier.nn import remove_weight_noise, weight_noise
    >>> model = weight_noise(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), std=0.05)
    >>> sorted(remove_weight_noise(model).state_dict())
    ['0.bias', '0.weight']
    """
    kinds = (nn.Linear, nn.modules.conv._ConvNd)
    layers = {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
    if not layers:
        raise ValueError("weight_noise: the model has no nn.Linear and no convolution")
    for name, layer in layers.items():
        if parametrize.is_parametrized(layer, "weight"):
            raise ValueError(f"weight_noise: the weight of {name!r} is parametrized already")
    for layer in layers.values():
        parametrize.register_parametrization(
            layer, "weight", WeightNoise(std, mean, level=level).to(layer.weight.device)
        )
    return model


def remove_weight_noise(model: nn.Module) -> nn.Module:
    """Remove `WeightNoise` again and restore the original parameters."""
    for module in model.modules():
        if parametrize.is_parametrized(module, "weight"):
            chain = module.parametrizations["weight"]  # type: ignore[index]
            if any(isinstance(step, WeightNoise) for step in chain):
                parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)
    return model
