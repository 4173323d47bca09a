"""Penn Treebank, word by word: which word is next?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mollifier_lab.data import ptb
from mollifier_lab.data.folder import data_folder
from mollifier_lab.errors import LabError
from mollifier_lab.models import LanguageModel
from mollifier_lab.settings import Ptb
from mollifier_lab.tasks.base import Batch, Task

ROWS = 20  # parts of a text that are evaluated in parallel
NOTHING = -100  # cross_entropy ignores this label


class PtbTask(Task[Ptb]):
    """Windows of a text in `batch` parts, one after the other. The state is carried over them and starts again with each epoch.

    The annealer and the rows use the mean loss over words. Zaremba's loss, for which his learning rate and clipping are meant, is the
    sum over the steps of a window and the mean over the batch: `scale` turns the gradient into his.
    """

    def load(self, data: Path | None) -> None:
        found, given = ptb.load(data_folder(data)), self.settings
        self.words = len(found.vocabulary)
        self.texts = {"valid": found.valid, "test": found.test}
        self.rows = ptb.batchify(found.train[: given.tokens or None], given.batch)
        self.windows = (self.rows.shape[1] - 1) // given.steps
        if self.windows < 1:
            raise LabError(
                f"{self.rows.numel()} words in {given.batch} parts are less than a window of {given.steps} steps: "
                "give a smaller batch, fewer steps or more tokens"
            )
        self.scale = float(given.steps)
        self.carried: tuple[Tensor, Tensor] | None = None

    @property
    def epoch_length(self) -> int:
        return self.windows

    def model(self) -> nn.Module:
        given = self.settings
        return LanguageModel(
            self.words,
            width=given.width,
            layers=given.layers,
            gates=given.gates,
            init=given.init,
            **self.architecture(),
        )

    def batch(self, update: int) -> Batch:
        """Return words, the words after them, and for each row whether the state is carried over to it."""
        window = update % self.windows
        start, stop = window * self.settings.steps, (window + 1) * self.settings.steps
        keep = torch.full((len(self.rows),), float(window > 0))
        return self.rows[:, start:stop], self.rows[:, start + 1 : stop + 1], keep

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        words, targets, keep = batch
        state = None
        if self.carried is not None and bool(keep.any()):  # otherwise a new stream, whose time starts again
            state = tuple(part.to(words.device) * keep.view(1, -1, 1) for part in self.carried)
        logits, self.carried = model(words, state)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, device: torch.device) -> dict[str, float]:
        words, targets = stretches(self.texts[split].to(device), ROWS)
        total, state, steps = 0.0, None, self.settings.steps
        for some, truth in zip(torch.split(words, steps, 1), torch.split(targets, steps, 1), strict=True):
            logits, state = model(some, state)
            total += float(
                F.cross_entropy(logits.flatten(0, 1), truth.flatten(), ignore_index=NOTHING, reduction="sum")
            )
        mean = total / (len(self.texts[split]) - 1)
        return {"loss": mean, "perplexity": float(torch.tensor(mean).exp())}

    def lr_factor(self, update: int) -> float:
        epoch = update // self.windows
        return float(self.settings.decay ** max(0, epoch + 1 - self.settings.decay_after))

    def state_dict(self) -> dict[str, Any]:
        return {} if self.carried is None else {"h": self.carried[0].clone(), "c": self.carried[1].clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.carried = (state["h"].clone(), state["c"].clone()) if state else None


def stretches(text: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return words and the words after them, in a number of rows (or as many as there are words for): all of a text, with its end filled up.

    >>> stretches(torch.arange(5), 3)
    (tensor([[0, 1],
            [2, 3]]), tensor([[1, 2],
            [3, 4]]))
    """
    count = len(text) - 1
    length = -(-count // rows)
    rows = -(-count // length)
    missing = rows * length - count
    return (
        F.pad(text[:-1], (0, missing)).view(rows, length),
        F.pad(text[1:], (0, missing), value=NOTHING).view(rows, length),
    )
