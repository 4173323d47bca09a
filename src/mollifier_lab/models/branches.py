"""Layers with a connection around them: residual, highway, stochastic depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from mollifier.nn._annealed import with_zero_gradients


class Survival(nn.Module):
    """Stochastic depth (Huang et al. 2016): add a branch with a probability; in eval() scale it by that probability.

        >>> half = Survival(0.5).eval()
        >>> half.add(torch.ones(1), lambda: torch.ones(1), [])
        tensor([1.5000])

    Args:
        probability: The probability that the branch is kept; 1: always.
        per_sample: Whether to draw once per sample instead of once per batch.
    """

    def __init__(self, probability: float = 1.0, *, per_sample: bool = False) -> None:
        super().__init__()
        self.probability, self.per_sample = probability, per_sample

    def add(self, short: Tensor, branch: Callable[[], Tensor], parameters: Iterable[nn.Parameter]) -> Tensor:
        """Return short plus the branch, if the branch survives. Otherwise its parameters get a gradient of zero, which DDP waits for."""
        if self.probability >= 1.0:
            return short + branch()
        if not self.training:
            return torch.add(short, branch(), alpha=self.probability)
        if self.per_sample:
            shape = (len(short), *(1,) * (short.dim() - 1))
            keep = torch.rand(shape, device=short.device) < self.probability
            return short + keep.to(short.dtype) * branch()
        if float(torch.rand(())) < self.probability:  # on the host, so that nothing waits for an accelerator
            return short + branch()
        return with_zero_gradients(short, list(parameters))

    def extra_repr(self) -> str:
        return f"{self.probability:g}, {'per sample' if self.per_sample else 'per batch'}"


def survivals(count: int, last: float, *, per_sample: bool = False) -> list[Survival]:
    """Return probabilities that fall linearly from 1 at the input, which is not a branch, to that of the last branch.

    >>> [each.probability for each in survivals(4, last=0.5)]
    [0.875, 0.75, 0.625, 0.5]
    """
    return [Survival(1.0 - number / count * (1.0 - last), per_sample=per_sample) for number in range(1, count + 1)]


class Residual(nn.Module):
    """Return x + body(x), if the body survives."""

    def __init__(self, body: nn.Module, survival: Survival | None = None) -> None:
        super().__init__()
        self.body = body
        self.survival = survival or Survival()

    def forward(self, x: Tensor) -> Tensor:
        return self.survival.add(x, lambda: self.body(x), self.body.parameters())


class ResidualRecurrent(Residual):
    """Return the same around a recurrent layer: (x + output, state). The state of a layer that is dropped still advances in time."""

    def forward(  # type: ignore[override]
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        out, state = self.body(x, state)
        return self.survival.add(x, lambda: out, self.body.parameters()), state


class Highway(nn.Module):
    """T · body(x) + (1 - T) · x, with T = sigmoid(gate(x)) (Srivastava et al. 2015); the gate starts nearly closed."""

    def __init__(self, body: nn.Module, width: int, bias: float = -2.0) -> None:
        super().__init__()
        self.body = body
        self.gate = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.constant_(self.gate.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, self.body(x), torch.sigmoid(self.gate(x)))
