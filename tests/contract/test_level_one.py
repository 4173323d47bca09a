"""Row 2: level 1 in eval is the limit that the paper names: the copy itself, and the network affine in its input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.activations import activation
from mollifier.nn import Copy

from . import models
from .helpers import assert_equal, capture
from .limits import matrix, pad
from .zoo import ACTIVATIONS, AFFINE, CONVERTED, KINDS, KNOWN, Kind, by_name


@by_name(KINDS)
def test_the_limit_that_the_paper_names(kind: Kind) -> None:
    """The whole network, against what is written in the table with nothing but slices, sums and the model's own layers."""
    model, x = kind.mollified(torch.float64).eval(), kind.input(torch.float64)
    torch.testing.assert_close(kind.run(model, x), kind.limit(model, x), rtol=1e-12, atol=1e-12)


def by_hand(copy: Copy, below: Tensor, above: Tensor) -> Tensor:
    """What the copy path is to give, from its definition."""
    dim = copy.unit_dim % above.dim()
    for spatial in range(dim + 1, above.dim()):
        if above.shape[spatial] > below.shape[spatial]:  # a transposed convolution
            below = below.repeat_interleave(above.shape[spatial] // below.shape[spatial], spatial)
        size = below.shape[spatial] // above.shape[spatial]
        below = below.unfold(spatial, size, size).mean(-1)
    if copy.projection is not None:
        return torch.tensordot(below, matrix(copy.projection), ([dim], [1])).movedim(-1, dim)
    missing = above.shape[dim] - below.shape[dim]
    return pad(below, above.shape[dim], dim) if missing else below


@by_name([kind for kind in KINDS if kind.copies])
def test_every_block_is_its_copy(kind: Kind) -> None:
    model, blocks = kind.mollified(torch.float64).eval(), []

    def note(name: str, module: nn.Module, args: Any, out: Tensor) -> None:
        if isinstance(module, Copy):
            below, above = args
            want = by_hand(module, below, above)
            if module.projection is None and below.shape[2:] == above.shape[2:]:
                assert_equal(out, want, name)  # a copy or a padded copy: not one bit may change
            torch.testing.assert_close(out, want, rtol=1e-12, atol=1e-12)
            assert not torch.equal(above, want), f"{name}: the layer happens to compute its own copy"
            blocks.append(name)

    capture(model, note)
    kind.run(model, kind.input(torch.float64))
    assert len(set(blocks)) == len(mollifier.levels(model))  # (a siamese network calls each of them twice)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_alone_is_its_tangent_under_much_noise(name: str) -> None:
    """READING, limit 2, but for a hair around 0: the noise's scale falls with the square of the saturation."""
    torch.manual_seed(0)
    model = models.Custom().double().eval()
    model.act = ACTIVATIONS[name]()
    act, x = activation(model.act), torch.randn(4, 6, dtype=torch.float64)
    want = model.fc2(act.slope * 3.0 * model.fc1(x) + act.offset)
    mollifier.mollify(model, c=1e12, a=(2.0, 2.0))
    torch.testing.assert_close(model(x), want, rtol=0, atol=1e-9)
    mollifier.set_level(model, 0.0)
    assert (model(x) - want).abs().max() > 1e-3


def test_every_activation_of_the_table_has_a_kind() -> None:
    assert set(KNOWN) == {activation(module()).name for module in ACTIVATIONS.values()}


@by_name(AFFINE)
def test_the_network_is_affine(kind: Kind) -> None:
    model = kind.mollified(torch.float64).eval()
    x, y = (kind.input(torch.float64, seed) for seed in (1, 2))

    def bend(at: Tensor, to: Tensor) -> Tensor:
        line = kind.run(model, at) + kind.run(model, to) - kind.run(model, torch.zeros_like(at))
        return (line - kind.run(model, at + to)).abs().max()

    assert bend(x, y) < 1e-12
    assert bend(1000 * x, y) < 1e-9
    mollifier.set_level(model, 0.0)
    assert bend(10 * x, 10 * y) > 1e-6, "the plain network is to be nonlinear, else the test above says nothing"


@by_name(CONVERTED)
def test_levels_between_lie_between(kind: Kind) -> None:
    """In eval the output moves with the level, from the one limit to the other, and without a jump at the ends."""
    model, x = kind.mollified(torch.float64).eval(), kind.input(torch.float64)
    out = {}
    for level in (0.0, 1e-7, 0.5, 1.0 - 1e-7, 1.0):
        mollifier.set_level(model, level)
        out[level] = kind.run(model, x).detach()
    scale = (out[1.0] - out[0.0]).abs().max()
    assert scale > 1e-3
    assert (out[1e-7] - out[0.0]).abs().max() < 1e-3
    assert (out[1.0 - 1e-7] - out[1.0]).abs().max() < 1e-3
    assert (out[0.5] - out[0.0]).abs().max() > 1e-4
    assert (out[0.5] - out[1.0]).abs().max() > 1e-4


@by_name(KINDS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("level", [1.0, 0.5])
def test_dtypes_and_shapes_under_autocast_are_the_plain_networks(kind: Kind, training: bool, level: float) -> None:
    """Of the whole network and of every module in it, so that what comes after a block meets what it always met."""

    def seen(model: nn.Module) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}

        def note(name: str, module: nn.Module, args: Any, out: Any) -> None:
            if isinstance(module, Copy):  # (between two modules of a Sequential nobody else sees it)
                assert out.dtype == args[1].dtype, name
            items = out if isinstance(out, tuple) else (out,)
            if all(isinstance(item, Tensor) for item in items):
                found.setdefault(name, []).extend((item.dtype, item.shape) for item in items)

        capture(model.train(training), note)
        with torch.autocast("cpu", torch.bfloat16):
            out = kind.run(model, kind.input())
        return found | {"": [(out.dtype, out.shape)]}

    want, got = seen(kind.plain()), seen(kind.mollified(level=level))
    if kind.by_hand is not None:
        assert got[""] == want[""]
    else:
        assert {name: got.get(name) for name in want} == want
