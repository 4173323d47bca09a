"""Bad input gets one clear error."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from mollifier.smoothing import Sigma, draw_noise, loss_of, mollified_loss, mollified_value, weak_gradient

THETA = {"x": torch.ones(3), "y": torch.ones(2)}
ESTIMATES = [mollified_loss, mollified_value, weak_gradient]


def good(p: dict[str, Tensor]) -> Tensor:
    return p["x"].square().sum() + p["y"].sum()


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize("sigma", [0, 0.0, -1.0, math.nan, math.inf, torch.tensor(0.0), torch.tensor(math.nan)])
def test_sigma_must_be_above_zero(estimate: Any, sigma: Any) -> None:
    with pytest.raises(ValueError, match=r"sigma is .*: expected a number above 0"):
        estimate(good, THETA, sigma)
    with pytest.raises(ValueError, match=r"sigma of 'y' is .*: expected a number above 0"):
        estimate(good, THETA, {"x": 1.0, "y": sigma})


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "samples=0: expected a whole number above 0"),
        ({"samples": -2}, "samples=-2"),
        ({"samples": 2.0}, "samples=2.0"),
        ({"samples": 7}, "samples=7: antithetic samples come in pairs"),
        ({"kernel": "box"}, "kernel='box': expected one of gaussian, bump, uniform"),
        ({"chunk": 0}, "chunk=0"),
    ],
)
def test_options(estimate: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(good, THETA, 0.1, **options)


@pytest.mark.parametrize("estimate", ESTIMATES)
@pytest.mark.parametrize(
    ("sigma", "message"),
    [
        (torch.ones(3), "sigma has shape \\(3,\\)"),
        ({"z": 0.1}, "\\['z'\\] names none of the parameters \\['x', 'y'\\]"),
    ],
)
def test_sigma_of_the_wrong_form(estimate: Any, sigma: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimate(good, THETA, sigma)


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("estimate", ESTIMATES)
def test_losses_that_are_no_numbers(estimate: Any, chunk: int | None) -> None:
    for loss, message in (
        (lambda p: 1.0, "returned float 1.0: expected a tensor"),
        (lambda p: None, "returned NoneType"),
        (lambda p: p["x"], "shape \\(3,\\): expected one"),
        (lambda p: p["x"].sum().long(), "torch.int64"),
    ):
        with pytest.raises(TypeError, match=message):
            estimate(loss, THETA, 0.1, chunk=chunk)


@pytest.mark.parametrize("chunk", [1, None])
@pytest.mark.parametrize("estimate", ESTIMATES)
def test_losses_that_are_not_finite(estimate: Any, chunk: int | None) -> None:
    for loss in (lambda p: p["x"].log().sum(), lambda p: p["x"].sum() / 0.0):
        with pytest.raises(ValueError, match=r"not finite .* is sigma too large"):
            estimate(loss, THETA, 5.0, chunk=chunk)


def test_no_parameters_and_no_batch() -> None:
    with pytest.raises(ValueError, match="the dict is empty"):
        mollified_loss(good, {}, 0.1)
    with pytest.raises(ValueError, match="expected a batch"):
        loss_of(nn.Linear(1, 1), mse_loss)
    with pytest.raises(ValueError, match="Tanh has no parameters"):
        loss_of(nn.Tanh(), mse_loss, torch.ones(1), torch.ones(1))


def test_standard_errors_need_two_draws() -> None:
    for estimate in (mollified_value, weak_gradient):
        with pytest.raises(ValueError, match="needs two draws"):
            estimate(good, THETA, 0.1, samples=2)


def test_uniform_has_no_weak_gradient_and_says_what_to_use() -> None:
    with pytest.raises(ValueError, match=r"flat inside and jumps .* Use 'gaussian' or 'bump'"):
        weak_gradient(good, THETA, 0.1, kernel="uniform")


def test_no_weak_gradient_at_the_end_of_annealing() -> None:
    with pytest.raises(ValueError, match="annealed to 0"):
        weak_gradient(good, THETA, Sigma(0.1, level=0.0))


def test_sigma_module() -> None:
    with pytest.raises(ValueError, match="Sigma is -1"):
        Sigma(-1.0)
    assert "largest=0.5, level=1" in repr(Sigma(0.5))
    assert Sigma(0.5, level=0.5)() == 0.25


def test_noise_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="samples=True"):
        draw_noise(True)
