from __future__ import annotations

import torch

from tests.lab.conftest import MakeTask


def test_pixels_from_0_to_1(make_task: MakeTask) -> None:
    task = make_task("mnist")
    x, y = task.batch(0)
    assert x.shape == (4, 784)
    assert (x.dtype, y.dtype) == (torch.uint8, torch.int64)
    ready = task.prepare(x)
    assert torch.equal(ready, x.float() / 255)
    assert int(x.max()) > 1  # what is stored stays as it is
    model = task.model()
    expected = torch.nn.functional.cross_entropy(model(x / 255), y)
    torch.testing.assert_close(task.loss(model, (x, y)), expected)


def test_the_error_counts(make_task: MakeTask) -> None:
    task = make_task("mnist")
    _, labels = task.sets["valid"]
    zeros = torch.nn.Linear(784, 10)
    torch.nn.init.zeros_(zeros.weight)
    with torch.no_grad():
        zeros.bias.copy_(torch.eye(10)[3])
    found = task.evaluate(zeros, "valid", torch.device("cpu"))
    assert found["error"] == int((labels != 3).sum()) / 20
