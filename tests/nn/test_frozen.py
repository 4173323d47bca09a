"""Frozen noise is distributed as sampled noise is, and no two kinds of it depend on one another."""

import pytest
import torch
from torch import nn

import mollifier
from mollifier.functional import normal_like, uniform_like
from mollifier.nn import Step
from mollifier.nn._annealed import FrozenNoise


def correlation(one: torch.Tensor, other: torch.Tensor) -> float:
    return abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]).double())[0, 1].item())


def test_a_frozen_step_has_the_mean_of_a_sampled_one():
    """Of 3 units, as torch draws few and many numbers in different ways, and of many."""
    for count, seeds in ((3, 3000), (10_000, 5)):
        unit, x = Step(level=0.5), torch.full((count,), 0.5)
        frozen = []
        for seed in range(seeds):
            with mollifier.frozen(unit, seed=seed):
                frozen.append(unit(x))
        sampled = unit(torch.full((count * seeds,), 0.5))
        assert torch.cat(frozen).mean().item() == pytest.approx(sampled.mean().item(), abs=0.02)


def test_kinds_shapes_and_parts_are_independent():
    x = torch.zeros(100, 100)
    frozen = FrozenNoise(3)
    normal, uniform = frozen.draw(normal_like, x), frozen.draw(uniform_like, x)
    assert correlation(normal, uniform) < 0.04
    assert correlation(normal.abs(), uniform) < 0.04
    assert correlation(frozen.draw(normal_like, torch.zeros(200, 100))[:100], normal) < 0.04
    assert correlation(FrozenNoise(3, part=1).draw(normal_like, x), normal) < 0.04
    assert correlation(FrozenNoise(4).draw(normal_like, x), normal) < 0.04


def test_gates_and_activations_of_a_recurrent_layer_are_independent():
    """Unbiased gates draw uniform numbers, activations normal ones, of the same shape here."""
    options = mollifier.nn.RecurrentOptions(unbiased_gates=True)
    gru = mollifier.mollify(nn.GRU(4, 50), recurrent=options)
    layer = gru._mollifier.layer(0)
    found = []
    for seed in range(200):
        with mollifier.frozen(gru, seed=seed):
            gates, acts = layer.draw(torch.zeros(2, 4))
            found.append((gates[:, :, 0], acts[:, :, 0].abs()))
    assert correlation(*(torch.stack(each) for each in zip(*found, strict=True))) < 0.04
