from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from mollifier_lab.errors import LabError
from mollifier_lab.tasks.ptb import stretches
from tests.lab.conftest import MakeTask

CPU = torch.device("cpu")


def test_windows_follow_each_other_and_targets_are_the_next_words(make_task: MakeTask) -> None:
    task = make_task("ptb")
    count = task.epoch_length
    windows = [task.batch(update) for update in range(count)]
    words = torch.cat([window[0] for window in windows], 1)
    targets = torch.cat([window[1] for window in windows], 1)
    assert words.shape == (4, 5 * count)
    assert torch.equal(words[:, 1:], targets[:, :-1])  # over the windows' ends, too
    assert torch.equal(words, task.rows[:, : 5 * count])
    assert [bool(window[2].all()) for window in windows] == [False] + [True] * (count - 1)
    assert all(torch.equal(a, b) for a, b in zip(task.batch(count), windows[0], strict=True))  # the next epoch


def test_the_state_is_carried_and_starts_anew_with_an_epoch(make_task: MakeTask) -> None:
    task = make_task("ptb")
    model = task.model()
    first = task.loss(model, task.batch(0)).item()
    second = task.loss(model, task.batch(1)).item()
    words = torch.cat([task.batch(0)[0], task.batch(1)[0]], 1)
    logits = model(words)[0][:, 5:]
    assert second == pytest.approx(F.cross_entropy(logits.flatten(0, 1), task.batch(1)[1].flatten()).item(), rel=1e-5)
    assert task.loss(model, task.batch(task.epoch_length)).item() == pytest.approx(first, rel=1e-6)


def test_the_state_is_saved(make_task: MakeTask) -> None:
    task = make_task("ptb")
    assert task.state_dict() == {}
    model = task.model()
    task.loss(model, task.batch(0))
    state = task.state_dict()
    expected = task.loss(model, task.batch(1)).item()
    again = make_task("ptb")
    again.load_state_dict(state)
    assert again.loss(model, again.batch(1)).item() == expected
    again.load_state_dict({})
    assert again.loss(model, again.batch(1)).item() != expected


def test_the_gradient_is_that_of_the_sum_over_steps(make_task: MakeTask) -> None:
    task = make_task("ptb")
    model = task.model()
    words, targets, keep = task.batch(0)
    loss = task.loss(model, (words, targets, keep))
    zaremba = F.cross_entropy(model(words)[0].flatten(0, 1), targets.flatten(), reduction="sum") / len(words)
    assert (loss * task.scale).item() == pytest.approx(zaremba.item(), rel=1e-5)


def test_perplexity_is_of_every_word_but_the_first(make_task: MakeTask) -> None:
    task = make_task("ptb")
    model = task.model().eval()
    uniform = task.model().eval()
    for parameter in uniform.output.parameters():
        torch.nn.init.zeros_(parameter)
    assert task.evaluate(uniform, "test", CPU)["perplexity"] == pytest.approx(task.words, rel=1e-5)
    text = task.texts["valid"]
    found = task.evaluate(model, "valid", CPU)
    words, targets = stretches(text, 20)
    logits = model(words)[0]
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / (len(text) - 1)
    assert found["loss"] == pytest.approx(nll.item(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(nll.exp().item(), rel=1e-5)


@pytest.mark.parametrize(("count", "rows"), [(2, 20), (7, 3), (8, 3), (100, 20), (102, 20)])
def test_stretches_hold_every_pair_once(count: int, rows: int) -> None:
    words, targets = stretches(torch.arange(count), rows)
    assert len(words) <= rows
    kept = targets != -100
    assert torch.equal(words[kept], torch.arange(count - 1))
    assert torch.equal(targets[kept], torch.arange(1, count))


def test_the_learning_rate_is_halved_by_epoch(make_task: MakeTask) -> None:
    task = make_task("ptb", decay_after=2)
    length = task.epoch_length
    assert [task.lr_factor(epoch * length) for epoch in range(5)] == [1.0, 1.0, 0.5, 0.25, 0.125]
    assert task.lr_factor(2 * length - 1) == 1.0


def test_tokens_cut_the_text_and_too_few_are_named(make_task: MakeTask) -> None:
    assert make_task("ptb", tokens=100).rows.shape == (4, 25)
    with pytest.raises(LabError, match="20 words in 4 parts are less than a window of 5 steps"):
        make_task("ptb", tokens=20)
