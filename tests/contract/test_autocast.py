"""Row 8, second part: training under bf16 autocast, and in half precision throughout."""

from __future__ import annotations

import pytest
import torch

import mollifier

from .helpers import own_gradients, own_parameters
from .zoo import KINDS, Kind, by_name


@by_name(KINDS)
@pytest.mark.parametrize("level", [1.0, 0.999, 0.5, 0.0])
def test_bf16_autocast_trains(kind: Kind, level: float) -> None:
    model, x = kind.mollified(level=level).train(), kind.input()
    with torch.autocast("cpu", torch.bfloat16):
        loss = kind.run(model, x).float().square().mean()
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters() if parameter.grad is not None)
    if level > 0.0:
        assert all(parameter.grad is not None for parameter in mollifier.added_parameters(model))
    if level < 0.9:
        own = own_parameters(model)
        assert sum(bool(parameter.grad is not None and parameter.grad.any()) for parameter in own) >= len(own) // 2
    assert mollifier.levels(model) == [level] * len(mollifier.levels(model))


@by_name(KINDS)
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_bf16_autocast_stays_close_to_float32(kind: Kind, level: float) -> None:
    model, x = kind.mollified(level=level).eval(), kind.input()
    want = kind.run(model, x)
    slopes = own_gradients(model, want)
    with torch.autocast("cpu", torch.bfloat16):
        got = kind.run(model, x)
    assert (got.float() - want).abs().max() < 0.03 * want.abs().max()
    # rounded, a unit may fall on the other side of the kink where its push ends
    assert (own_gradients(model, got) - slopes).norm() <= 0.2 * slopes.norm()


@by_name(KINDS)
def test_the_level_is_not_rounded_with_the_weights(kind: Kind) -> None:
    """0.999 in bfloat16 is 1: the level keeps its own precision when the model is cast, there and back."""
    model, x = kind.mollified(level=0.999), kind.input()
    want = kind.run(model.eval(), x)
    model.to(torch.bfloat16)
    assert mollifier.levels(model) == [0.999] * len(mollifier.levels(model))
    assert all(parameter.dtype == torch.bfloat16 for parameter in mollifier.added_parameters(model))
    out = kind.run(model, x if kind.vocabulary else x.bfloat16())
    assert out.dtype == torch.bfloat16
    assert (out.float() - want).abs().max() < 0.06 * want.abs().max()
    assert mollifier.levels(model.float()) == [0.999] * len(mollifier.levels(model))
