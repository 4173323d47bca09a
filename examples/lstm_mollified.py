"""A character-level language model of 8 LSTM layers, mollified. Compare it with its plain twin, lstm_plain.py.

Hardware: one core of a CPU. Time: about 10 s for both twins. Expect: validation loss in nats per character 0.37 (letters alone: 2.65).
"""

# %% The data: sentences of a small grammar, in which verbs agree with their subjects, as a stream of characters
import random

import torch
from torch import nn

import mollifier

NOUNS, VERBS, ADJECTIVES = (
    ("cat", "dog", "bird", "fish", "horse"),
    ("see", "chase", "like", "know"),
    ("small", "red", "old", "quick"),
)


def sentence(draw: random.Random) -> str:
    plural, adjectives = draw.random() < 0.5, [draw.choice(ADJECTIVES) for _ in range(draw.randint(0, 3))]
    subject, verb, thing = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)
    words = ["these", *adjectives, f"{subject}s", verb] if plural else ["this", *adjectives, subject, f"{verb}s"]
    return " ".join([*words, "the", f"{thing}. "])


DRAW = random.Random(0)
TEXT = "".join(sentence(DRAW) for _ in range(6000))
SYMBOLS = sorted(set(TEXT))
STREAM = torch.tensor([SYMBOLS.index(letter) for letter in TEXT])
TRAIN, VALID = STREAM[:-9601], STREAM[-9601:]


# %% The network
class Language(nn.Module):
    def __init__(self, width: int = 32, layers: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(SYMBOLS), width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.output = nn.Linear(width, len(SYMBOLS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.output(self.lstm(self.embedding(text))[0])


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


# %% The training: returns the loss of every update, and the plain network's loss on other sentences, in nats per character
def train(updates: int = 500, seed: int = 1) -> tuple[list[float], float]:
    torch.manual_seed(seed)
    model = Language()
    model = mollifier.mollify(model)
    annealer = mollifier.Annealer(model, horizon=0.75 * updates)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(updates):
        starts = torch.randint(len(TRAIN) - 33, (16,))
        loss = loss_of(model, torch.stack([TRAIN[start : start + 33] for start in starts]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
    model = mollifier.restore(model)
    with torch.no_grad():
        return losses, loss_of(model, VALID.unfold(0, 33, 32)).item()


# %%
if __name__ == "__main__":
    torch.set_num_threads(1)  # layers this small are slower on several
    losses, valid = train()
    print(f"validation loss {valid:.2f} nats per character; letters without their context have 2.65")
