"""Peak memory: bytes of tensors alive at once, counted, not guessed from the process."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mollifier import landscape
from mollifier.smoothing import loss_of, mollified_loss, mollified_value, weak_gradient


class LiveBytes(TorchDispatchMode):
    """Follows every storage that an operation makes, until it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self.known:
                    self.known.add(key)
                    self.live += size
                    self.peak = max(self.peak, self.live)
                    weakref.finalize(storage, self.gone, key, size)
        return out

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def peak(work: Callable[[], Any], given: tuple[torch.Tensor, ...] = ()) -> int:
    """The most bytes that the work held, without those of what it was given."""
    with LiveBytes() as count:
        count.known.update(tensor.untyped_storage()._cdata for tensor in given)
        work()
    return count.peak


def test_the_counter_counts() -> None:
    assert peak(lambda: [torch.zeros(1000, dtype=torch.float64) for _ in range(5)]) == 40_000
    assert peak(lambda: [torch.zeros(1000, dtype=torch.float64).sum().item() for _ in range(5)]) <= 8_016


@pytest.mark.parametrize("kernel", ["gaussian", "bump"])
@pytest.mark.parametrize("what", ["loss", "gradient", "value", "weak"])
def test_peak_memory_does_not_grow_with_the_samples(what: str, kernel: str) -> None:
    model = nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 1))
    loss_fn, parameters = loss_of(model, mse_loss, torch.randn(32, 20), torch.randn(32, 1))

    def work(samples: int) -> None:
        options: dict[str, Any] = {"samples": samples, "chunk": 16, "kernel": kernel}
        if what == "weak":
            weak_gradient(loss_fn, parameters, 0.1, **options)
        elif what == "value":
            mollified_value(loss_fn, parameters, 0.1, **options)
        else:
            loss = mollified_loss(loss_fn, parameters, 0.1, **options)
            if what == "gradient":
                loss.backward()

    work(64)  # tables are made and .grad is there
    few, many = peak(lambda: work(64)), peak(lambda: work(512))
    assert few > 16 * 4 * sum(p.numel() for p in model.parameters())  # the counter sees the chunk
    assert many <= 1.02 * few


def test_without_chunks_it_grows() -> None:
    # or the test above would show nothing
    loss_fn, parameters = loss_of(nn.Linear(50, 20), mse_loss, torch.randn(8, 50), torch.randn(8, 20))
    sizes = [
        peak(lambda n=n: mollified_loss(loss_fn, parameters, 0.1, samples=n, chunk=16, graph=True)) for n in (64, 1024)
    ]
    assert sizes[1] > 3 * sizes[0]


def test_landscape_memory_does_not_grow_with_the_data() -> None:
    model = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 1))

    def measure(examples: int) -> int:
        x, y = torch.randn(examples, 10), torch.randn(examples, 1)
        loss = landscape.objective(model, mse_loss, x, y, chunk=64)
        direction = landscape.filter_direction(loss.parameters)

        def run() -> None:
            landscape.trace(loss, samples=2)
            landscape.extremes(loss, iterations=2)
            landscape.surface(loss, [direction], points=4)

        return peak(run, given=(x, y))

    measure(128)
    assert measure(2048) <= 1.05 * measure(128)
