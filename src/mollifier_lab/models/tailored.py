"""Activations tailored by Deep Kernel Shaping, a remedy for deep networks that needs neither shortcuts nor normalisation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from mollifier_lab.errors import LabError
from mollifier_lab.models.initialisation import hidden_layers, orthogonal

NAMES: dict[type[nn.Module], str] = {
    nn.Sigmoid: "sigmoid",
    nn.Tanh: "tanh",
}  # the activations that the method and the package support


class Tailored(nn.Module):
    """An activation f in the form γ (f(α x + β) + δ) with constants for a network of this depth (Martens et al. 2021).

        >>> unit = Tailored(nn.Tanh(), depth=50)
        >>> x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        >>> round(unit(x).square().mean().item(), 1)  # a unit that has inputs of length 1 has outputs of length 1
        1.0

    The constants can be moved into the layers around it, α and β into the weights below and γ and δ into those above, so the network is a plain one.

    Args:
        activation: A sigmoid or a tanh.
        depth: The number of layers of the network, one after the other.

    Raises:
        LabError: If it is another activation, or if the package ``dks`` is not installed.
    """

    def __init__(self, activation: nn.Module, depth: int) -> None:
        super().__init__()
        name = NAMES.get(type(activation))
        if name is None:
            raise LabError(f"init=dks on {type(activation).__name__}: it is for smooth activations, sigmoid and tanh")
        self.name, self.depth = name, depth
        self._function = _tailor(name, depth)

    def forward(self, x: Tensor) -> Tensor:
        return self._function(x)

    def extra_repr(self) -> str:
        return f"{self.name}, depth={self.depth}"


@lru_cache  # the same for every layer of a network
def _tailor(name: str, depth: int) -> Callable[[Tensor], Tensor]:
    try:
        from dks.pytorch.activation_transform import get_transformed_activations  # type: ignore[import-untyped]
    except ImportError:
        raise LabError("init=dks: dks is not installed; pip install 'mollifier[frontier]'") from None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)  # warnings on the way to its solution
        # In a chain of layers the slope of the whole is the product of the slopes of its parts.
        found: dict[str, Any] = get_transformed_activations(
            (name,), method="DKS", max_slope_func=lambda slope: slope**depth
        )
    return cast(Callable[[Tensor], Tensor], found[name])


@torch.no_grad()
def tailor(model: nn.Module, inputs: Tensor, gain: float = 1.0) -> None:
    """Tailor all activations of a plain network in place, with orthogonal weights and inputs scaled to length 1, as the method requires.

        >>> from mollifier_lab.models import mlp
        >>> x = torch.rand(200, 100, generator=torch.Generator().manual_seed(0))
        >>> tailor(model := mlp(100, 1, width=100, depth=30), x)
        >>> 0.5 < model[:-1](x).square().mean().item() < 1.5  # through thirty layers
        True

    Args:
        model: A chain of linear layers and activations.
        inputs: A batch; its mean square scales the weights of the first layer.
        gain: The gain of the weights of all hidden layers; the method uses 1.

    Raises:
        LabError: If it is not such a chain.
    """
    if not (isinstance(model, nn.Sequential) and all(type(part) in (nn.Linear, *NAMES) for part in model)):
        kinds = ", ".join(dict.fromkeys(type(part).__name__ for part in model.children()))
        raise LabError(f"init=dks: expected linear layers with sigmoids or tanhs, a plain network; this has {kinds}")
    layers = hidden_layers(model)
    orthogonal(model, gain)
    # An orthogonal layer that narrows keeps the mean square of its inputs.
    layers[0].weight *= inputs.square().mean().rsqrt()
    for number, part in enumerate(model):
        if type(part) in NAMES:
            model[number] = Tailored(part, len(layers))
