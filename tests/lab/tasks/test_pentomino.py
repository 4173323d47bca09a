from __future__ import annotations

import torch

from mollifier_lab.data import pentomino
from tests.lab.conftest import MakeTask


def test_images_and_labels(make_task: MakeTask) -> None:
    task = make_task("pentomino")
    images, labels, _ = pentomino.generate(12, 735128712)
    assert task.epoch_length == 3
    x, y = task.sets["train"]
    assert torch.equal(x, torch.from_numpy(images))
    assert torch.equal(y[:, 0], torch.from_numpy(labels[:, 0] == 10).float())
    assert x.dtype == torch.uint8  # a quarter of the memory
    assert task.prepare(x).dtype == torch.float32
    assert task.model()[0].in_features == 4096
