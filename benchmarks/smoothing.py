"""Speed of the Monte-Carlo estimates: against a loop of forward passes, and against EvoTorch's gradient estimator.

    python benchmarks/smoothing.py              # the loop; and EvoTorch where it is installed (pip install evotorch)

Every pair is timed in turns in one process, and the median of the ratios is printed: above 1 we are faster.
"""

import argparse
import importlib.util
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from mollifier.smoothing import loss_of, mollified_loss, weak_gradient


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(name: str, theirs: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """Both in turns, after one round to warm up."""
    theirs()
    ours()
    pairs = [(seconds(theirs), seconds(ours)) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    ms = [1000 * statistics.median(column) for column in zip(*pairs, strict=True)]
    print(f"{name:62} {ms[0]:9.2f} ms {ms[1]:9.2f} ms   {ratio:6.2f}×", flush=True)
    return {"what": name, "theirs_ms": ms[0], "ours_ms": ms[1], "ratio": ratio}


def small_model(width: int) -> nn.Module:
    """Three layers, ten inputs."""
    return nn.Sequential(nn.Linear(10, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def small_data(batch: int) -> tuple[Tensor, Tensor]:
    """Random inputs and targets."""
    return torch.randn(batch, 10), torch.randn(batch, 1)


def against_the_loop(width: int, batch: int, samples: int, rounds: int) -> list[dict[str, Any]]:
    """N forward (and backward) passes with perturbed weights, one after the other, as one would write it first."""
    loss_fn, parameters = loss_of(model := small_model(width), nn.functional.mse_loss, *small_data(batch))

    def loop(backward: bool) -> Tensor:
        total = torch.zeros(())
        for _ in range(samples):
            loss = loss_fn({name: p - 0.1 * torch.randn_like(p) for name, p in parameters.items()}) / samples
            if backward:
                loss.backward()
            total += loss.detach()
        return total

    def ours(backward: bool) -> Tensor:
        loss = mollified_loss(loss_fn, parameters, 0.1, samples=samples)
        if backward:
            loss.backward()
        return loss

    size = f"{sum(p.numel() for p in model.parameters())} parameters, batch {batch}, N = {samples}"
    with torch.no_grad():
        value = compare(f"value, {size}", lambda: loop(False), lambda: ours(False), rounds)
    return [value, compare(f"gradient, {size}", lambda: loop(True), lambda: ours(True), rounds)]


def rastrigin(x: Tensor) -> Tensor:
    """A function with many local minima, of one vector or of each row."""
    return (x.square() - 10 * torch.cos(2 * math.pi * x)).mean(-1)


def network_loss() -> tuple[Callable[[Tensor], Tensor], int]:
    """The loss of a small network as a function of one vector, and its length."""
    model, (inputs, target) = small_model(32), small_data(32)
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(x: Tensor) -> Tensor:
        parts = torch.split(x, [shape.numel() for shape in shapes.values()])
        values = {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}
        return nn.functional.mse_loss(functional_call(model, values, inputs), target)

    return loss, sum(shape.numel() for shape in shapes.values())


def against_evotorch(
    name: str,
    one: Callable[[Tensor], Tensor],
    many: Callable[[Tensor], Tensor],
    dimension: int,
    samples: int,
    rounds: int,
) -> dict[str, Any]:
    """Its estimator wants the function of many rows, ours that of one vector. It gives that of σ as well, ours its standard error."""
    from evotorch.distributions import SymmetricSeparableGaussian

    centre, sigma = torch.randn(dimension), 0.1
    deviations = torch.full((dimension,), sigma)

    def evotorch() -> Tensor:
        parameters = {"mu": centre, "sigma": deviations, "divide_mu_grad_by": "num_directions"}
        distribution = SymmetricSeparableGaussian(parameters)
        population = distribution.sample(samples)
        gradients = distribution.compute_gradients(population, many(population), objective_sense="max")
        return gradients["mu"] / sigma**2

    def ours() -> tuple[Tensor, Tensor]:
        gradients, errors = weak_gradient(lambda p: one(p["x"]), {"x": centre}, sigma, samples=samples)
        return gradients["x"], errors["x"]

    mine, error = ours()
    away = (evotorch() - mine) / error
    # two independent estimates of the same thing differ with variance 2
    assert 1.0 < float(away.square().mean()) < 4.0, "the two do not estimate the same thing"
    return compare(f"{name}, dimension {dimension}, N = {samples}", evotorch, ours, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="a file for the numbers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'':62} {'the other':>12} {'ours':>12}   ratio")
    found: dict[str, Any] = {"torch": torch.__version__, "rounds": args.rounds, "loop": [], "evotorch": []}
    for width, batch in ((16, 32), (32, 32), (64, 64)):
        found["loop"] += against_the_loop(width, batch, 256, args.rounds)
    if importlib.util.find_spec("evotorch") is None:
        print("EvoTorch is not installed: left out")
    else:
        for dimension, samples in ((100, 256), (1000, 1024), (10_000, 1024), (100_000, 256)):
            case = ("Rastrigin", rastrigin, rastrigin, dimension, samples)
            found["evotorch"].append(against_evotorch(*case, args.rounds))
        loss, dimension = network_loss()
        for samples in (256, 1024):
            case = ("small network", loss, vmap(loss), dimension, samples)
            found["evotorch"].append(against_evotorch(*case, args.rounds))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n")
