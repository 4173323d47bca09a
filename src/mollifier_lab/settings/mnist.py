"""MNIST with deep, thin sigmoid and tanh MLPs (section 4.1 and appendix C.1; the published version's 72 layers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mollifier_lab.settings.base import Optimizer, Range, Settings


@dataclass(frozen=True, kw_only=True)
class Mnist(Settings, curve="valid_error", headline="test_error", target=0.1, chance=0.9):
    """MNIST, deep thin sigmoid or tanh MLPs, 6 to 72 layers × 100."""

    search: ClassVar[dict[str, Range]] = {"lr": (1e-5, 1e-2, "log"), "gain": (1.0, 4.0, "linear")}
    knobs: ClassVar[dict[str, Range]] = {"k": (10.0, 10_000.0, "log")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "published": {"depth": 72, "optimizer": "adam", "lr": 3e-4, "c": 100.0},
        "quick": {"depth": 10, "batch": 100, "optimizer": "adam", "lr": 1e-3, "epochs": 3.0},
    }

    depth: int = 6
    """Layers; 72 in the published version."""
    width: int = 100
    """Units per layer."""
    activation: Literal["sigmoid", "tanh", "relu", "hard-sigmoid", "step"] = "sigmoid"
    """Activation of the hidden units; step has the derivative of its Gaussian smoothing."""
    init: Literal["glorot", "orthogonal", "lsuv", "centred", "isometric", "dks"] = "glorot"
    """Initial weights of the hidden layers, multiplied by the gain. glorot: Glorot's. orthogonal: orthogonal matrices. lsuv: orthogonal matrices, scaled layer by layer to unit variance on a batch. centred: Glorot's, with biases that remove the mean of a sigmoid's output. isometric: orthogonal matrices with these biases, divided by the activation's slope, so that gain 1 neither shrinks nor stretches a small signal. dks: orthogonal matrices, and activations tailored by Deep Kernel Shaping (plain networks of sigmoid or tanh units; needs the extra frontier)."""
    lr_end: float = 1.0
    """Fraction of the learning rate that is left at the end of its geometric decay; 1: constant."""
    lr_over: float = 0.8
    """Fraction of the updates over which the learning rate decays; it is constant afterwards."""
    optimizer: Optimizer = "rmsprop"
    lr: float = 4e-4
    momentum: float = 0.0
    batch: int = 500
    epochs: float = 100.0
    k: float = 1000.0

    def describe(self) -> str:
        """Say what is run.

        >>> Mnist(depth=10).describe()
        'MNIST, 10×100 sigmoid MLP'
        """
        return f"MNIST, {self.depth}×{self.width} {self.activation} MLP"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the hidden ones."""
        return self.depth, self.width * (784 + (self.depth - 1) * self.width)

    def checks(self) -> list[tuple[str, str, bool]]:
        return [
            *((name, "a whole number >= 1", getattr(self, name) >= 1) for name in ("width", "depth")),
            ("lr_end", "a number in (0, 1]", 0 < self.lr_end <= 1),
            ("lr_over", "a number in (0, 1]", 0 < self.lr_over <= 1),
        ]
