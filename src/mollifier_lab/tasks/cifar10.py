"""CIFAR-10: which of ten things does an image show?"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from mollifier_lab.data import cifar10
from mollifier_lab.data.folder import data_folder
from mollifier_lab.models import resnet
from mollifier_lab.models.initialisation import delta_orthogonal
from mollifier_lab.settings import Cifar10
from mollifier_lab.tasks.base import Batch
from mollifier_lab.tasks.classification import Classification


class Cifar10Task(Classification[Cifar10]):
    """A ResNet, trained on shifted and mirrored images. The learning rate is divided by ten after half and three quarters of training."""

    outputs = 10
    chunk = 250  # larger batches take twice as long on a CPU

    def load(self, data: Path | None) -> None:
        found = cifar10.load(data_folder(data))
        parts = {"train": found.train[: self.settings.train], "valid": found.valid, "test": found.test}
        self.sets = {split: (part.inputs, part.labels) for split, part in parts.items()}

    def model(self) -> nn.Module:
        given = self.settings
        model = resnet(given.depth, width=given.width, **self.architecture(), normalised=given.normalised)
        if given.init == "delta-orthogonal":
            delta_orthogonal(model)
        return model

    def batch(self, update: int) -> Batch:
        images, labels = super().batch(update)
        return cifar10.augment(images, self.generator(update)), labels

    def prepare(self, inputs: Tensor) -> Tensor:
        # channels last: on the CPU a step of ResNet-20 then takes four fifths of the time
        return cifar10.normalise(inputs).contiguous(memory_format=torch.channels_last)

    def lr_factor(self, update: int) -> float:
        done = update / self.updates()
        return 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01
