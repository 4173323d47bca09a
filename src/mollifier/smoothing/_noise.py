"""Draws of ξ that are never stored: a seed reproduces them block by block, for any chunk size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from mollifier.smoothing._kernels import Kernel, find_kernel

BLOCK = 4096  # numbers drawn from one seed, roughly; must not depend on the chunk


@dataclass(frozen=True)
class KernelNoise:
    """A set of draws, given by its seed. Created by `draw_noise`.

    Attributes:
        samples: The number of losses that they are for.
        antithetic: Whether they are pairs ξ, -ξ.
        kernel: The kernel that they are drawn from.
        seed: The seed that they come from.
    """

    samples: int
    antithetic: bool
    kernel: Kernel
    seed: int

    @property
    def units(self) -> int:
        """The number of independent draws: pairs, or samples."""
        return self.samples // 2 if self.antithetic else self.samples

    def rows(self, start: int, stop: int, columns: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return draws number start to stop - 1, one per row."""
        height = max(1, BLOCK // columns)
        parts = []
        for block in range(start // height, (stop - 1) // height + 1):
            generator = Generator(device=device).manual_seed((self.seed + block) % 2**32)
            drawn = self.kernel.draw((height, columns), generator, dtype)
            first = block * height
            parts.append(drawn[max(start - first, 0) : stop - first])
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def chunks(self, like: Mapping[str, Tensor], chunk: int | None) -> Iterator[Tensor]:
        """Yield all draws in order, in matrices of (units, numbers in ``like``)."""
        columns = sum(tensor.numel() for tensor in like.values())
        first = next(iter(like.values()))
        dtype = torch.float64 if any(t.dtype == torch.float64 for t in like.values()) else torch.float32
        if chunk is None:
            # measured on a CPU: many for few parameters, 64 for what no longer fits into its cache; at most 4 million numbers
            chunk = min(512, max(64, 2**18 // columns), 2**22 // columns)
        step = max(1, chunk // 2 if self.antithetic else chunk)
        for start in range(0, self.units, step):
            yield self.rows(start, min(start + step, self.units), columns, first.device, dtype)


def draw_noise(
    samples: int = 64,
    *,
    antithetic: bool = True,
    kernel: str | Kernel = "gaussian",
    generator: Generator | None = None,
) -> KernelNoise:
    """Create noise to use more than once: common random numbers for comparing losses.

        >>> import torch
        >>> from mollifier.smoothing import draw_noise, mollified_loss
        >>> noise, theta = draw_noise(samples=8), {"w": torch.zeros(3)}
        >>> loss = lambda p: p["w"].abs().sum()
        >>> torch.equal(mollified_loss(loss, theta, 0.1, noise=noise), mollified_loss(loss, theta, 0.1, noise=noise))
        True

    It contains a seed and no tensors. With the same parameters it gives the same draws, in any number of chunks.

    Args:
        samples: The number of losses; an even number if antithetic.
        antithetic: Whether to draw pairs ξ, -ξ.
        kernel: ``"gaussian"``, ``"bump"`` (exp(-1/(1 - x²)), smooth, with bounded support) or ``"uniform"``, each with variance 1.
        generator: The generator of the seed; by default torch's own.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples={samples!r}: expected a whole number above 0")
    if antithetic and samples % 2:
        raise ValueError(
            f"samples={samples}: antithetic samples come in pairs; give an even number or antithetic=False"
        )
    device = None if generator is None else generator.device
    seed = int(torch.randint(2**32, (), generator=generator, device=device))
    return KernelNoise(samples, antithetic, find_kernel(kernel), seed)


def split(rows: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return rows of numbers as tensors with the parameters' shapes and dtypes, with one more dimension in front for the rows."""
    sizes = [tensor.numel() for tensor in like.values()]
    parts = torch.split(rows, sizes, dim=-1)
    return {
        name: part.reshape(rows.shape[:-1] + tensor.shape).to(device=tensor.device, dtype=tensor.dtype)
        for part, (name, tensor) in zip(parts, like.items(), strict=True)
    }
