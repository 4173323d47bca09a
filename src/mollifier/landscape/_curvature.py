"""Extreme eigenvalues of the Hessian by Lanczos, its trace by Hutchinson: products with the Hessian only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import grad, vjp

from mollifier.landscape._lab import track
from mollifier.landscape._objective import Objective
from mollifier.smoothing._noise import split


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest eigenvalue of the Hessian.

    Attributes:
        smallest: The smallest.
        largest: The largest.
        error: A bound on the error: the Hessian has eigenvalues at most this far from both.
        products: The number of products with the Hessian.
    """

    smallest: float
    largest: float
    error: float
    products: int


@dataclass(frozen=True)
class Trace:
    """An estimate of the trace of the Hessian, and its standard error."""

    value: float
    error: float


def hessian_product(objective: Objective) -> Callable[[Tensor], Tensor]:
    """Return a function that computes H v for a vector v of all parameters, chunk by chunk of the data.

    >>> import torch
    >>> from mollifier.landscape import hessian_product, objective
    >>> model, x, y = torch.nn.Linear(1, 1, bias=False), torch.ones(2, 1), torch.zeros(2, 1)
    >>> hessian_product(objective(model, torch.nn.functional.mse_loss, x, y))(torch.ones(1))
    tensor([2.])
    """

    def product(vector: Tensor) -> Tensor:
        total = torch.zeros_like(vector)
        v = split(vector, objective.parameters)
        for part, share in objective.parts:
            # reverse over reverse: forward over reverse fails for some pairs of loss and activation (ZeroTensor)
            pull = vjp(grad(part), objective.parameters)[1]
            total += share * _flat(pull(v)[0])
        return total

    return product


def extremes(
    objective: Objective,
    *,
    iterations: int = 100,
    tolerance: float = 1e-6,
    generator: Generator | None = None,
    progress: bool = False,
) -> Extremes:
    """Compute the smallest and largest eigenvalue of the Hessian, by Lanczos with full re-orthogonalisation.

        >>> import torch
        >>> from mollifier.landscape import extremes, objective
        >>> model = torch.nn.Linear(2, 1, bias=False).double()
        >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 3.0]]).double(), torch.zeros(2, 1).double()
        >>> found = extremes(objective(model, torch.nn.functional.mse_loss, x, y))
        >>> round(found.smallest, 6), round(found.largest, 6)
        (1.0, 9.0)

    Args:
        objective: The result of `objective`. In float64 the eigenvalues have many correct digits, in float32 an error of about 1e-5 of the largest.
        iterations: The largest number of products with the Hessian; each keeps a vector as long as the parameters.
        tolerance: Stop when the error of both is below this fraction of the larger one.
        generator: The generator of the first vector.
        progress: Whether to show a progress bar (needs rich).
    """
    if iterations < 1:
        raise ValueError(f"iterations={iterations}: expected at least 1")
    product = hessian_product(objective)
    first = _flat(objective.parameters)
    q = torch.randn(first.shape, generator=generator, dtype=first.dtype, device=first.device)
    basis = [q / q.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    found = Extremes(0.0, 0.0, 0.0, 0)
    for number in track(range(1, min(iterations, objective.size) + 1), "Lanczos", progress):
        w = product(basis[-1])
        diagonal.append(float(w @ basis[-1]))
        known = torch.stack(basis)
        for _ in range(2):  # twice is enough
            w = w - known.T @ (known @ w)
        length = float(w.norm())
        found = _ritz(diagonal, off_diagonal, length, number)
        size = max(abs(found.smallest), abs(found.largest), 1e-30)
        if found.error <= tolerance * size or length <= 1e-14 * size:  # converged, or q cannot reach more of the space
            break
        off_diagonal.append(length)
        basis.append(w / length)
    return found


def trace(
    objective: Objective, *, samples: int = 32, generator: Generator | None = None, progress: bool = False
) -> Trace:
    """Estimate the trace of the Hessian, by Hutchinson: the mean of vᵀ H v over vectors v of random signs.

        >>> import torch
        >>> from mollifier.landscape import objective, trace
        >>> model, x, y = torch.nn.Linear(1, 1, bias=False), torch.ones(2, 1), torch.zeros(2, 1)
        >>> trace(objective(model, torch.nn.functional.mse_loss, x, y), samples=4).value
        2.0

    Args:
        objective: The result of `objective`.
        samples: The number of vectors; two or more.
        generator: The generator of the vectors.
        progress: Whether to show a progress bar (needs rich).
    """
    if samples < 2:
        raise ValueError(f"samples={samples}: expected 2 or more, for a standard error")
    product = hessian_product(objective)
    first = _flat(objective.parameters)
    values = torch.zeros(samples, dtype=torch.float64)
    for number in track(range(samples), "Hutchinson", progress):
        signs = torch.randint(2, first.shape, generator=generator, device=first.device).to(first.dtype) * 2 - 1
        values[number] = float(signs @ product(signs))
    return Trace(float(values.mean()), float(values.std()) / samples**0.5)


def _ritz(diagonal: list[float], off_diagonal: list[float], length: float, number: int) -> Extremes:
    """Return the extreme eigenvalues of the tridiagonal matrix, and the larger of their residuals."""
    matrix = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if off_diagonal:
        off = torch.tensor(off_diagonal, dtype=torch.float64)
        matrix += torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    error = length * max(abs(float(vectors[-1, 0])), abs(float(vectors[-1, -1])))
    return Extremes(float(values[0]), float(values[-1]), error, number)


def _flat(vector: dict[str, Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in vector.values()])
