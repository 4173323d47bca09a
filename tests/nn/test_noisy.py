"""The noisy activation as a module, and the paper's hard-sigmoid."""

import pytest
import torch
from torch import nn

from mollifier import ops
from mollifier.activations import activation, names
from mollifier.functional import noisy_activation
from mollifier.nn import HardSigmoid, NoisyActivation
from mollifier.nn._annealed import FrozenNoise
from tests.helpers import normal_drawn

NAMES = names()


@pytest.mark.parametrize("name", NAMES)
def test_level_0_is_the_plain_activation(name):
    x = torch.randn(8, 5)
    unit = NoisyActivation(name, 5, level=0.0)
    for mode in (True, False):
        assert torch.equal(unit.train(mode)(x), activation(name).f(x))


@pytest.mark.parametrize("name", NAMES)
def test_eval_is_the_expected_value_and_train_a_sample(name):
    x = torch.randn(400, 5) * 3
    unit = NoisyActivation(name, 5, level=0.7, c=30.0)
    options = {"level": 0.7, "a": unit.a, "c": 30.0}
    torch.testing.assert_close(unit.eval()(x), noisy_activation(x, name, noise="expected", **options))
    unit.train()
    torch.manual_seed(5)
    one, fresh = unit(x), unit(x)
    torch.manual_seed(5)
    torch.testing.assert_close(one, noisy_activation(x, name, noise=normal_drawn(x), **options), rtol=1e-5, atol=1e-5)
    assert not torch.equal(one, fresh)
    unit.frozen = FrozenNoise(0)
    assert torch.equal(unit(x), unit(x))


def test_exact_noise_and_the_odds():
    x = torch.randn(9, 5) * 3
    unit = NoisyActivation("tanh", 5, level=0.5, train_noise="exact", eval_noise="exact", push="odds")
    exact = noisy_activation(x, "tanh", level=0.5, a=unit.a, noise="exact", push="odds")
    assert torch.equal(unit(x), exact)
    assert torch.equal(unit.eval()(x), exact)
    unit.set_level(1.0)
    assert torch.equal(unit(x), x)


@pytest.mark.parametrize(
    ("unit_dim", "shape"), [(-1, (2, 7, 5)), (-2, (2, 5, 7)), (-3, (2, 5, 3, 4)), (-4, (5, 3, 4, 2))]
)
def test_each_unit_has_its_own_a(unit_dim, shape):
    unit = NoisyActivation("sigmoid", 5, unit_dim=unit_dim, c=5.0).eval()
    with torch.no_grad():
        unit.a.copy_(torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]))
    out = unit(torch.full(shape, 4.0)).movedim(unit_dim, 0).flatten(1)
    assert (out == out[:, :1]).all()
    assert (out[1:, 0] > out[:-1, 0]).all()  # the larger a, the nearer to the tangent


def test_one_a_may_be_shared_by_any_shape():
    unit = NoisyActivation("relu")
    assert unit.a.shape == (1,)
    for shape in ((3,), (2, 4), (2, 3, 4, 5)):
        assert unit(torch.randn(shape)).shape == shape


def test_a_is_drawn_from_its_bounds_and_learned():
    unit = NoisyActivation("sigmoid", 5000)
    assert -2 <= unit.a.min() < -1.9
    assert 1.9 < unit.a.max() <= 2
    assert abs(unit.a.mean()) < 5 * (4 / 12**0.5) / 5000**0.5
    narrow = NoisyActivation("sigmoid", 50, a=(0.5, 0.6), dtype=torch.float64)
    assert narrow.a.dtype == torch.float64
    assert ((narrow.a >= 0.5) & (narrow.a <= 0.6)).all()
    unit(torch.randn(4, 5000) * 5).sum().backward()
    assert (unit.a.grad != 0).any()


@pytest.mark.parametrize("shape", [(4, 6), (2, 5, 3), ()])
def test_a_wrong_width_is_named(shape):
    with pytest.raises(
        ValueError, match=r"has 5 units on dimension -1, but its input has shape .* Give units=1 to share"
    ):
        NoisyActivation("tanh", 5)(torch.zeros(shape))


def test_too_few_dimensions_for_the_units():
    with pytest.raises(ValueError, match=r"5 units on dimension -3, but its input has shape \(2, 5\)"):
        NoisyActivation("tanh", 5, unit_dim=-3)(torch.zeros(2, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"units": 0}, r"units=0, unit_dim=-1: expected units >= 1"),
        ({"unit_dim": 1}, r"unit_dim=1: expected units >= 1 and unit_dim < 0"),
        ({"a": (2.0, -2.0)}, r"a=\(2.0, -2.0\).*expected a = \(low, high\)"),
        ({"c": -1.0}, r"c=-1.0: expected .* c >= 0"),
        ({"activation": "sigmiod"}, r"Did you mean 'sigmoid'"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        NoisyActivation(**options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_input_decides_the_dtype(dtype):
    unit = NoisyActivation("tanh", 5, level=0.5)
    for mode in (True, False):
        assert unit.train(mode)(torch.randn(3, 5).to(dtype)).dtype == dtype


def test_options_of_the_module_are_taken_over():
    x = torch.randn(6, 5)
    assert torch.equal(NoisyActivation(nn.LeakyReLU(0.3), 5, level=0.0)(x), nn.LeakyReLU(0.3)(x))


def test_hard_sigmoid_is_the_papers():
    x = torch.tensor([-9.0, -2.0, -1.0, 0.0, 1.0, 2.0, 9.0])
    assert HardSigmoid()(x).tolist() == [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    unit = NoisyActivation(HardSigmoid(), 7, c=1e6).eval()
    torch.testing.assert_close(unit(x), 0.25 * x + 0.5)


@pytest.mark.skipif(ops.info().backend == "reference", reason="the reference never looks at the level")
def test_a_level_that_has_reached_0_draws_nothing_though_the_module_is_not_told():
    unit, x = NoisyActivation("sigmoid", units=3, level=0.5), torch.randn(4, 3)
    unit.level.zero_()
    before = torch.get_rng_state()
    assert torch.equal(unit(x), torch.sigmoid(x))
    assert torch.equal(torch.get_rng_state(), before)
