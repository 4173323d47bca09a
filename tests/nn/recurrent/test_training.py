"""Training without the copy, as the paper does: stable by default, where the odds explode."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from mollifier.nn import HardSigmoidLSTM, RecurrentOptions

WORDS, WIDTH, BATCH, STEPS, UPDATES = 50, 64, 20, 20, 100
EXPLODED = 1e10


class Model(nn.Module):
    """Zaremba's language model, small."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = HardSigmoidLSTM(WIDTH, WIDTH, num_layers=2)
        self.output = nn.Linear(WIDTH, WORDS)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def forward(self, words: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, (a, b) = self.lstm(self.embedding(words), state)
        return self.output(h), (a.detach(), b.detach())


def losses(options: RecurrentOptions, seed: int) -> list[float]:
    """Of words by Zipf's law, with Zaremba's learning rate and clipping, up to an explosion; v is fixed, so that the levels are the same for both."""
    torch.manual_seed(seed)
    model = mollifier.mollify(Model(), recurrent=options)
    words = torch.multinomial(1.0 / torch.arange(1, WORDS + 1), BATCH * (UPDATES * STEPS + 1), replacement=True)
    text = words.view(-1, BATCH)
    annealer = mollifier.Annealer(model, k=3000.0, loss_average=None)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    state, found = None, []
    for start in range(0, UPDATES * STEPS, STEPS):
        logits, state = model(text[start : start + STEPS], state)
        loss = F.cross_entropy(logits.flatten(0, 1), text[start + 1 : start + STEPS + 1].flatten())
        optimizer.zero_grad()
        (STEPS * loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        annealer.step(loss)
        found.append(float(loss.detach()))
        if found[-1] > EXPLODED:
            break
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_trains_without_the_copy(seed: int) -> None:
    stable = losses(RecurrentOptions(copy=False), seed)
    assert max(stable) < 20
    assert sum(stable[-20:]) / 20 < 5


def test_the_odds_explode_there() -> None:
    # with native draws every one of these seeds explodes; with those of the reference, seed 0 stays below 10
    exploded = 0
    for seed in range(4):
        exploded += losses(RecurrentOptions(copy=False, push="odds"), seed)[-1] > EXPLODED
        if exploded == 3:
            return
    raise AssertionError(f"{exploded} of 4 seeds exploded, expected 3")
