"""Penn Treebank, word by word, with a stack of hard-sigmoid LSTMs in Zaremba's small setting (section 4.2 and appendix C.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mollifier_lab.settings.base import Optimizer, Range
from mollifier_lab.settings.recurrent import RecurrentSettings
from mollifier_lab.settings.reported import Reported

_FULL = {"width": 200, "gates": "hard-sigmoid", "tokens": 0}


@dataclass(frozen=True, kw_only=True)
class Ptb(RecurrentSettings, curve="valid_perplexity", headline="test_perplexity", target=150.0, chance=10_000.0):
    """Penn Treebank word by word, 2 or 3 LSTM layers × 200."""

    # chance: all words of the vocabulary are equally likely
    paper: ClassVar[tuple[Reported, ...]] = (
        Reported(
            {"plain": 128.4, "paper-lstm": 123.6, "mollified": 123.6}, "table", {"layers": 2} | _FULL, {"epochs": 13.0}
        ),
        Reported(
            {"plain": 119.4, "paper-lstm": 115.7, "mollified": 115.7},
            "table of the published version",
            {"layers": 3} | _FULL,
            {"epochs": 13.0},
        ),
    )
    search: ClassVar[dict[str, Range]] = {"lr": (0.1, 3.0, "log"), "decay": (0.4, 0.9, "linear")}
    knobs: ClassVar[dict[str, Range]] = {"k": (0.3, 100.0, "log")}
    presets: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "published": {"layers": 3},
        "quick": {"tokens": 100_000, "epochs": 3.0, "decay_after": 2},
    }

    layers: int = 2
    """Recurrent layers: 2 in the paper, 3 in its published version (119.4 plain, 115.7 mollified)."""
    width: int = 200
    """Units per layer, and of the word embedding."""
    tokens: int = 0
    """Number of words of the training text to use; 0: all."""
    steps: int = 20
    """Length of a window of truncated back-propagation."""
    decay: float = 0.5
    """Factor on the learning rate for each epoch after `decay_after`."""
    decay_after: int = 4
    """Epochs at the full learning rate."""
    init: float = 0.1
    """Weights are drawn from U(-init, init)."""
    carry_time: bool = False
    """Let the position continue over the windows of a text. Only for methods with mollified gates."""
    optimizer: Optimizer = "sgd"
    lr: float = 1.0
    momentum: float = 0.0
    clip: float = 5.0
    batch: int = 20
    epochs: float = 13.0
    k: float = 10.0

    def describe(self) -> str:
        """Say what is run.

        >>> Ptb(tokens=100_000).describe()
        'Penn Treebank word by word, 2 LSTM layers × 200, 100,000 words of training text'
        """
        words = f", {self.tokens:,} words of training text" if self.tokens else ""
        return f"Penn Treebank word by word, {self.layers} LSTM layer{'' if self.layers == 1 else 's'} × {self.width}{words}"

    def network_size(self) -> tuple[int, int]:
        """Return the layers, and the weights of the recurrent ones."""
        return self.layers, 8 * self.layers * self.width**2

    def checks(self) -> list[tuple[str, str, bool]]:
        names = ("layers", "width", "steps")
        return [
            *super().checks(),
            ("carry_time", "false where time is 'annealing'", not self.carry_time or self.time == "position"),
            *((name, "a whole number >= 1", getattr(self, name) >= 1) for name in names),
            ("tokens", "a whole number >= 0", self.tokens >= 0),
            ("decay", "a number in (0, 1]", 0 < self.decay <= 1),
            ("init", "a positive number", self.init > 0),
        ]
