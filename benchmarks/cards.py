"""The measured costs in the cards: ratios to the plain thing, medians of rounds in turns, one thread.

python benchmarks/cards.py
"""

import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import mollifier

ROUNDS = 60


def medians(cases: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of each case, measured in turns so that a busy moment meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        for _ in range(5):
            case()
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.perf_counter()
            case()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, cases: dict[str, Callable[[], object]]) -> None:
    """Print each case as a multiple of the first."""
    found = medians(cases)
    first = next(iter(found.values()))
    print(
        f"{title}: "
        + ", ".join(f"{name} {value / first:.2f}" for name, value in found.items())
        + f" (1 = {first * 1e6:.0f} us)"
    )


def both_ways(module: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Callable[[], None]:
    """A forward and a backward pass."""

    def step() -> None:
        out = module(*inputs)
        torch.autograd.grad(out.sum(), [x for x in inputs if x.requires_grad])

    return step


def update(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    """A training step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    criterion = nn.BCEWithLogitsLoss()

    def step() -> None:
        criterion(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def mlp(inputs: int, width: int = 200, depth: int = 6) -> nn.Sequential:
    """The sigmoid network of the paper's tasks."""
    layers: list[nn.Module] = []
    for units in [inputs] + [width] * (depth - 1):
        layers += [nn.Linear(units, width), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def at(module: nn.Module, level: float) -> nn.Module:
    """A copy at this level."""
    copied = copy.deepcopy(module)
    mollifier.set_level(copied, level)
    return copied


def main() -> None:
    """Print all lines."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, below = (torch.randn(128, 200, requires_grad=True) for _ in range(2))
    noisy, mix = mollifier.nn.NoisyActivation("sigmoid", 200), mollifier.nn.Copy(200, 200)
    dropped = nn.Dropout(0.5)
    show(
        "activation, 128 x 200, forward and backward, by torch.sigmoid",
        {"sigmoid": both_ways(torch.sigmoid, x)}
        | {f"level {level}": both_ways(at(noisy, level), x) for level in (0, 0.5)}
        | {"dropout(sigmoid)": both_ways(lambda v: dropped(torch.sigmoid(v)), x)},
    )
    show(
        "copy, 128 x 200, forward and backward, by dropout",
        {"dropout": both_ways(dropped, x), "level 0.5": both_ways(at(mix, 0.5), below, x)},
    )
    for blocks in (6, 54):
        layers = [nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()) for _ in range(blocks)]
        net = mollifier.mollify(nn.Sequential(*layers, nn.Linear(4, 1)))
        annealer = mollifier.Annealer(net, k=1e9)
        loss = torch.tensor(0.7)
        seconds = medians({"step": lambda annealer=annealer, loss=loss: annealer.step(loss)})["step"]
        print(f"annealing, {blocks} blocks: {seconds * 1e6:.0f} us a step")
    for name, inputs in (("parity, 40 inputs", 40), ("Pentomino, 4096 inputs", 4096)):
        plain, data = mlp(inputs), (torch.randn(128, inputs), torch.rand(128, 1).round())
        mollified = mollifier.mollify(copy.deepcopy(plain))
        show(
            f"training step, {name}, 6 x 200, batch 128, by the plain one",
            {"plain": update(plain, *data)} | {f"level {p}": update(at(mollified, p), *data) for p in (0, 0.5, 0.9)},
        )
        start = time.perf_counter()
        mollifier.restore(mollifier.mollify(copy.deepcopy(plain)), force=True)
        print(f"mollify and restore: {(time.perf_counter() - start) * 1e3:.1f} ms")
    layer = nn.Linear(200, 200)
    noise = mollifier.nn.weight_noise(copy.deepcopy(layer), std=0.1)
    show("weight noise, 200 x 200, batch 128", {"linear": both_ways(layer, x), "level 1": both_ways(noise, x)})


if __name__ == "__main__":
    main()
