"""Peak memory of a mollified training step against the plain one, in allocated bytes."""

import copy

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import mollifier
from tests.helpers import BasicBlock


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside have held at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.held = self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                before = self.alive.get(storage._cdata)
                if before is None or before[0].expired():
                    self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
                    self.held += storage.nbytes()
        if self.held > self.peak:  # at most: some may have gone
            self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
            self.held = sum(size for _, size in self.alive.values())
            self.peak = max(self.peak, self.held)
        return out


def peak(step) -> int:
    step()  # gradients and buffers that stay are there before anything is counted
    with Peak() as watch:
        step()
    return watch.peak


def test_an_lstm_stays_within_1_3_times():
    plain = nn.LSTM(64, 64, num_layers=2)
    ours = mollifier.mollify(copy.deepcopy(plain), level=0.5)
    x = torch.randn(35, 20, 64)

    def step(module):
        return lambda: module(x)[0].square().mean().backward()

    assert peak(step(ours)) <= 1.3 * peak(step(plain))


def resnet110() -> nn.Sequential:
    widths = [16] * 18 + [32] * 18 + [64] * 18
    blocks = [
        BasicBlock(below, above, 1 + (below != above)) for below, above in zip([16, *widths], widths, strict=False)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


def test_a_residual_network_of_110_layers():
    """A noisy ReLU keeps its output, as the plain one does; what the copy makes of it is one tensor a block more."""
    plain = resnet110()
    ours = mollifier.mollify(copy.deepcopy(plain), level=0.5, example=torch.randn(2, 3, 16, 16))
    x = torch.randn(16, 3, 16, 16)

    def step(model):
        return lambda: model(x).square().mean().backward()

    assert peak(step(ours)) <= 1.3 * peak(step(plain))
