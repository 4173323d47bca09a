from __future__ import annotations

import pytest
import torch

from mollifier_lab.data import parity


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def odd(inputs: torch.Tensor) -> list[int]:
    return [row.tolist().count(1.0) % 2 for row in inputs]


@pytest.mark.parametrize("bits", [1, 2, 40])
def test_plus_and_minus_one_with_the_parity_of_the_ones(bits):
    inputs, labels = parity.fixed(500, bits, seed=3)
    assert inputs.shape == (500, bits)
    assert inputs.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert set(inputs.unique().tolist()) == {-1.0, 1.0}
    assert labels.tolist() == odd(inputs)


def test_inputs_and_labels_are_balanced():
    inputs, labels = parity.fresh(20_000, 10, generator())
    assert (inputs.mean(0).abs() < 0.04).all()  # five deviations
    assert abs(labels.float().mean() - 0.5) < 0.02


def test_fixed_is_fixed_and_fresh_is_fresh():
    torch.manual_seed(0)
    first = parity.fixed(50, 40, seed=1)
    torch.manual_seed(1)
    again = parity.fixed(50, 40, seed=1)
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], parity.fixed(50, 40, seed=2)[0])
    source = generator(1)
    assert torch.equal(parity.fresh(50, 40, source)[0], first[0])
    assert not torch.equal(parity.fresh(50, 40, source)[0], first[0])


def test_variable_lengths_are_uniform_and_lie_anywhere():
    bits = 8
    inputs, labels = parity.variable(40_000, bits, generator())
    assert set(inputs.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert labels.tolist() == odd(inputs)
    length = (inputs != 0).sum(1)
    share = length.bincount(minlength=bits + 1) / 40_000
    assert share[0] == 0
    assert ((share[1:] - 1 / bits).abs() < 0.01).all()
    assert (((inputs != 0).float().mean(0) - (bits + 1) / (2 * bits)).abs() < 0.015).all()
    assert (inputs.sum(0) / (inputs != 0).sum(0)).abs().max() < 0.04


def test_variable_depends_on_the_generator_alone():
    assert torch.equal(parity.variable(9, 12, generator(4))[0], parity.variable(9, 12, generator(4))[0])
    assert not torch.equal(parity.variable(9, 12, generator(4))[0], parity.variable(9, 12, generator(5))[0])


@pytest.mark.parametrize(("batch", "bits"), [(-1, 3), (3, 0)])
def test_sizes_that_make_no_sense(batch, bits):
    with pytest.raises(ValueError, match=f"batch={batch}, bits={bits}"):
        parity.fresh(batch, bits, generator())
    with pytest.raises(ValueError, match="bits >= 1"):
        parity.variable(batch, bits, generator())


def test_a_prefix_of_uniform_length_comes_first():
    bits = 8
    inputs, labels = parity.prefix(40_000, bits, generator())
    assert set(inputs.unique().tolist()) == {-1.0, 0.0, 1.0}
    assert labels.tolist() == odd(inputs)
    length = (inputs != 0).sum(1)
    assert torch.equal(inputs != 0, torch.arange(bits) < length[:, None])
    share = length.bincount(minlength=bits + 1) / 40_000
    assert share[0] == 0
    assert ((share[1:] - 1 / bits).abs() < 0.01).all()
