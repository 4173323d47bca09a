"""Noise that is drawn once and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class FrozenNoise:
    """Noise drawn once for each shape and then kept, so that every call computes the same function, as curvature tools need.

        >>> import torch
        >>> from mollifier.functional import normal_like
        >>> frozen, x = FrozenNoise(seed=0), torch.zeros(3)
        >>> torch.equal(frozen.draw(normal_like, x), frozen.draw(normal_like, x))
        True

    Normal and uniform draws, draws of different shapes, and draws of different parts are independent of one another.

    Args:
        seed: The seed of all noise in a model.
        part: The number of the part of the model that this noise belongs to.
    """

    def __init__(self, seed: int, part: int = 0) -> None:
        self.seed, self.part = seed, part
        self.kept: dict[tuple[Any, ...], Tensor] = {}

    def draw(self, draw: Callable[[Tensor, torch.Generator], Tensor], like: Tensor) -> Tensor:
        key = (draw.__name__, tuple(like.shape), like.dtype, like.device)
        if key not in self.kept:
            generator = torch.Generator(device=like.device).manual_seed(self._seed_of(*key[:2]))
            self.kept[key] = draw(like.detach(), generator)
        return self.kept[key]

    def _seed_of(self, kind: str, shape: tuple[int, ...]) -> int:
        # Hashed, because two draws that start from the same seed use the same random bits and so depend on one another.
        text = repr((self.seed, self.part, kind, shape))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
