"""The adding problem."""

from __future__ import annotations

import pytest
import torch

from mollifier.nn import HardSigmoidGRU, HardSigmoidLSTM
from mollifier_lab import tasks
from mollifier_lab.errors import LabError
from mollifier_lab.settings import RunConfig


def task(**changes):
    return tasks.make(RunConfig.make("adding", "plain", **changes))


def test_a_batch_is_a_function_of_the_seed_and_the_update():
    one, two = task(steps=20), task(steps=20)
    two.batch(7)
    for mine, other in zip(one.batch(3), two.batch(3), strict=True):
        assert torch.equal(mine, other)
    assert not torch.equal(one.batch(3)[0], one.batch(4)[0])


def test_one_number_of_each_half_is_marked():
    inputs, sums = task(steps=11, batch=64).batch(0)
    marks = inputs[..., 1]
    assert torch.equal(marks[:, :5].sum(1), torch.ones(64))
    assert torch.equal(marks[:, 5:].sum(1), torch.ones(64))
    assert torch.allclose((inputs[..., 0] * marks).sum(1, keepdim=True), sums)


def test_guessing_the_mean_is_chance():
    class Mean(torch.nn.Module):
        def forward(self, x):
            return torch.ones(len(x), 1)

    found = task().evaluate(Mean(), "test", torch.device("cpu"))
    assert found["loss"] == pytest.approx(task().settings.chance, rel=0.05)


def test_a_tanh_rnn_has_no_gates():
    with pytest.raises(LabError, match="gates='hard-sigmoid': expected 'sigmoid': a tanh RNN has no gates"):
        task(gates="hard-sigmoid")
    for cell, kind in (("gru", HardSigmoidGRU), ("lstm", HardSigmoidLSTM)):
        assert isinstance(task(gates="hard-sigmoid", cell=cell).model().layer, kind)
