"""CIFAR-10 with a ResNet, trained as in Huang et al. 2016 (section 4.1 and appendix C.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mollifier_lab.settings.base import Optimizer, Range, Settings
from mollifier_lab.settings.reported import Reported


@dataclass(frozen=True, kw_only=True)
class Cifar10(Settings, curve="valid_error", headline="test_error", target=0.2, chance=0.9):
    """CIFAR-10, ResNet-110 (20, 32, 56)."""

    paper: ClassVar[tuple[Reported, ...]] = (
        Reported(
            {"residual": 0.0822, "stochastic-depth": 0.0675, "mollified-residual": 0.0755},
            "table, early stopping on validation over 500 epochs",
            {"depth": 110, "width": 16, "train": 45_000},
            {"epochs": 500.0},
            "early-stopped: compare with best",
        ),
    )
    search: ClassVar[dict[str, Range]] = {"lr": (1e-2, 1.0, "log"), "weight_decay": (1e-5, 1e-3, "log")}
    knobs: ClassVar[dict[str, Range]] = {"k": (0.3, 100.0, "log")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "quick": {"depth": 20, "width": 8, "train": 5000, "epochs": 5.0, "k": 2.0},
    }

    depth: Literal[20, 32, 56, 110] = 110
    """Layers of the ResNet."""
    width: int = 16
    """Channels of the first stage; they double twice."""
    normalised: bool = True
    """Use batch normalisation. Without it, method plain is the plain twin of the ResNet: only convolutions and ReLUs."""
    init: Literal["he", "delta-orthogonal"] = "he"
    """Initial weights of the convolutions. he: He's. delta-orthogonal: an orthogonal matrix in the middle of each kernel and zeros around it (Xiao et al. 2018), so that a deep chain of convolutions neither shrinks nor stretches its signal."""
    train: int = 45_000
    """Training images, at most 45,000; the other 5,000 are for validation."""
    optimizer: Optimizer = "nesterov"
    weight_decay: float = 1e-4
    batch: int = 128
    epochs: float = 500.0
    k: float = 1000.0
    recalibrate: int = 20
    """Batches of training data on which the statistics of batch norm are measured again before an evaluation at a changed level; 0: never."""

    def describe(self) -> str:
        """Say what is run.

        >>> Cifar10(depth=20, width=8, train=5000).describe()
        'CIFAR-10, ResNet-20 from 8 channels, 5,000 training images'
        """
        return f"CIFAR-10, ResNet-{self.depth} from {self.width} channels, {self.train:,} training images"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the convolutions."""
        return self.depth, 50 * (self.depth - 2) * self.width**2

    def checks(self) -> list[tuple[str, str, bool]]:
        return [
            ("width", "a whole number >= 1", self.width >= 1),
            ("train", "a whole number from 1 to 45000", 1 <= self.train <= 45_000),
            ("recalibrate", "a whole number >= 0", self.recalibrate >= 0),
        ]
