"""40-bit parity with a deep sigmoid MLP (section 4.1 and appendix C.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from mollifier_lab.settings.base import Range, Settings
from mollifier_lab.settings.reported import Reported


@dataclass(frozen=True, kw_only=True)
class Parity(Settings, curve="train_nll", headline="train_nll", target=0.2, chance=math.log(2.0)):
    """40-bit parity, 6×200 sigmoid MLP."""

    # read off the published curve: plain stays at 0.78, mollified has 0.02 by 40k updates, residual + batch norm 0.05 by 57k
    paper: ClassVar[tuple[Reported, ...]] = (
        Reported(
            {"plain": 0.78, "mollified": 0.02, "residual-bn": 0.05},
            "figure of the published version, 102,000 updates",
            {"kind": "fixed", "bits": 40, "depth": 6, "width": 200, "activation": "sigmoid"},
            {"updates": 40_000},
        ),
    )
    search: ClassVar[dict[str, Range]] = {"lr": (1e-3, 3.0, "log"), "gain": (1.0, 4.0, "linear")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "quick": {"width": 100, "batch": 100, "samples": 1000, "lr": 1.0, "k": 10.0, "updates": 2000, "evaluate_every": 50, "save_every": 500},
        "variable": {"kind": "variable", "bits": 20, "lr": 0.1, "k": 20.0, "updates": 4000, "evaluate_every": 100},
        "prefix": {"kind": "prefix", "bits": 20, "lr": 0.1, "k": 20.0, "updates": 4000, "evaluate_every": 100},
    }  # fmt: skip

    kind: Literal["fixed", "fresh", "variable", "prefix"] = "fixed"
    """A fixed training set, or new samples at every update: of all inputs, of a variable number of inputs, or of a variable number of the first inputs."""
    bits: int = 40
    """Inputs."""
    samples: int = 2000
    """Size of the fixed training set (the paper does not give it)."""
    width: int = 200
    """Units per layer."""
    depth: int = 6
    """Layers."""
    activation: Literal["sigmoid", "tanh", "relu"] = "sigmoid"
    """Activation of the hidden units."""
    lr: float = 1e-3
    momentum: float = 0.92
    updates: int = 102_000
    evaluate_every: int = 500

    def describe(self) -> str:
        """Say what is run.

        >>> Parity(bits=8, depth=2, width=16).describe()
        '8-bit parity, 2×16 sigmoid MLP'
        """
        kind = {
            "fixed": "",
            "fresh": " with new samples at every update",
            "variable": " of variable length",
            "prefix": " of a prefix",
        }[self.kind]
        bits = f"up to {self.bits}" if self.kind in ("variable", "prefix") else str(self.bits)
        return f"{bits}-bit parity{kind}, {self.depth}×{self.width} {self.activation} MLP"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the hidden ones."""
        return self.depth, self.width * (self.bits + (self.depth - 1) * self.width)

    def checks(self) -> list[tuple[str, str, bool]]:
        names = ("bits", "samples", "width", "depth")
        found = [(name, "a whole number >= 1", getattr(self, name) >= 1) for name in names]
        return [*found, ("v", "'train' or 'one': parity has no validation set", self.v != "valid")]
