"""Initial weights, steps and the sum of a sequence."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier.nn import HardSigmoid, Step
from mollifier_lab.apply_method import apply_method, finish
from mollifier_lab.errors import LabError
from mollifier_lab.models import mlp, resnet
from mollifier_lab.models.initialisation import (
    centre,
    critical_gain,
    delta_orthogonal,
    hidden_layers,
    orthogonal,
    unit_variance,
)
from mollifier_lab.models.sequence import SequenceSum
from mollifier_lab.settings import RunConfig


def test_the_output_and_the_gates_of_highways_are_left_alone():
    model = mlp(6, 2, width=6, depth=3, architecture="highway")
    before = copy.deepcopy(model.state_dict())
    orthogonal(model, 1.5)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"0.0.weight", "1.body.0.weight", "2.body.0.weight"}
    assert len(hidden_layers(model)) == 3


def test_lsuv_gives_every_layer_unit_variance():
    torch.manual_seed(0)
    x = torch.rand(200, 10)
    model = mlp(10, 2, width=40, depth=5)
    orthogonal(model)
    unit_variance(model, x)
    for number in range(0, 9, 2):
        assert model[: number + 1](x).std().item() == pytest.approx(1.0, abs=0.05)
    assert not any(part._forward_hooks for part in model.modules())


def test_a_layer_that_does_not_vary_is_left_alone():
    model = mlp(3, 1, width=3, depth=1)
    before = model[0].weight.clone()
    unit_variance(model, torch.zeros(4, 3))
    assert torch.equal(model[0].weight, before)


def steps(method: str) -> tuple[torch.nn.Module, mollifier.Annealer | None, RunConfig]:
    config = RunConfig.make("mnist", method, activation="step", depth=3, width=8)
    model = mlp(5, 2, width=8, depth=3, activation="step")
    return model, apply_method(model, config), config


@pytest.mark.parametrize("method", ["mollified", "mollified-deterministic"])
def test_steps_are_mollified_and_come_back(method: str):
    torch.manual_seed(0)
    model, annealer, _ = steps(method)
    names = {name for name, _ in mlp(5, 2, width=8, depth=3, activation="step").named_parameters()}
    assert annealer is not None
    assert annealer.levels == [1.0] * 3
    x = torch.randn(4, 5)
    mollifier.set_level(model, 0.5)
    assert torch.equal(model(x), model(x)) == (method == "mollified-deterministic")
    model(x).sum().backward()
    finish(model, annealer)
    assert {name for name, _ in model.named_parameters()} == names
    assert set(model[:6](x).unique().tolist()) <= {0.0, 1.0}


def test_other_methods_train_steps_by_their_weak_derivative():
    for method, annealed in (("plain", False), ("residual", False), ("batch-norm", False)):
        config = RunConfig.make("mnist", method, activation="step", depth=3, width=8)
        model = mlp(5, 2, width=8, depth=3, activation="step", architecture=config.spec.architecture)
        assert (apply_method(model, config) is not None) == annealed
        model(torch.randn(4, 5)).sum().backward()
        assert all(part.weight.grad.abs().sum() > 0 for part in hidden_layers(model))
        finish(model)
        assert all(not part.active for part in model.modules() if isinstance(part, Step))


def test_what_has_no_meaning_for_steps_is_refused():
    with pytest.raises(LabError, match="activations, recurrent: has no meaning for steps"):
        steps("copy")


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_recurrent_weights_are_orthogonal_for_each_gate(cell):
    model = SequenceSum(cell, 6, orthogonal=True)
    for weight in model.layer.weight_hh_l0.split(6):
        assert torch.allclose(weight @ weight.T, torch.eye(6), atol=1e-5)


def test_centred_biases_let_a_signal_through_deep_sigmoid_networks():
    torch.manual_seed(0)
    off, centred = (mlp(30, 1, width=100, depth=10, gain=4.0) for _ in range(2))
    centre(centred, nn.Sigmoid())
    assert not centred[0].bias.any()  # inputs are what they are
    x = torch.rand(200, 30)
    with (
        torch.no_grad()
    ):  # how much of the differences between samples is left in the pre-activations of the tenth layer
        signal = [float(model[:19](x).std(dim=0).mean()) for model in (off, centred)]
    assert signal[1] > 5 * signal[0]
    tanh = mlp(30, 1, width=100, depth=3, activation="tanh")
    centre(tanh, nn.Tanh())
    assert not any(part.bias.any() for part in tanh if isinstance(part, nn.Linear))  # 0 at 0: nothing to centre


@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.Tanh(), HardSigmoid()], ids=lambda each: type(each).__name__)
def test_at_the_critical_gain_a_small_signal_keeps_its_length_through_fifty_layers(activation: nn.Module) -> None:
    torch.manual_seed(0)
    x = 0.02 * torch.randn(64, 100)
    model = mlp(100, 1, width=100, depth=50)
    body = nn.Sequential(*(each for layer in hidden_layers(model) for each in (layer, activation)))
    critical = critical_gain(activation)

    @torch.no_grad()
    def passed(gain: float) -> float:
        orthogonal(model, gain * critical)
        centre(model, activation)
        return float((body(x) - activation(torch.zeros(()))).norm() / x.norm())

    assert 0.8 < passed(1.0) < 1.02
    assert passed(0.5) < 1e-4


def test_delta_orthogonal_convolutions_let_a_signal_through_a_deep_network_without_shortcuts() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 8, 16, 16)
    he, delta = (nn.Sequential(*resnet(110, width=8, architecture="plain", normalised=False)[3:21]) for _ in range(2))
    delta_orthogonal(delta)
    with torch.no_grad():  # how far apart two images are after 36 convolutions, beside their size
        spread = [float((out - out.mean(0)).norm() / out.norm()) for out in (he(x), delta(x))]
    assert spread[1] > 2 * spread[0]
