"""Peak memory of a training step by the eager functions against the plain one, in allocated bytes."""

import copy

import pytest
import torch
from torch import nn

import mollifier
from tests.kernels.native.test_memory import peak, resnet110

pytestmark = pytest.mark.usefixtures("eager")


def test_an_lstm_stays_within_1_3_times():
    plain = nn.LSTM(64, 64, num_layers=2)
    ours = mollifier.mollify(copy.deepcopy(plain), level=0.5)
    x = torch.randn(35, 20, 64)

    def step(module):
        return lambda: module(x)[0].square().mean().backward()

    assert peak(step(ours)) <= 1.3 * peak(step(plain))


def test_a_residual_network_of_110_layers_stays_within_1_3_times():
    plain = resnet110()
    ours = mollifier.mollify(copy.deepcopy(plain), level=0.5, example=torch.randn(2, 3, 16, 16))
    x = torch.randn(16, 3, 16, 16)

    def step(model):
        return lambda: model(x).square().mean().backward()

    assert peak(step(ours)) <= 1.3 * peak(step(plain))
