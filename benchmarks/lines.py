"""The lines of the table: ``python -m benchmarks.lines --threads 1 "LSTM 200"``."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from benchmarks.models import DropPath, at, going, mlp, mollified, sequence, training
from benchmarks.timing import Ratio, compare
from mollifier import ops
from mollifier.activations import activation

DROP_PATH = DropPath()
SIGMOID = activation("sigmoid")  # a module looks its activation up once, too


LEVEL = torch.tensor(0.5, dtype=torch.float64)


def unit(shape: tuple[int, ...], a: Tensor, x: Tensor, below: Tensor) -> Tensor:
    """Noisy activation and copy, by whatever serves."""
    return ops.unit(x, below, a, SIGMOID, level=LEVEL, unit_dim=-1 if len(shape) == 2 else -3)


def units() -> list[Ratio]:
    found = []
    for shape in ((128, 200), (500, 100), (32, 64, 32, 32)):
        x, below = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
        a = torch.empty(shape[1]).uniform_(-2, 2).requires_grad_()
        grad = torch.randn(shape)
        found += compare(
            f"unit {'×'.join(map(str, shape))}",
            {
                "sigmoid": lambda x=x, grad=grad: torch.autograd.grad(torch.sigmoid(x), x, grad),
                "dropout(sigmoid)": lambda x=x, grad=grad: torch.autograd.grad(F.dropout(torch.sigmoid(x)), x, grad),
                "drop path(sigmoid)": lambda x=x, grad=grad: torch.autograd.grad(DROP_PATH(torch.sigmoid(x)), x, grad),
                "mollified": lambda s=shape, x=x, b=below, a=a, g=grad: torch.autograd.grad(
                    unit(s, a, x, b), (x, b, a), g
                ),
            },
            rounds=400,
        )
    return found


def network(name: str, inputs: int) -> list[Ratio]:
    """A step of the MLP at several levels, with the first layer's copy and without."""
    torch.manual_seed(0)
    plain = mlp(inputs)
    models = {"hidden layers": mollified(plain, whole=False), "all layers": mollified(plain)}
    if inputs > 200:  # the first layer narrows
        models["all layers, fixed projection"] = mollified(plain, projection="fixed")
    steps: dict[str, Any] = {
        "plain": going(training(plain, inputs)),
        "dropout 0.5": going(training(mlp(inputs, dropout=True), inputs)),
    }
    for label, model in models.items():
        step = training(model, inputs)
        for level in (0.0, 0.5, 0.9, 0.99, 1.0):
            steps[f"{label}, p = {level:g}"] = at(level, model, step)
    return compare(f"{name} MLP", steps, seconds=10.0)


def recurrent(kind: str, size: int, length: int) -> list[Ratio]:
    torch.manual_seed(0)
    plain = getattr(nn, kind)(size, size, num_layers=2)
    ours = mollifier.mollify(getattr(nn, kind)(size, size, num_layers=2), level=0.5)
    hard = getattr(mollifier.nn, f"HardSigmoid{kind}")(size, size, num_layers=2)
    candidates = {f"nn.{kind}": plain, "mollified": ours, "hard-sigmoid, plain": hard}
    return compare(
        f"{kind} {size}", {name: sequence(module, size, length, 20) for name, module in candidates.items()}, 60, 6.0
    )


def expected(inputs: int = 40) -> list[Ratio]:
    """Training on expected values: the parity network and an LSTM stack."""
    torch.manual_seed(0)
    plain = mlp(inputs)
    whole = mollifier.mollify(
        nn.Sequential(*mlp(inputs)[0], *mlp(inputs)[1], nn.Linear(200, 1)), train_noise="expected"
    )
    steps = {"plain": going(training(plain, inputs)), "p = 0.5": at(0.5, whole, training(whole, inputs))}
    found = compare("expected values, parity", steps, seconds=4.0)
    lstm = nn.LSTM(200, 200, num_layers=2)
    ours = mollifier.mollify(nn.LSTM(200, 200, num_layers=2), level=0.5, train_noise="expected")
    runs = {"nn.LSTM": sequence(lstm, 200, 20, 20), "p = 0.5": sequence(ours, 200, 20, 20)}
    return found + compare("expected values, LSTM 200", runs, 60, 6.0)


def cells(size: int = 200, steps: int = 20, batch: int = 20) -> list[Ratio]:
    """Cells of an LSTM in a loop of Python's."""
    torch.manual_seed(0)
    x = torch.randn(steps, batch, size)

    def loop(cell: nn.Module) -> Callable[[], object]:
        def run() -> None:
            cell.zero_grad()
            state, total = None, torch.zeros(())
            for row in x:
                state = cell(row, state)
                total = total + state[0].sum()
            total.backward()

        return run

    plain, ours = nn.LSTMCell(size, size), mollifier.mollify(nn.LSTMCell(size, size), level=0.5)
    return compare("LSTM cells", {"nn.LSTMCell": loop(plain), "mollified": loop(ours)}, 60, 6.0)


def strangers() -> list[Ratio]:
    """A ResNet-20 for images of 32×32, and a block as GPT-2 has it."""
    from benchmarks.strangers import GPT, ResNet20

    found = []
    for name, make, shape in (("ResNet-20", ResNet20, (16, 3, 32, 32)), ("GPT block", GPT, (8, 64, 128))):
        torch.manual_seed(0)
        plain, x = make(), torch.randn(shape)
        ours = mollifier.mollify(copy.deepcopy(plain), level=0.5, example=x)

        def step(model: nn.Module, x: Tensor = x) -> Callable[[], object]:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

            def run() -> None:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()

            return run

        found += compare(name, {"plain": step(plain), "p = 0.5": step(ours)}, 40, 10.0)
    return found


def annealing() -> list[Ratio]:
    """A step of the Annealer by a plain step of the parity network, half-way through annealing; always right after a plain step, as in training, whose data have taken its place in the caches."""
    torch.manual_seed(0)
    plain = mlp(40)
    step, loss = going(training(plain, 40)), torch.tensor(0.7)
    settings: dict[str, dict[str, Any]] = {
        "exponential": {"k": 1e9},
        "front": {"schedule": "front", "horizon": 1e9},
        "adaptive": {"schedule": "adaptive", "width": 1e9},
    }
    found = []
    for name, each in settings.items():
        annealer = mollifier.Annealer(mollified(plain), **each)
        found += compare("annealer, parity", {"plain step": step, name: lambda a=annealer: a.step(loss)}, rounds=400)
    return found


LINES: dict[str, Callable[[], list[Ratio]]] = {
    "units": units,
    "Pentomino": lambda: network("Pentomino", 4096),
    "parity": lambda: network("parity", 40),
    "annealer": annealing,
    "expected": expected,
    "cells": cells,
    "strangers": strangers,
    "LSTM 200": lambda: recurrent("LSTM", 200, 20),
    "LSTM 650": lambda: recurrent("LSTM", 650, 35),
    "GRU 200": lambda: recurrent("GRU", 200, 20),
    "GRU 650": lambda: recurrent("GRU", 650, 35),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lines", nargs="*", default=list(LINES), metavar="line", help=", ".join(LINES))
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(json.dumps([each.as_dict() for line in given.lines for each in LINES[line]()]))


if __name__ == "__main__":
    main()
