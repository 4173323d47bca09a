"""MNIST: which digit does an image show?"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from mollifier_lab.data import mnist
from mollifier_lab.data.folder import data_folder
from mollifier_lab.models.initialisation import centre, critical_gain, orthogonal, unit_variance
from mollifier_lab.models.mlp import ACTIVATIONS
from mollifier_lab.models.tailored import tailor
from mollifier_lab.settings import Mnist
from mollifier_lab.tasks.classification import Classification


class MnistTask(Classification[Mnist]):
    """50,000 images for training, 10,000 for validation. They are stored as bytes, and read as numbers from 0 to 1."""

    inputs = 28 * 28
    outputs = 10

    def load(self, data: Path | None) -> None:
        found = mnist.load(data_folder(data))
        parts = {"train": found.train, "valid": found.valid, "test": found.test}
        self.sets = {split: (part.inputs.flatten(1), part.labels) for split, part in parts.items()}

    def model(self) -> nn.Module:
        model, given = super().model(), self.settings
        activation = ACTIVATIONS[given.activation]()
        if given.init in ("orthogonal", "lsuv"):
            orthogonal(model, given.gain)
        elif given.init == "isometric":
            orthogonal(model, given.gain * critical_gain(activation))
        if given.init in ("centred", "isometric"):
            centre(model, activation)
        if given.init == "lsuv":
            unit_variance(model, self.prepare(self.batch(0)[0]), given.gain)
        elif given.init == "dks":
            tailor(model, self.prepare(self.batch(0)[0]), given.gain)
        return model

    def lr_factor(self, update: int) -> float:
        return float(self.settings.lr_end ** min(1.0, update / (self.settings.lr_over * self.updates())))

    def prepare(self, inputs: Tensor) -> Tensor:
        return inputs.float().div_(255.0)
