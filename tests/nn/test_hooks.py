"""Somebody else's function and somebody else's hooks: the kernels stand in for neither."""

import copy
import pickle

import pytest
import torch
from torch import nn

import mollifier
from mollifier.activations import Activation, activation
from mollifier.nn import Copy, NoisyActivation
from tests.helpers import mlp


def double_relu(x):
    return 2.0 * torch.relu(x)


OWN = Activation("relu", double_relu, 2.0, 0.0)


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_an_activation_with_a_name_of_the_table_trains_with_its_own_function(level):
    """With a = 0 there is no noise, so that training computes the function itself."""
    unit, x = NoisyActivation(OWN, 5, a=(0.0, 0.0), level=level), torch.randn(7, 5)
    for each in (unit, copy.deepcopy(unit), pickle.loads(pickle.dumps(unit))):
        for training in (True, False):
            torch.testing.assert_close(each.train(training)(x), double_relu(x))
    block = nn.Sequential(nn.Linear(5, 5), unit)
    torch.testing.assert_close(block(x), double_relu(block[0](x)))


def test_another_tangent_is_somebody_elses_too():
    steep = Activation("tanh", torch.tanh, 3.0, 0.0)
    unit = NoisyActivation(steep, 5, level=1.0, push="odds")
    x = torch.randn(7, 5)
    torch.testing.assert_close(unit(x), 3.0 * x)
    assert not mollifier.ops.knows(steep)
    assert mollifier.ops.knows(copy.deepcopy(activation("tanh")))


def parts(model, kind):
    return [part for part in model.modules() if isinstance(part, kind)]


@pytest.mark.parametrize("kind", [Copy, NoisyActivation])
@pytest.mark.parametrize("way", ["forward", "pre", "backward", "backward_pre"])
@pytest.mark.parametrize("backend", ["native", "eager"])
def test_hooks_on_our_own_parts_fire_in_training_as_in_eval(kind, way, backend, monkeypatch):
    if backend == "eager":
        monkeypatch.setattr("mollifier.ops._library.LIBRARY", None)
    model, x = mollifier.mollify(mlp(4, 5, 5, 1), level=0.5), torch.randn(7, 4, requires_grad=True)
    called = []
    for number, part in enumerate(parts(model, kind)):
        register = {
            "forward": part.register_forward_hook,
            "pre": part.register_forward_pre_hook,
            "backward": part.register_full_backward_hook,
            "backward_pre": part.register_full_backward_pre_hook,
        }[way]
        register(lambda *_, number=number: called.append(number))
    for training in (True, False):
        called.clear()
        model.train(training)(x).sum().backward()
        assert sorted(called) == [0, 1]


@pytest.mark.parametrize("way", ["register_forward_hook", "register_full_backward_hook"])
def test_hooks_on_the_copies_of_a_recurrent_module(way):
    lstm, x = mollifier.mollify(nn.LSTM(4, 4, bidirectional=True), level=0.5), torch.randn(3, 2, 4, requires_grad=True)
    called = []
    for part in parts(lstm, Copy):
        getattr(part, way)(lambda *_: called.append(1))
    for training in (True, False):
        called.clear()
        lstm.train(training)(x)[0].sum().backward()
        assert len(called) == 2
