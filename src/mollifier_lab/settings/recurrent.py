"""Settings of the tasks with recurrent layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mollifier_lab.settings.base import Settings


@dataclass(frozen=True, kw_only=True)
class RecurrentSettings(Settings):
    """How the gates of LSTMs are mollified; the names are those of `mollifier.nn.RecurrentOptions`."""

    gates: Literal["hard-sigmoid", "sigmoid"] = "hard-sigmoid"
    """Gates of the LSTM."""
    unbiased_gates: bool = False
    """Mix a gate with its target instead of pushing it there. Only for methods with mollified gates."""
    time: Literal["position", "annealing"] = "position"
    """The meaning of t in the gates' 1/t: the position in the sequence, or the annealing step. Only for methods with mollified gates."""
    time_cap: int = 0
    """t never exceeds it; 0: no cap. Only for methods with mollified gates."""

    def checks(self) -> list[tuple[str, str, bool]]:
        return [("time_cap", "a whole number >= 0", self.time_cap >= 0)]
