"""What the steps of eager recurrent layers are made of: gates held at their targets, and the tanh pushed toward its tangent."""

from __future__ import annotations

import torch
from torch import Tensor

from mollifier.activations import activation
from mollifier.functional import HALF_NORMAL_MEAN, inverse_sigmoid
from mollifier.kernels._eager_noise import draw, normals
from mollifier.kernels._eager_push import ENDLESS, pushed
from mollifier.kernels._library import draw_seed
from mollifier.kernels._recurrent import Cell


def noise(z: Tensor, parts: int, cell: Cell) -> Tensor | None:
    """|ξ| of all rows, (rows, parts, hidden), in one call."""
    if not cell.gates and not cell.activations:
        return None
    if cell.expected:
        return z.new_full((len(z), parts, z.shape[2]), HALF_NORMAL_MEAN)
    bits = draw(draw_seed(), (len(z), parts, z.shape[2]))
    return normals(bits, z.dtype)


def order(cell: Cell) -> range:
    """The steps in the order of reading."""
    return range(len(cell.sizes) - 1, -1, -1) if cell.reverse else range(len(cell.sizes))


class Held:
    """The pull of all gates toward their targets: pre-activations become ``lerp(z, aim, weight)``; the tanh's are doubled.

    Doubled, since tanh(z) = 2 sigmoid(2 z) - 1, so that one sigmoid serves all parts.
    """

    def __init__(
        self, z: Tensor, parts: tuple[str | None, ...], xi: Tensor | None, time: Tensor | None, cell: Cell
    ) -> None:
        self.cell, tanh = cell, parts.index(None)
        self.aim, self.weight = z.new_zeros(1, len(parts), 1), z.new_zeros(1, len(parts), 1)
        if cell.gates and xi is not None and time is not None:
            aims = [_aim(name, time.detach().to(z.dtype).expand(len(z), 1), cell.hard) for name in parts]
            self.aim = torch.stack(aims, 1)
            self.weight = xi.mul_(cell.level / HALF_NORMAL_MEAN)
        self.weight[:, tanh] = -1.0
        self.tanh = tanh

    def steps(self) -> list[tuple[Tensor, Tensor]]:
        """Aim and weight of each step."""
        if len(self.weight) == 1:
            return [(self.aim, self.weight)] * len(self.cell.sizes)
        return list(zip(torch.split(self.aim, self.cell.sizes), torch.split(self.weight, self.cell.sizes), strict=True))

    def values(self, z: Tensor, aim: Tensor, weight: Tensor, out: Tensor) -> None:
        """Gates, and of the tanh's part the sigmoid."""
        torch.lerp(z, aim, weight, out=out)
        if self.cell.hard:
            tanh = torch.sigmoid(out[:, self.tanh]) if self.tanh < out.shape[1] else None
            out.mul_(0.25).add_(0.5).clamp_(0.0, 1.0)
            if tanh is not None:
                out[:, self.tanh] = tanh
        else:
            out.sigmoid_()

    def slope(self, part: int, value: Tensor, out: Tensor) -> Tensor:
        """Derivative of a gate by its pre-activation."""
        if self.cell.hard:
            torch.logical_and(value > 0.0, value < 1.0, out=out).mul_(0.25)
        else:
            torch.addcmul(value, value, value, value=-1.0, out=out)
        return out.mul_(1.0 - self.weight[:, part])


def _aim(name: str | None, inverse_t: Tensor, hard: bool) -> Tensor:
    """The pre-activation that a gate is held at."""
    if name is None:
        return torch.zeros_like(inverse_t)
    gamma = {"one": torch.ones_like(inverse_t), "inverse": inverse_t, "rest": 1.0 - inverse_t}[name]
    return 4.0 * (gamma - 0.5) if hard else inverse_sigmoid(gamma)


class Candidate:
    """ψ of the tanh, step by step into buffers, and its derivatives for all steps at once."""

    def __init__(self, a: Tensor | None, xi: Tensor | None, like: Tensor, cell: Cell) -> None:
        self.a, self.cell = a, cell
        self.push = None if xi is None or a is None else xi.mul_(cell.strength)
        self.pushes = None if self.push is None else torch.split(self.push, cell.sizes)
        self.minus_one = like.new_full((), -1.0)

    def value(self, step: int, x: Tensor, sigmoid: Tensor, out: Tensor) -> Tensor:
        """ψ(x), given the sigmoid of 2 x, which is overwritten."""
        if self.cell.line and self.a is not None:
            return x
        torch.add(self.minus_one, sigmoid, alpha=2.0, out=out)
        if self.a is None or self.pushes is None:
            return out
        scale = torch.sub(x, out, out=sigmoid).mul_(self.a).sigmoid_().sub_(0.5).square_()
        push = self.pushes[step]
        low = torch.addcmul(out, scale, push, value=-1.0)
        return torch.clamp(x, low, out.addcmul_(scale, push), out=out)

    def all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, derivatives by x and by |a|."""
        if self.a is None or self.push is None:
            f = torch.tanh(x)
            return f, f.square().neg_().add_(1.0), None
        value, by_x, by_a = pushed(
            x, self.push, self.a, activation("tanh"), (1.0, ENDLESS if self.cell.line else 0.0), True
        )
        return value, by_x, by_a
