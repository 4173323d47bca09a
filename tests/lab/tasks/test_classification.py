from __future__ import annotations

import pytest
import torch

from mollifier_lab.apply_method import apply_method
from tests.lab.conftest import MakeTask

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["parity", "mnist"])
def test_chunks_make_no_difference(name: str, make_task: MakeTask) -> None:
    task = make_task(name)
    model = task.model().eval()
    whole = task.evaluate(model, "test", CPU)
    task.chunk = 7
    assert task.evaluate(model, "test", CPU) == pytest.approx(whole, rel=1e-5)


def test_mlps_with_batch_norm_are_recalibrated_too(make_task: MakeTask) -> None:
    task = make_task("parity", "mollified-bn")
    model = task.model()
    apply_method(model, task.config)
    before = model[1].running_mean.clone()
    task.recalibrate(model, CPU)
    assert not torch.equal(model[1].running_mean, before)
    assert task.state_dict() == {"levels": [1.0] * 3}


def test_the_method_and_the_settings_decide_the_network(make_task: MakeTask) -> None:
    task = make_task("mnist", "stochastic-depth-sample", survival=0.3, activation="tanh", gain=2.0)
    model = task.model()
    assert model[-2].survival.probability == pytest.approx(0.3)
    assert model[-2].survival.per_sample
    assert isinstance(model[0][1], torch.nn.Tanh)
    assert model[0][0].weight.abs().max() > (6 / 792) ** 0.5
    dropout = make_task("mnist", "dropout", dropout=0.35).model()
    assert dropout[2].p == 0.35
