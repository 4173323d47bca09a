"""MNIST with a network of three layers of binary units: mollification against the straight-through estimator.

A random search of the same settings for every method (one seed, validation images), then five seeds of the best (test images):

    python examples/train_steps.py --data FOLDER --out results/steps
    python examples/train_steps.py --data FOLDER --out results/steps --small     # with the weak gradient of the whole loss

FOLDER holds the four files of MNIST, train-images-idx3-ubyte.gz and so on.
"""

import argparse
import gzip
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

import mollifier
from mollifier.nn import Sign
from mollifier.smoothing import loss_of, weak_gradient

BATCH = 100
Images = tuple[Tensor, Tensor]


def read_idx(path: Path) -> Tensor:
    """An array of bytes in the format of MNIST: two zeros, type, number of dimensions, their sizes, the bytes."""
    raw = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(raw[4 * i : 4 * i + 4], "big") for i in range(1, raw[3] + 1)]
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3] :]), dtype=torch.uint8).view(shape)


def mnist(folder: Path, small: bool) -> dict[str, Images]:
    """50,000 images to train on, 10,000 to search on, 10,000 to test on; 7×7 pixels if small."""
    parts = {}
    for part, name in (("train", "train"), ("test", "t10k")):
        pixels = (read_idx(folder / f"{name}-images-idx3-ubyte.gz").float() / 255 - 0.1307) / 0.3081
        pixels = avg_pool2d(pixels[:, None], 4) if small else pixels
        parts[part] = (pixels.flatten(1), read_idx(folder / f"{name}-labels-idx1-ubyte.gz").long())
    x, y = parts["train"]
    return {"train": (x[:50_000], y[:50_000]), "search": (x[50_000:], y[50_000:]), "test": parts["test"]}


def unit(method: str, width: float) -> Sign:
    width *= Sign.default_width
    if method in ("straight_through", "weak_derivative"):
        return Sign(level=0, width=width, hard_gradient="weak" if method == "weak_derivative" else "straight_through")
    return Sign(level=0 if method == "weak_gradient" else 1, width=width)


def network(method: str, inputs: int, units: int, width: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for below in (inputs, units, units):
        layers += [nn.Linear(below, units), unit(method, width)]
    model = nn.Sequential(*layers, nn.Linear(units, 10))
    for layer in model[::2]:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    return model


def train(method: str, images: Images, setting: dict[str, float], units: int, epochs: int, seed: int) -> nn.Module:
    """`weak_gradient` perturbs all parameters and looks at nothing but the loss; the others go through the units."""
    torch.manual_seed(seed)
    x, y = images
    model = network(method, x.shape[1], units, setting["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=setting["lr"])
    updates = epochs * (len(x) // BATCH)
    annealer = None
    if method == "mollified":
        annealer = mollifier.Annealer(model, "exponential", horizon=setting["horizon"] * updates)
    for batch in torch.cat([torch.randperm(len(x)) for _ in range(epochs)]).split(BATCH):
        if method == "weak_gradient":
            loss_fn, parameters = loss_of(model, cross_entropy, x[batch], y[batch])
            gradients, _ = weak_gradient(loss_fn, parameters, 0.1 * setting["width"], samples=32)
            for name, parameter in model.named_parameters():
                parameter.grad = gradients[name]
        else:
            loss = cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if annealer is not None:
            annealer.step(loss)
    if annealer is not None:
        annealer.finish()  # whatever is left of the levels: what is measured is the binary network
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    x, y = images
    return float((model(x).argmax(1) == y).float().mean())


def settings(trials: int) -> list[dict[str, float]]:
    """The same for every method; `horizon` matters to mollification alone."""
    u = torch.rand(trials, 3, generator=torch.Generator().manual_seed(0)).tolist()
    return [{"lr": 3e-4 * (1e-2 / 3e-4) ** a, "width": 0.5 * 4**b, "horizon": 0.1 + 0.8 * c} for a, b, c in u]


def study(data: dict[str, Images], methods: list[str], units: int, epochs: int, trials: int, seeds: int) -> Any:
    rows = []
    for method in methods:
        start, found = time.perf_counter(), []
        for setting in track(settings(trials), f"{method}: search"):
            found.append((accuracy(train(method, data["train"], setting, units, epochs, 100), data["search"]), setting))
        best = max(found, key=lambda pair: pair[0])[1]
        runs = [
            accuracy(train(method, data["train"], best, units, epochs, seed), data["test"])
            for seed in track(range(seeds), f"{method}: {seeds} seeds")
        ]
        mean = sum(runs) / seeds
        deviation = math.sqrt(sum((run - mean) ** 2 for run in runs) / (seeds - 1))
        rows.append({"method": method, "mean": mean, "std": deviation, "test": runs, "setting": best, "search": found})
        print(f"{method}: {mean:.2%} ± {deviation:.2%} of the test images, {time.perf_counter() - start:.0f} s, {best}")
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the four files of MNIST")
    parser.add_argument("--out", type=Path, help="folder for the numbers")
    parser.add_argument("--small", action="store_true", help="7×7 pixels, 30 units, and the weak gradient as well")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)  # layers this small are slower on two
    methods = ["straight_through", "weak_derivative", "mollified"] + ["weak_gradient"] * args.small
    units = 30 if args.small else 200
    rows = study(mnist(args.data, args.small), methods, units, args.epochs, args.trials, args.seeds)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        name = "small.json" if args.small else "mnist.json"
        numbers = {"units": units, "epochs": args.epochs, "batch": BATCH, "methods": rows}
        (args.out / name).write_text(json.dumps(numbers, indent=1) + "\n")
