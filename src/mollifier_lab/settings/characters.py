"""From the characters of a word to its word vector, with a bidirectional LSTM and a deep tanh MLP (section 4.2 and appendix C.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mollifier_lab.settings.base import Optimizer, Range
from mollifier_lab.settings.recurrent import RecurrentSettings
from mollifier_lab.settings.reported import Reported


@dataclass(frozen=True, kw_only=True)
class Characters(RecurrentSettings, curve="valid_loss", headline="test_loss", target=0.2, chance=1.0):
    """Characters to word vectors, bidirectional LSTM and 5-layer tanh MLP."""

    # chance: the mean vector has this loss, because the vectors are standardised
    paper: ClassVar[tuple[Reported, ...]] = (
        Reported(
            {"plain": 0.148, "mollified": 0.128},
            "published curve at 80,000 updates, for vectors that are not public",
            {"words": 0, "valid": 10_000, "depth": 5},
            {"updates": 80_000},
            "training loss, other vectors",
        ),
    )
    search: ClassVar[dict[str, Range]] = {"lr": (1e-5, 1e-2, "log"), "gain": (0.5, 2.0, "linear")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "quick": {"words": 30_000, "width": 64, "valid": 2000, "updates": 1500, "evaluate_every": 100},
    }

    words: int = 0
    """Number of words to use, from the start of the file; 0: all."""
    valid: int = 10_000
    """Number of words for validation, and the same number for the test."""
    embedding: int = 32
    """Size of a character's vector."""
    width: int = 200
    """Units of the LSTM in each direction, and of the MLP's layers."""
    depth: int = 5
    """Layers of the MLP."""
    longest: int = 24
    """Words with more characters are left out."""
    optimizer: Optimizer = "rmsprop"
    lr: float = 6e-4
    momentum: float = 0.92
    batch: int = 64
    updates: int = 80_000
    evaluate_every: int = 1000

    def describe(self) -> str:
        """Say what is run.

        >>> Characters(words=30_000, width=64).describe()
        'characters to word vectors, bidirectional LSTM and 5-layer tanh MLP × 64, 30,000 words'
        """
        words = f", {self.words:,} words" if self.words else ""
        return f"characters to word vectors, bidirectional LSTM and {self.depth}-layer tanh MLP × {self.width}{words}"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the LSTM and of the MLP's hidden layers."""
        return self.depth + 1, self.width**2 * (self.depth + 9)

    def checks(self) -> list[tuple[str, str, bool]]:
        names = ("valid", "embedding", "width", "depth", "longest")
        found = [(name, "a whole number >= 1", getattr(self, name) >= 1) for name in names]
        return [*super().checks(), *found, ("words", "a whole number >= 0", self.words >= 0)]
