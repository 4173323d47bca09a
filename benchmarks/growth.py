"""How the cost grows with width, batch, depth and length, and what a whole annealed training costs."""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import nn

import mollifier
from benchmarks.models import at, going, mlp, mollified, sequence, training
from benchmarks.timing import Ratio, compare


def step(line: str, width: int = 200, batch: int = 128, depth: int = 6) -> Ratio:
    """A training step of the parity network, p = 0.5, all layers."""
    torch.manual_seed(0)
    plain = mlp(40, width, depth)
    model = mollified(plain)
    candidates = {"plain": going(training(plain, 40, batch)), "mollified": at(0.5, model, training(model, 40, batch))}
    return compare(line, candidates, 60, 3.0)[0]


def length(steps: int) -> Ratio:
    torch.manual_seed(0)
    ours = mollifier.mollify(nn.LSTM(200, 200, num_layers=2), level=0.5)
    candidates = {"nn.LSTM": nn.LSTM(200, 200, num_layers=2), "mollified": ours}
    return compare(
        f"length {steps}", {name: sequence(each, 200, steps, 20) for name, each in candidates.items()}, 40, 3.0
    )[0]


def whole(updates: int = 300, turns: int = 5) -> Ratio:
    """A whole training of the parity network, annealed from p = 1 to 0 over two thirds of it, against a plain one."""
    seconds: dict[str, list[float]] = {"plain": [], "annealed": []}
    for _ in range(turns):
        for name, times in seconds.items():
            torch.manual_seed(0)
            model: nn.Module = mlp(40)
            annealer = None
            if name == "annealed":
                model = mollified(mlp(40))
                annealer = mollifier.Annealer(model, "linear", horizon=updates * 2 // 3)
            run = training(model, 40)
            start = time.perf_counter()
            for _ in range(updates):
                run()
                if annealer is not None:
                    annealer.step()
            times.append(time.perf_counter() - start)
    ratios = [mine / plain for mine, plain in zip(seconds["annealed"], seconds["plain"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    each = {name: 1e6 * statistics.median(times) / updates for name, times in seconds.items()}
    return Ratio("whole training", "annealed 1 → 0", middle, low, high, each["annealed"], each["plain"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    found = [step(f"width {width}", width=width) for width in (50, 100, 200, 400, 800)]
    found += [step(f"batch {batch}", batch=batch) for batch in (16, 64, 256, 1024)]
    found += [step(f"depth {depth}", depth=depth) for depth in (6, 20, 56, 110)]
    found += [length(steps) for steps in (10, 20, 40, 80)]
    found.append(whole())
    print(json.dumps([each.as_dict() for each in found]))


if __name__ == "__main__":
    main()
