"""The table of activations: each with the tangent that it really has."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mollifier.activations import Activation, activation, names, of_function, of_module, tangent_at_zero
from mollifier.nn import HardSigmoid

NAMES = names()
X = torch.linspace(-7.0, 7.0, 141, dtype=torch.float64)
MODULES = [
    nn.Sigmoid(),
    nn.Hardsigmoid(),
    HardSigmoid(),
    nn.Tanh(),
    nn.Hardtanh(),
    nn.Hardtanh(-2.0, 3.0),
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.ReLU6(),
    nn.LeakyReLU(),
    nn.LeakyReLU(0.3),
    nn.ELU(),
    nn.ELU(0.5),
    nn.SELU(),
    nn.SiLU(),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.Softplus(),
    nn.Softplus(beta=2, threshold=5),
    nn.Softsign(),
    nn.Mish(),
]


def right_slope(act: Activation) -> float:
    """f's slope just right of 0, by differences of second order: the kinked ones have none at 0."""
    h = 1e-4
    f0, f1, f2 = act.f(torch.tensor([0.0, h, 2 * h], dtype=torch.float64)).tolist()
    return (-3 * f0 + 4 * f1 - f2) / (2 * h)


def test_all_that_the_paper_and_the_issue_name_are_there():
    paper = {"sigmoid", "hard_sigmoid", "hardsigmoid", "tanh", "hardtanh", "relu"}
    assert paper | {"leaky_relu", "elu", "selu", "silu", "gelu", "softplus", "softsign", "mish"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_tangent_of_a_name_is_its_tangent(name):
    act = activation(name)
    assert act.slope == pytest.approx(right_slope(act), abs=1e-6)
    assert act.offset == pytest.approx(float(act.f(torch.zeros((), dtype=torch.float64))), abs=1e-12)
    torch.testing.assert_close(act.u(X), act.slope * X + act.offset, rtol=0, atol=0)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_is_taken_over_with_its_options(module):
    act = activation(module)
    torch.testing.assert_close(act.f(X), module(X.clone()), rtol=0, atol=1e-15)
    assert act.slope == pytest.approx(right_slope(act), abs=1e-6)
    assert act.offset == pytest.approx(float(act.f(torch.zeros((), dtype=torch.float64))), abs=1e-12)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_it_is_never_in_place(module):
    x = X.clone()
    activation(module).f(x)
    assert torch.equal(x, X)


def test_options_change_f_and_the_tangent():
    assert activation(nn.LeakyReLU(0.3)).f(torch.tensor(-1.0)).item() == pytest.approx(-0.3)
    assert activation(nn.Softplus(beta=2)).offset == pytest.approx(math.log(2) / 2)
    assert activation(nn.Hardtanh(-2.0, 3.0)).f(torch.tensor([-9.0, 9.0])).tolist() == [-2.0, 3.0]
    assert activation(nn.ReLU6()).f(torch.tensor([-9.0, 9.0])).tolist() == [0.0, 6.0]
    assert not torch.equal(activation(nn.GELU("tanh")).f(X), activation(nn.GELU()).f(X))
    assert activation("leaky_relu", negative_slope=0.2).options == {"negative_slope": 0.2}


def test_the_two_hard_sigmoids_have_their_own_slopes():
    assert activation("hard_sigmoid").slope == 0.25
    assert activation("hardsigmoid").slope == pytest.approx(1 / 6)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_pickle_and_deepcopy_keep_it(module):
    act = activation(module)
    for again in (pickle.loads(pickle.dumps(act)), copy.deepcopy(act)):
        assert (again.name, again.options, again.slope, again.offset) == (act.name, act.options, act.slope, act.offset)
        assert torch.equal(again.f(X), act.f(X))


def test_it_shows_its_name_and_options():
    assert str(activation("sigmoid")) == "sigmoid"
    assert str(activation(nn.LeakyReLU(0.3))) == "leaky_relu(negative_slope=0.3)"


def test_an_activation_is_its_own_activation():
    act = activation("tanh")
    assert activation(act) is act


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (F.relu, (), {"inplace": True}, "relu"),
        (torch.relu_, (), {}, "relu"),
        (torch.tanh, (), {}, "tanh"),
        ("sigmoid_", (), {}, "sigmoid"),
        ("relu", (), {}, "relu"),
        (F.leaky_relu, (0.3,), {}, "leaky_relu(negative_slope=0.3)"),
        (F.leaky_relu, (), {"negative_slope": 0.3, "inplace": True}, "leaky_relu(negative_slope=0.3)"),
        (F.gelu, (), {"approximate": "tanh"}, "gelu(approximate=tanh)"),
        (F.hardtanh, (-2.0, 3.0), {}, "hardtanh(min_val=-2.0, max_val=3.0)"),
        (F.softplus, (2.0,), {}, "softplus(beta=2.0)"),
    ],
)
def test_functions_and_methods_are_found_with_their_arguments(function, args, kwargs, expected):
    assert str(of_function(function, args, kwargs)) == expected


def test_what_is_not_an_activation_is_none():
    assert of_module(nn.Linear(2, 2)) is None
    assert of_function(torch.exp) is None
    assert of_function("view") is None
    assert of_function([]) is None  # unhashable


def test_a_misspelt_name_gets_a_hint():
    with pytest.raises(ValueError, match=r"'sigmiod' is not a known activation. Did you mean 'sigmoid'\? Known: elu,"):
        activation("sigmiod")
    with pytest.raises(ValueError, match=r"'zzz' is not a known activation. Known: .*mollifier.register"):
        activation("zzz")


@pytest.mark.parametrize("spec", [nn.Linear(2, 2), torch.exp, len])
def test_anything_else_says_how_to_add_it(spec):
    with pytest.raises(ValueError, match=r"is not a known activation. Add it with mollifier.register"):
        activation(spec)


@pytest.mark.parametrize("bounds", [(1.0, 2.0), (-3.0, -1.0), (0.0, 0.0)])
def test_a_hardtanh_that_is_flat_at_0_is_refused(bounds):
    with pytest.raises(ValueError, match=r"flat at 0 and has no tangent"):
        activation("hardtanh", min_val=bounds[0], max_val=bounds[1])


def test_tangent_by_autograd():
    assert tangent_at_zero(torch.exp) == (1.0, 1.0)
    assert tangent_at_zero(lambda x: torch.full_like(x, 3.0).detach()) == (0.0, 3.0)
    with torch.no_grad():  # asked for in the middle of somebody's evaluation
        assert tangent_at_zero(torch.sigmoid) == (0.25, 0.5)


def test_the_activations_of_transformers_are_known_without_importing_it():
    from transformers import activations as hf

    for kind in (hf.GELUActivation, hf.NewGELUActivation, hf.FastGELUActivation, hf.GELUTanh, hf.SiLUActivation):
        module = kind()
        torch.testing.assert_close(activation(module).f(X), module(X), rtol=0, atol=1e-6)
