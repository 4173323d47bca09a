"""Train the network of the interactive page and its plain twin, and write what the page needs: ``python examples/interactive/train.py``.

Both start from the same weights and have the same optimiser and updates. Snapshots of the weights are stored as 16-bit numbers.
It takes about half a minute on one core and writes ``network.json``, which is committed.
"""

from __future__ import annotations

import argparse
import base64
import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn import NoisyActivation

DEPTH, WIDTH, UPDATES, RATE, C, SPAN = 14, 12, 2400, 8e-3, 20.0, 1.2
KEPT = 24  # snapshots of the mollified network, besides the first
FILE = Path(__file__).parent / "network.json"


def spiral(samples: int = 400) -> tuple[Tensor, Tensor]:
    """Two arms around the origin, within the unit circle."""
    label = torch.arange(samples) % 2
    radius = torch.rand(samples).sqrt()
    angle = 6.0 * radius + torch.pi * label
    x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + 0.025 * torch.randn(samples, 2)
    return x, label.float()[:, None]


def network() -> nn.Sequential:
    """Layers of sigmoid units with torch's own initial weights."""
    sizes = [2] + DEPTH * [WIDTH]
    layers = [part for width, out in pairwise(sizes) for part in (nn.Linear(width, out), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def pack(model: nn.Module) -> dict[str, Any]:
    """All weights in the order in which the page reads them: per layer W, b and a, then the output's W and b."""
    parts: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.Linear):
            parts += [module.weight, module.bias]
        elif isinstance(module, nn.Sigmoid):
            noisy = next((part for part in module.modules() if isinstance(part, NoisyActivation)), None)
            parts.append(torch.zeros(WIDTH) if noisy is None else noisy.a)
    flat = torch.cat([part.detach().flatten() for part in parts])
    scale = float(flat.abs().max()) / 32767
    bits = (flat / scale).round().to(torch.int16).numpy().astype("<i2").tobytes()
    return {"scale": scale, "bits": base64.b64encode(bits).decode()}


def train(model: nn.Module, x: Tensor, y: Tensor, annealer: mollifier.Annealer | None, kept: int) -> dict[str, Any]:
    """Train and return snapshots, levels and losses."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 0.1 ** (update / UPDATES))
    losses: list[float] = []
    updates, snapshots = [0], [pack(model)]
    levels = [mollifier.levels(model)] if annealer else []
    for update in range(1, UPDATES + 1):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if annealer:
            annealer.step(loss)
        losses.append(loss.item())
        if update % (UPDATES // kept) == 0:
            updates.append(update)
            snapshots.append(pack(model))
            levels += [mollifier.levels(model)] if annealer else []
    means = torch.tensor(losses).view(-1, UPDATES // 100).mean(1)
    found = {"updates": updates, "snapshots": snapshots, "loss": [round(value, 3) for value in means.tolist()]}
    return found | {"levels": [[round(p, 4) for p in each] for each in levels]}


def main(out: Path, seed: int) -> None:
    """Train both networks and write the file."""
    torch.manual_seed(seed)
    x, y = spiral()
    plain = network()
    model = mollifier.mollify(copy.deepcopy(plain), c=C)
    mollified = train(model, x, y, mollifier.Annealer(model, horizon=0.75 * UPDATES), KEPT)
    twin = train(plain, x, y, None, 4)
    for name, net in (("mollified", model), ("plain", plain)):
        right = ((net.eval()(x) > 0) == (y > 0.5)).float().mean().item()
        print(f"{name}: {right:.1%} of the points correct after {UPDATES} updates")
    facts = (
        f"{DEPTH} layers of {WIDTH} sigmoid units, {len(x)} points on two spirals, {UPDATES} updates of Adam with a falling learning rate. The mollified network "
        f"was annealed by the default schedule, a front from the input up. The page computes both networks itself, as the library does in eval(); nothing is loaded."
    )
    drawn = torch.cat([x, y], 1)[:260].tolist()
    found = {"widths": [2, *DEPTH * [WIDTH], 1], "c": C, "span": SPAN, "updates": UPDATES, "facts": facts}
    found |= {
        "points": [[round(value, 3) for value in point] for point in drawn],
        "mollified": mollified,
        "plain": twin,
    }
    out.write_text(json.dumps(found), encoding="utf-8")
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    main(arguments.out, arguments.seed)
