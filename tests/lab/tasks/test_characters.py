from __future__ import annotations

import pytest
import torch

from mollifier_lab.apply_method import apply_method
from tests.lab.conftest import MakeTask

CPU = torch.device("cpu")


class Fixed(torch.nn.Module):
    """Says the same of every word."""

    def __init__(self, vector: torch.Tensor) -> None:
        super().__init__()
        self.vector = vector

    def forward(self, characters: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.vector.expand(len(characters), -1)


def test_vectors_are_standardised_by_the_training_words(make_task: MakeTask) -> None:
    task = make_task("characters")
    assert [len(task.sets[split]) for split in ("train", "valid", "test")] == [40, 10, 10]
    _, lengths, vectors = task.some("train", torch.arange(40))
    torch.testing.assert_close(vectors.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.var(0, unbiased=False), torch.ones(6))
    assert lengths.tolist() == [len(word) for word in task.sets["train"].words]
    mean = Fixed(torch.zeros(6))
    assert task.evaluate(mean, "train", CPU)["loss"] == pytest.approx(1.0, rel=1e-5)


def test_cosine_is_of_the_vectors_in_the_file(make_task: MakeTask) -> None:
    task = make_task("characters")
    vectors = task.sets["valid"].vectors
    guess = torch.arange(6.0)
    found = task.evaluate(Fixed((guess - task.mean) / task.std), "valid", CPU)
    cosine = (vectors @ guess) / (vectors.norm(dim=1) * guess.norm())
    assert found["cosine"] == pytest.approx(1 - cosine.mean().item(), rel=1e-4)


def test_the_loss_of_a_batch(make_task: MakeTask) -> None:
    task = make_task("characters")
    model = task.model()
    characters, lengths, vectors = task.batch(0)
    expected = (model(characters, lengths) - vectors).square().mean()
    torch.testing.assert_close(task.loss(model, (characters, lengths, vectors)), expected)
    assert characters.shape[1] == int(lengths.max())


def test_a_mollified_network_with_batch_norm_is_recalibrated(make_task: MakeTask) -> None:
    task = make_task("characters", "mollified-bn")
    model = task.model()
    apply_method(model, task.config)
    before = model.mlp[1].running_mean.clone()
    task.recalibrate(model, CPU)
    assert not torch.equal(model.mlp[1].running_mean, before)
    again = make_task("characters", "mollified-bn")
    again.load_state_dict(task.state_dict())
    assert again.statistics.measured == [1.0] * 4
