"""Seeds from torch's generator, and the noise that the operators make of one: a hash of the seed and the element's number."""

from __future__ import annotations

import torch
from torch import Tensor

from mollifier.ops._operator import OPERATORS, define, fake, implement

_LOW = 0xFFFFFFFF


def draw_seeds(count: int) -> Tensor:
    """So many seeds of 63 bits from torch's own generator, so that its seed decides all noise. Every thread gets its own."""
    return torch.randint(0, 2**63 - 1, (count,), dtype=torch.int64, device="cpu")


define("noise(Tensor seed, int count) -> (Tensor, Tensor)")


def noise(seed: int | Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The |ξ| and the uniform draws that the operators make of a seed.

    >>> import mollifier
    >>> normal, uniform = mollifier.ops.noise(seed=1, count=1000)
    >>> assert (normal >= 0).all() and (uniform < 1).all()
    """
    found: tuple[Tensor, Tensor] = OPERATORS.noise(torch.as_tensor(seed, dtype=torch.int64), count)
    return found


def _mixed(seed: int) -> tuple[int, int]:
    """The two words that a seed becomes (splitmix64), as `seed_of` in noise.h has it."""
    wide = (1 << 64) - 1
    s = (seed + 0x9E3779B97F4A7C15) & wide
    s = ((s ^ (s >> 30)) * 0xBF58476D1CE4E5B9) & wide
    s = ((s ^ (s >> 27)) * 0x94D049BB133111EB) & wide
    s ^= s >> 31
    return s & _LOW, s >> 32


def _reference(seed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The hash of noise.h in torch's operations, and |ξ| by the inverse of its distribution."""
    low, high = _mixed(int(seed))
    x = (torch.arange(count, device=seed.device) + low) & _LOW
    for shift, factor, more in ((17, 0xED5AD4BB, high), (11, 0xAC4C1B51, 0), (15, 0x31848BAB, 0)):
        x = ((x ^ (x >> shift)) * factor & _LOW) ^ more
    x = x ^ (x >> 14)
    middles = ((x & 0xFFFF).double() + 0.5) / 65536.0
    return (2.0**0.5 * torch.erfinv(middles)).float(), (x >> 16).float() / 65536.0


def _fake(seed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return torch.empty(count), torch.empty(count)


implement("noise", _reference, "CompositeExplicitAutograd")
fake("noise", _fake)
