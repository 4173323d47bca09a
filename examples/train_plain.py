"""40-bit parity with a plain 6-layer sigmoid network. Diff this file with train_mollified.py."""

import argparse
from collections.abc import Callable

import torch
from rich.progress import track
from torch import nn

Curve = list[tuple[int, float, float]]


def parity(samples: int = 1000, bits: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randint(0, 2, (samples, bits)).float()
    return 2 * x - 1, x.sum(1, keepdim=True) % 2


def network(bits: int = 40, width: int = 100, depth: int = 6, gain: float = 1.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for units in [bits] + [width] * (depth - 1):
        layers += [nn.Linear(units, width), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(width, 1))
    for layer in model[::2]:
        nn.init.xavier_uniform_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return model


@torch.no_grad()
def measure(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, criterion: Callable[..., torch.Tensor]
) -> tuple[float, float]:
    model.eval()
    logits = model(x)
    model.train()
    return float(criterion(logits, y)), float(((logits > 0) != (y > 0.5)).float().mean())


def train(seed: int = 0, *, updates: int = 2000, lr: float = 1.0, gain: float = 1.0) -> tuple[nn.Module, Curve]:
    torch.manual_seed(seed)
    x, y = parity()
    model = network(gain=gain)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.92, nesterov=True)
    curve: Curve = []
    for update in track(range(1, updates + 1), f"plain, gain {gain:g}, seed {seed}"):
        batch = torch.randint(len(x), (100,))
        loss = criterion(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if update % 50 == 0:
            curve.append((update, *measure(model, x, y, criterion)))
    curve.append((updates, *measure(model, x, y, criterion)))
    return model, curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gain", type=float, default=1.0, help="of the Glorot initialisation")
    torch.set_num_threads(1)  # layers this small are slower on two
    _, curve = train(**vars(parser.parse_args()))
    print(f"after {curve[-1][0]} updates: training loss {curve[-1][1]:.4f}, training error {curve[-1][2]:.1%}")
