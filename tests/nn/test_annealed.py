"""The level: where it lives, what it survives, and the noise that stays."""

import math

import pytest
import torch
from torch import nn

import mollifier
from mollifier.functional import normal_like, uniform_like
from mollifier.nn import Copy, NoisyActivation, WeightNoise
from mollifier.nn._annealed import FrozenNoise, check_level

KINDS = [lambda **o: NoisyActivation("tanh", 3, **o), lambda **o: Copy(**o), lambda **o: WeightNoise(0.1, **o)]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("make", KINDS)
def test_a_level_outside_0_and_1_is_refused(make, wrong):
    with pytest.raises(
        ValueError, match=r"level .*: expected a number in \[0, 1\], 1 = fully mollified, 0 = the plain"
    ):
        make(level=wrong)
    module = make(level=0.5)
    with pytest.raises(ValueError, match=r"level .*: expected a number in \[0, 1\]"):
        module.set_level(wrong)
    assert float(module.level) == 0.5
    assert check_level(True) == 1.0


@pytest.mark.parametrize("make", KINDS)
def test_the_level_keeps_its_digits_in_any_precision(make):
    for change in (nn.Module.half, nn.Module.bfloat16, nn.Module.float, nn.Module.double):
        module = change(make(level=0.999))
        assert module.level.dtype == torch.float64
        assert float(module.level) == 0.999
    assert make(level=0.999).to(torch.bfloat16).level.dtype == torch.float64


@pytest.mark.parametrize("make", KINDS)
def test_the_level_follows_to_a_device_and_back(make):
    module = make(level=0.25).to("meta")
    assert module.level.is_meta
    assert module.active
    module = module.to_empty(device="cpu")
    assert module.level.device.type == "cpu"
    assert float(module.level) == 1.0  # the meta device knew no value: start mollified


@pytest.mark.parametrize("make", KINDS)
def test_the_level_is_saved_and_loaded(make):
    module, saved = make(level=0.25), make(level=0.0)
    assert not saved.active
    module.load_state_dict(saved.state_dict())
    assert float(module.level) == 0.0
    assert not module.active
    module.load_state_dict(make(level=0.75).state_dict())
    assert module.active


def test_active_says_whether_the_level_may_be_above_0():
    module = Copy(level=0.5)
    assert module.active
    module.set_level(0)
    assert not module.active
    module.set_level(1e-9)
    assert module.active


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match=r"noise 'mean': expected one of sample, expected, exact"):
        Copy(train_noise="mean")
    with pytest.raises(ValueError, match=r"noise 'off': expected one of"):
        NoisyActivation("tanh", eval_noise="off")


def test_modes_of_train_and_eval():
    module = Copy(train_noise="exact", eval_noise="sample")
    assert module.uniform(torch.zeros(2)) == "exact"
    assert module.eval().uniform(torch.zeros(2)) == "sample"
    module.frozen = FrozenNoise(0)
    assert isinstance(module.uniform(torch.zeros(2)), torch.Tensor)
    assert module.train().uniform(torch.zeros(2)) == "exact"  # nothing random to freeze


def test_frozen_noise_belongs_to_seed_and_shape():
    frozen, same, other = FrozenNoise(1), FrozenNoise(1), FrozenNoise(2)
    x = torch.zeros(3, 4, requires_grad=True)
    before = torch.get_rng_state()
    drawn = frozen.draw(normal_like, x)
    assert frozen.draw(normal_like, torch.ones(3, 4)) is drawn
    assert not drawn.requires_grad
    assert torch.equal(same.draw(normal_like, x), drawn)
    assert not torch.equal(other.draw(normal_like, x), drawn)
    assert frozen.draw(normal_like, torch.zeros(2, 4)).shape == (2, 4)
    assert frozen.draw(normal_like, x.double()).dtype == torch.float64
    assert not torch.equal(frozen.draw(uniform_like, x), drawn)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("process_group")
def test_under_distributed_training_idle_parameters_get_a_gradient_of_0():
    noisy, copy = NoisyActivation("tanh", 3, level=0.0), Copy(4, 3, projection="learned", level=0.0)
    x = torch.randn(5, 4, requires_grad=True)
    h = torch.randn(5, 3, requires_grad=True)
    out = copy(x, noisy(h))
    assert torch.equal(out, torch.tanh(h))
    out.sum().backward()
    assert torch.equal(noisy.a.grad, torch.zeros(3))
    assert torch.equal(copy.projection.weight.grad, torch.zeros(3, 4))
    torch.testing.assert_close(h.grad, 1 - torch.tanh(h.detach()).square())
    assert torch.equal(noisy.eval()(h), torch.tanh(h))


def test_alone_idle_parameters_get_none():
    noisy = NoisyActivation("tanh", 3, level=0.0)
    noisy(torch.randn(5, 3, requires_grad=True)).sum().backward()
    assert noisy.a.grad is None


def test_it_shows_its_level():
    assert "level=0.25" in repr(Copy(level=0.25))
    assert repr(Copy(4, 3, residual=True)).startswith("Copy(\n  4 → 3, fixed, residual, level=1")
    assert repr(NoisyActivation(nn.LeakyReLU(0.3), 8, unit_dim=-3, level=0.5)) == (
        "NoisyActivation(leaky_relu(negative_slope=0.3), units=8, unit_dim=-3, c=20, level=0.5)"
    )
    assert repr(WeightNoise(0.1)) == "WeightNoise(std=0.1, mean=0, level=1)"


def test_the_old_name_works_for_one_release() -> None:
    with pytest.warns(DeprecationWarning, match="the old name will go with version 0.3"):
        assert mollifier.nn.Levelled is mollifier.nn.Annealed
    with pytest.raises(AttributeError, match="has no attribute 'Raised'"):
        mollifier.nn.Raised  # noqa: B018
