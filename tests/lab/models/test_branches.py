from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from mollifier_lab.models.branches import Highway, Residual, ResidualRecurrent, Survival, survivals


def test_survival_falls_linearly_to_the_last() -> None:
    assert [each.probability for each in survivals(3, last=0.4)] == pytest.approx([0.8, 0.6, 0.4])
    assert all(each.per_sample for each in survivals(3, last=0.4, per_sample=True))


def test_residual_adds_its_input() -> None:
    body, x = nn.Linear(3, 3), torch.randn(4, 3)
    assert torch.equal(Residual(body)(x), x + body(x))


def test_one_draw_a_batch() -> None:
    layer, x = Residual(nn.Linear(3, 3), Survival(0.3)), torch.randn(50, 3)
    kept = 0
    for _ in range(400):
        out = layer(x)
        if not torch.equal(out, x):
            assert torch.equal(out, x + layer.body(x))  # for all samples or for none
            kept += 1
    assert abs(kept / 400 - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 400)


def test_one_draw_a_sample() -> None:
    layer, x = Residual(nn.Linear(3, 3), Survival(0.3, per_sample=True)), torch.randn(4000, 3)
    out = layer(x)
    kept = (out != x).any(1)
    assert abs(kept.double().mean().item() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 4000)
    torch.testing.assert_close(out, torch.where(kept[:, None], x + layer.body(x), x))
    image = Residual(nn.Conv2d(2, 2, 1), Survival(0.5, per_sample=True))(torch.randn(4, 2, 3, 3))
    assert image.shape == (4, 2, 3, 3)


@pytest.mark.parametrize("per_sample", [False, True])
def test_eval_scales_by_the_probability_and_draws_nothing(per_sample: bool) -> None:
    layer = Residual(nn.Linear(3, 3), Survival(0.3, per_sample=per_sample)).eval()
    x, state = torch.randn(4, 3), torch.get_rng_state()
    torch.testing.assert_close(layer(x), x + 0.3 * layer.body(x))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("per_sample", [False, True])
def test_a_dropped_layer_has_gradients_of_zero(per_sample: bool) -> None:
    layer = Residual(nn.Linear(3, 3), Survival(1e-9, per_sample=per_sample))
    x = torch.randn(4, 3, requires_grad=True)
    layer(x).sum().backward()
    assert all(torch.equal(each.grad, torch.zeros_like(each)) for each in layer.parameters())  # DDP waits for them
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_dropped_recurrent_layer_goes_on_in_time() -> None:
    lstm, x = nn.LSTM(3, 3, batch_first=True), torch.randn(2, 4, 3)
    out, (h, c) = ResidualRecurrent(lstm, Survival(1e-9))(x)
    assert torch.equal(out, x)
    assert torch.equal(h, lstm(x)[1][0])
    out, _ = ResidualRecurrent(lstm)(x, (h, c))
    assert torch.equal(out, x + lstm(x, (h, c))[0])
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in lstm.parameters())


def test_highway_mixes_by_its_gate() -> None:
    body, x = nn.Sequential(nn.Linear(3, 3), nn.Tanh()), torch.randn(4, 3)
    layer = Highway(body, 3)
    assert torch.equal(layer.gate.bias, torch.full((3,), -2.0))
    gate = torch.sigmoid(x @ layer.gate.weight.T - 2.0)
    torch.testing.assert_close(layer(x), gate * body(x) + (1 - gate) * x)
