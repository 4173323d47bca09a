"""Pentomino: are the three shapes of an image the same? (section 4.1 and appendix C.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mollifier_lab.settings.base import Optimizer, Range, Settings
from mollifier_lab.settings.reported import Reported


@dataclass(frozen=True, kw_only=True)
class Pentomino(Settings, curve="valid_error", headline="test_error", target=0.35, chance=0.5):
    """Pentomino 80k, 6×200 sigmoid MLP."""

    paper: ClassVar[tuple[Reported, ...]] = (
        Reported(
            {"residual": 0.305, "mollified-residual": 0.2485},
            "text, after 100 epochs",
            {"train": 80_000, "width": 200, "depth": 6, "activation": "sigmoid"},
            {"epochs": 100.0},
        ),
    )
    search: ClassVar[dict[str, Range]] = {"lr": (0.02, 0.5, "log"), "gain": (1.0, 4.0, "linear")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "trial": {"lr": 0.25, "k": 50.0, "epochs": 50.0},
        "quick": {"train": 20_000, "lr": 0.25, "k": 50.0, "epochs": 4.0},
    }

    train: int = 80_000
    """Training images, at most 80,000."""
    width: int = 200
    """Units per layer."""
    depth: int = 6
    """Layers."""
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"
    """Activation of the hidden units."""
    lr: float = 1e-3
    momentum: float = 0.9
    optimizer: Optimizer = "sgd"
    epochs: float = 100.0

    def describe(self) -> str:
        """Say what is run.

        >>> Pentomino(train=20_000).describe()
        'Pentomino 20k, 6×200 sigmoid MLP'
        """
        images = f"{self.train // 1000}k" if self.train % 1000 == 0 else f"{self.train:,}"
        return f"Pentomino {images}, {self.depth}×{self.width} {self.activation} MLP"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the hidden ones."""
        return self.depth, self.width * (4096 + (self.depth - 1) * self.width)

    def checks(self) -> list[tuple[str, str, bool]]:
        found = [(name, "a whole number >= 1", getattr(self, name) >= 1) for name in ("width", "depth")]
        return [*found, ("train", "a whole number from 1 to 80000", 1 <= self.train <= 80_000)]
