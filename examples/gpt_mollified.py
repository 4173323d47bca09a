"""A stack of 6 GPT blocks without residual connections, mollified. Compare it with its plain twin, gpt_plain.py.

Hardware: one core of a CPU. Time: about 30 s for both twins. Expect: validation loss in nats per character 0.85 (letters alone: 2.65).
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
TRAIN, VALID = STREAM[:-3201], STREAM[-3201:]


# %% The network: attention, then an MLP, each with a layer norm before it and no shortcut around it
class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, steps, width = x.shape
        q, k, v = self.attention(self.first(x)).view(rows, steps, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.mlp(self.second(self.mix(seen.transpose(1, 2).reshape(rows, steps, width))))


class GPT(nn.Module):
    def __init__(self, width: int = 32, blocks: int = 6, steps: int = 32) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(SYMBOLS), width), nn.Embedding(steps, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.output = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(SYMBOLS)))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.output(self.blocks(self.letters(text) + self.places.weight[: text.shape[1]]))


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


# %% The training: returns the loss of every update, and the plain network's loss on other sentences, in nats per character
def train(updates: int = 800, seed: int = 1) -> tuple[list[float], float]:
    torch.manual_seed(seed)
    model = GPT()
    model = mollifier.mollify(model, blocks=["blocks.*"])
    annealer = mollifier.Annealer(model, horizon=0.75 * updates)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
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
