"""The adding problem (Hochreiter and Schmidhuber 1997): memory over long times. The paper does not have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from mollifier_lab.settings.base import Optimizer, Range
from mollifier_lab.settings.recurrent import RecurrentSettings


@dataclass(frozen=True, kw_only=True)
class Adding(RecurrentSettings, curve="valid_loss", headline="test_loss", target=0.01, chance=1.0 / 6.0):
    """Adding problem, 100 to 400 steps, tanh RNN, GRU or LSTM."""

    search: ClassVar[dict[str, Range]] = {"lr": (1e-4, 1e-2, "log")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "quick": {"steps": 30, "width": 32, "updates": 1000, "evaluate_every": 100, "k": 30.0},
    }

    steps: int = 100
    """Length of a sequence."""
    cell: Literal["rnn", "gru", "lstm"] = "rnn"
    """A tanh RNN, or torch's GRU or LSTM."""
    width: int = 100
    """Units."""
    init: Literal["torch", "orthogonal"] = "torch"
    """Initial recurrent weights: torch's default, or an orthogonal matrix for each gate."""
    gates: Literal["hard-sigmoid", "sigmoid"] = "sigmoid"
    optimizer: Optimizer = "adam"
    lr: float = 1e-3
    clip: float = 1.0
    batch: int = 50
    updates: int = 5000
    evaluate_every: int = 500

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the recurrent weights."""
        return 1, {"rnn": 1, "gru": 3, "lstm": 4}[self.cell] * self.width**2

    def checks(self) -> list[tuple[str, str, bool]]:
        return [
            *super().checks(),
            ("steps", "a whole number >= 2", self.steps >= 2),
            ("width", "a whole number >= 2", self.width >= 2),
            ("gates", "'sigmoid': a tanh RNN has no gates", self.gates == "sigmoid" or self.cell != "rnn"),
        ]
