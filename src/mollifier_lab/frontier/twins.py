"""Measure what a deployed network without shortcuts saves: peak memory and latency at batch 1 of ResNets for CIFAR-10 and their plain twins."""

from __future__ import annotations

import itertools
import statistics
import time
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode

from mollifier_lab.models import resnet
from mollifier_lab.models.resnet import BasicBlock

DEPTHS = (20, 32, 56)
ROUNDS = 100


@dataclass(frozen=True)
class Twin:
    """A measured network.

    Attributes:
        depth: The number of layers.
        name: Which of the two networks.
        maps: The most bytes of feature maps alive at one time, without the input and the workspace of convolutions.
        milliseconds: The median latency.
    """

    depth: int
    name: str
    maps: int
    milliseconds: float


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count the bytes of tensors that are alive, and the most at one time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, int] = {}  # storages, and the number of tensors that use each

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor):
                self._watch(tensor)
        return out

    def _watch(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if not self._known.get(key):
            self.now += size
            self.peak = max(self.peak, self.now)
        self._known[key] = self._known.get(key, 0) + 1
        weakref.finalize(tensor, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known[key] -= 1
        if not self._known[key]:
            self.now -= size


def measure(width: int = 16, rounds: int = ROUNDS) -> list[Twin]:
    """Measure both networks of each depth, in turns, on one thread; batch norm is folded into the convolutions, and ReLUs work in place, as when deployed.

    >>> found = measure(width=2, rounds=1)
    >>> [(each.depth, each.name) for each in found[:2]]
    [(20, 'residual'), (20, 'plain twin')]
    >>> found[1].maps < found[0].maps
    True
    """
    found: list[Twin] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            for depth in DEPTHS:
                plain = resnet(depth, width=width, architecture="plain", normalised=False)
                nets = {
                    "residual": in_place(folded(resnet(depth, width=width).eval())),
                    "plain twin": in_place(flat(plain.eval())),
                }
                x = torch.randn(1, 3, 32, 32)
                peaks = {name: peak(net, x) for name, net in nets.items()}
                times = latencies(nets, x, rounds)
                found += [Twin(depth, name, peaks[name], times[name]) for name in nets]
    finally:
        torch.set_num_threads(threads)
    return found


def peak(net: nn.Module, x: Tensor) -> int:
    """Return the most bytes of feature maps that are alive at one time."""
    alive = Alive()
    with alive:
        net(x)
    return alive.peak


def latencies(nets: dict[str, nn.Module], x: Tensor, rounds: int) -> dict[str, float]:
    """Return medians in milliseconds, measured in turns so that a busy moment affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in nets}
    for number in range(rounds + 3):
        for name, net in nets.items():
            start = time.perf_counter()
            net(x)
            if number >= 3:  # the first rounds are for warming up
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def folded(net: nn.Module) -> nn.Module:
    """Fold every batch norm into the convolution before it, in place."""
    for parent in list(net.modules()):
        children = list(parent.named_children())
        for (name, conv), (other, norm) in itertools.pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, other, nn.Identity())
    return net


def flat(net: nn.Module) -> nn.Sequential:
    """Return the plain twin as a mere chain of convolutions and ReLUs: nothing keeps a feature map longer than needed."""
    parts: list[nn.Module] = []
    for part in net.children():
        parts += [part.conv1, part.relu1, part.conv2, part.relu2] if isinstance(part, BasicBlock) else [part]
    return nn.Sequential(*parts)


def in_place(net: nn.Module) -> nn.Module:
    """Let every ReLU write over its input."""
    for part in net.modules():
        if isinstance(part, nn.ReLU):
            part.inplace = True
    return net


def table(found: list[Twin]) -> str:
    """In Markdown."""
    lines = ["| layers | network | peak of feature maps | latency at batch 1 |", "|---|---|---|---|"]
    lines += [
        f"| {each.depth} | {each.name} | {each.maps / 1024:.0f} KiB | {each.milliseconds:.2f} ms |" for each in found
    ]
    return "\n".join(lines) + "\n"
