"""Initial weights other than Glorot's and He's: orthogonal matrices, layer-sequential unit variance, and centred inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

ROUNDS, CLOSE = (
    10,
    0.01,
)  # LSUV: at most this many corrections of a layer, until its variance is this close to 1


def hidden_layers(model: nn.Module) -> list[nn.Linear]:
    """Return the linear layers except for the last one, which is the output, and for the gates of highways."""
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    return [part for name, part in layers[:-1] if not name.endswith("gate")]


@torch.no_grad()
def orthogonal(model: nn.Module, gain: float = 1.0) -> None:
    """Make the weights of all hidden layers orthogonal, times the gain (Saxe et al. 2014).

    >>> from mollifier_lab.models import mlp
    >>> orthogonal(model := mlp(4, 1, width=4, depth=1), gain=2.0)
    >>> torch.allclose(model[0].weight @ model[0].weight.T, 4 * torch.eye(4), atol=1e-5)
    True
    """
    for layer in hidden_layers(model):
        nn.init.orthogonal_(layer.weight, gain)


@torch.no_grad()
def unit_variance(model: nn.Module, inputs: Tensor, gain: float = 1.0) -> None:
    """Scale each hidden layer, from the input up, until its outputs on a batch have the standard deviation ``gain`` (LSUV, Mishkin and Matas 2016).

        >>> from mollifier_lab.models import mlp
        >>> x = torch.randn(500, 8, generator=torch.Generator().manual_seed(0))
        >>> unit_variance(model := mlp(8, 1, width=50, depth=3), x)
        >>> round(model[:5](x).std().item(), 1)
        1.0

    Call `orthogonal` first. Layers whose outputs do not vary at all are left as they are.
    """
    for layer in hidden_layers(model):
        seen: list[Tensor] = []
        hook = layer.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out))
        for _ in range(ROUNDS):
            seen.clear()
            model(inputs)
            std = float(seen[0].std())
            if std == 0.0 or abs(std / gain - 1.0) < CLOSE:
                break
            layer.weight *= gain / std
        hook.remove()


def critical_gain(activation: nn.Module) -> float:
    """Return the gain of orthogonal weights at which a small signal around 0 passes a layer with its length unchanged.

        >>> critical_gain(nn.Sigmoid()), critical_gain(nn.Tanh()), round(critical_gain(nn.ReLU()), 3)
        (4.0, 1.0, 1.414)

    It is one over the root mean square of the slopes just below and just above 0 (dynamical isometry, Pennington et al. 2017). A sigmoid
    also needs `centre`; otherwise the signal is not around 0.
    """
    with torch.enable_grad():
        near = torch.tensor([-1e-3, 1e-3], dtype=torch.float64, requires_grad=True)
        (slopes,) = torch.autograd.grad(activation(near).sum(), near)
    return round(float(slopes.square().mean() ** -0.5), 4)


@torch.no_grad()
def centre(model: nn.Module, activation: nn.Module) -> None:
    """Give each hidden layer but the first the biases that map the activation's value at 0 to 0.

        >>> from mollifier_lab.models import mlp
        >>> centre(model := mlp(4, 1, width=4, depth=2), nn.Sigmoid())
        >>> torch.allclose(model[2](torch.full((1, 4), 0.5)), torch.zeros(1, 4), atol=1e-6)
        True

    A sigmoid is 0.5 at 0. With zero biases, this constant part of its output, multiplied by random weights, drives the units of the next layer
    apart and away from the slope at 0 that carries the signal. Larger weights drive them further.
    """
    at_zero = float(activation(torch.zeros(())))
    for layer in hidden_layers(model)[1:]:
        layer.bias.copy_(-at_zero * layer.weight.sum(1))


@torch.no_grad()
def delta_orthogonal(model: nn.Module) -> None:
    """Set every convolution to zero except for the middle of its kernel, which becomes an orthogonal matrix times √2, the gain for a ReLU (Xiao et al. 2018).

    >>> layer = nn.Conv2d(4, 8, 3, padding=1)
    >>> delta_orthogonal(layer)
    >>> middle = layer.weight[:, :, 1, 1]
    >>> torch.allclose(middle.T @ middle, 2 * torch.eye(4), atol=1e-5)
    True
    >>> torch.count_nonzero(layer.weight).item() == middle.numel()
    True
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            middle = [size // 2 for size in layer.kernel_size]
            layer.weight.zero_()
            matrix = nn.init.orthogonal_(layer.weight.new_empty(layer.weight.shape[:2]), 2.0**0.5)
            layer.weight[:, :, middle[0], middle[1]] = matrix
