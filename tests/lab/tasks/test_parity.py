from __future__ import annotations

import pytest
import torch

from tests.lab.conftest import MakeTask


def test_fixed(make_task: MakeTask) -> None:
    task = make_task("parity", samples=10, batch=5)
    inputs, _ = task.sets["train"]
    assert inputs.shape == (10, 6)
    assert task.epoch_length == 2
    rows = {tuple(row.tolist()) for row in inputs}
    for update in range(4):
        x, y = task.batch(update)
        assert {tuple(row.tolist()) for row in x} <= rows
        assert torch.equal(y[:, 0], ((x > 0).sum(1) % 2).float())


@pytest.mark.parametrize("data", ["fresh", "variable", "prefix"])
def test_new_samples_at_every_update(data: str, make_task: MakeTask) -> None:
    task = make_task("parity", kind=data, bits=40)
    (x, y), (other, _) = task.batch(0), task.batch(1)
    assert not torch.equal(x, other)
    assert torch.equal(y[:, 0], ((x > 0).sum(1) % 2).float())
    assert bool((x == 0).any()) == (data in ("variable", "prefix"))
    model = task.model().eval()
    assert task.evaluate(model, "train", torch.device("cpu")).keys() == {"nll", "error"}


def test_metrics(make_task: MakeTask) -> None:
    task = make_task("parity", samples=20)
    x, y = task.sets["train"]
    answer = torch.nn.Linear(6, 1)

    class Odd(torch.nn.Module):
        """Right but for the first sample, and always with the same confidence."""

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            sign = 2.0 * ((inputs > 0).sum(1, keepdim=True) % 2) - 1
            return 2.0 * torch.where((inputs == x[0]).all(1, keepdim=True), -sign, sign)

    found = task.evaluate(Odd(), "train", torch.device("cpu"))
    wrong = int((x == x[0]).all(1).sum())
    assert found["error"] == pytest.approx(wrong / 20)
    right_nll, wrong_nll = torch.nn.functional.softplus(torch.tensor([-2.0, 2.0])).tolist()
    assert found["nll"] == pytest.approx((wrong * wrong_nll + (20 - wrong) * right_nll) / 20, rel=1e-5)
    loss = task.loss(answer, (x, y))
    assert loss.item() == pytest.approx(task.evaluate(answer, "train", torch.device("cpu"))["nll"], rel=1e-5)


def test_test_samples_are_others(make_task: MakeTask) -> None:
    task = make_task("parity", bits=40)
    assert not torch.equal(task.sets["train"][0][:12], task.sets["test"][0][:12])
