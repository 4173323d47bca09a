"""The lines of the table: ``python -m benchmarks.lines --threads 1 "LSTM 200"``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from benchmarks.models import DropPath, at, going, mlp, mollified, sequence, training
from benchmarks.timing import Ratio, compare
from mollifier import functional, kernels
from mollifier.activations import activation

DROP_PATH = DropPath()
SIGMOID = activation("sigmoid")  # a module looks its activation up once, too


def unit(shape: tuple[int, ...], a: Tensor, x: Tensor, below: Tensor) -> Tensor:
    """Noisy activation and copy, by whatever backend serves."""
    if kernels.serves(x):
        unit_dim = -1 if len(shape) == 2 else -3
        spec = kernels.Spec(kernels.struct(SIGMOID), 0.5, 20.0, "paper", unit_dim, shape[unit_dim])
        return kernels.fused_unit(x, below, a, spec)
    shaped = a if len(shape) == 2 else a.view(-1, 1, 1)
    above = functional.noisy_activation(x, "sigmoid", level=0.5, a=shaped)
    return functional.copy_mix(below, above, level=0.5)


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


def annealing() -> list[Ratio]:
    """A step of the Annealer by a plain step of the parity network, half-way through annealing."""
    torch.manual_seed(0)
    plain = mlp(40)
    candidates: dict[str, Callable[[], object]] = {"plain step": going(training(plain, 40))}
    loss = torch.tensor(0.7)
    settings: dict[str, dict[str, Any]] = {
        "exponential": {"k": 1e9},
        "front": {"schedule": "front", "horizon": 1e9},
        "adaptive": {"schedule": "adaptive", "width": 1e9},
    }
    for name, each in settings.items():
        annealer = mollifier.Annealer(mollified(plain), **each)
        candidates[name] = lambda annealer=annealer: annealer.step(loss)  # type: ignore[misc]
    return compare("annealer, parity", candidates, rounds=400)


LINES: dict[str, Callable[[], list[Ratio]]] = {
    "units": units,
    "Pentomino": lambda: network("Pentomino", 4096),
    "parity": lambda: network("parity", 40),
    "annealer": annealing,
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
