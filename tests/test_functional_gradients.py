"""Gradients of the functional core, first and second, against differences, with the noise frozen."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from mollifier.activations import names
from mollifier.functional import copy_mix, noisy_activation


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """x on both sides of every kink of the table and off it, a per unit, and ξ."""
    x = torch.tensor([[-3.7, -1.6, -0.4], [0.3, 1.8, 4.1]], dtype=torch.float64, requires_grad=True)
    a = torch.tensor([-1.9, 0.8, 1.4], dtype=torch.float64, requires_grad=True)
    return x, a, torch.tensor([[0.3, -1.2, 0.7], [-0.2, 2.0, 0.9]], dtype=torch.float64)


@pytest.mark.parametrize("push", ["paper", "odds"])
@pytest.mark.parametrize("mode", ["frozen", "expected", "exact"])
@pytest.mark.parametrize("name", names())
def test_of_the_noisy_activation(name, mode, push):
    x, a, xi = inputs()

    def psi(x: Tensor, a: Tensor) -> Tensor:
        noise = xi if mode == "frozen" else mode
        return noisy_activation(x, name, level=0.6, a=a, c=5.0, noise=noise, push=push)

    assert gradcheck(psi, (x, a))
    assert gradgradcheck(psi, (x, a))


def test_the_noise_gives_a_its_gradient():
    x, a, xi = inputs()
    noisy_activation(x, "sigmoid", level=0.6, a=a, c=5.0, noise=xi).sum().backward()
    assert (a.grad != 0).all()


@pytest.mark.parametrize("mode", ["frozen", "expected", "exact"])
def test_of_the_copy_mix(mode):
    below, above = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    noise = torch.rand(4, 3, dtype=torch.float64) if mode == "frozen" else mode

    def mix(below: Tensor, above: Tensor) -> Tensor:
        # squared, so that there is a second derivative to check
        return copy_mix(below.square(), above.square(), level=0.4, noise=noise)

    assert gradcheck(mix, (below, above))
    assert gradgradcheck(mix, (below, above))


def test_a_copied_unit_sends_its_gradient_below_only():
    below, above = (torch.randn(50, requires_grad=True) for _ in range(2))
    draws = torch.rand(50)
    copy_mix(below, above, level=0.4, noise=draws).sum().backward()
    assert torch.equal(below.grad, (draws < 0.4).float())
    assert torch.equal(above.grad, (draws >= 0.4).float())


def test_of_the_level_where_the_mean_is_smooth_in_it():
    x, a, _ = inputs()
    level = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda p: noisy_activation(x, "tanh", level=p, a=a, c=5.0, noise="exact"), (level,))
    assert gradcheck(lambda p: copy_mix(x, -x, level=p, noise="expected"), (level,))
