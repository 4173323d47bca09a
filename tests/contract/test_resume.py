"""Row 7: saving and resuming mid-anneal continues bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mollifier

from .helpers import assert_equal, train
from .zoo import KINDS, Kind, by_name

UPDATES = 12
# By the loss and without an end; or to an end at update 8, which comes after the save or before it.
CASES = {
    "by the loss": ({"k": 5.0, "stop_at": 0}, 5),
    "ends later": ({"schedule": "linear", "horizon": 8}, 5),
    "ended before": ({"schedule": "linear", "horizon": 8}, 10),
}


def start(kind: Kind, seed: int, options: dict[str, Any]) -> tuple[nn.Module, Any, mollifier.Annealer]:
    """What a training script makes when it begins, whether it resumes or not."""
    model = kind.mollified(seed=seed).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return model, optimizer, mollifier.Annealer(model, **options)


@by_name(KINDS)
@pytest.mark.parametrize("case", CASES)
def test_resumed_run_equals_the_uninterrupted_one(kind: Kind, case: str, tmp_path: Path) -> None:
    options, stop = CASES[case]
    torch.manual_seed(0)
    model, optimizer, annealer = start(kind, 0, options)
    train(kind, model, optimizer, annealer, range(stop))
    assert annealer.finished == (case == "ended before")
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "annealer": annealer.state_dict()}
    torch.save({**parts, "random": torch.get_rng_state()}, tmp_path / "checkpoint.pt")
    losses = train(kind, model, optimizer, annealer, range(stop, UPDATES))
    assert annealer.finished == (case != "by the loss")

    torch.manual_seed(123)  # the new process knows nothing of the old one
    other_model, other_optimizer, other_annealer = start(kind, 9, options)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    other_model.load_state_dict(saved["model"], strict=True)
    other_optimizer.load_state_dict(saved["optimizer"])
    other_annealer.load_state_dict(saved["annealer"])
    torch.set_rng_state(saved["random"])
    assert other_annealer.finished == (case == "ended before")
    assert mollifier.levels(other_model) == saved["annealer"]["levels"].tolist()
    assert train(kind, other_model, other_optimizer, other_annealer, range(stop, UPDATES)) == losses
    for (name, want), got in zip(model.state_dict().items(), other_model.state_dict().values(), strict=True):
        assert_equal(got, want, name)
    assert mollifier.levels(other_model) == mollifier.levels(model)
    assert other_annealer.loss_average == annealer.loss_average
    assert other_annealer.updates == annealer.updates


@by_name(KINDS)
def test_levels_go_on_from_where_they_were(kind: Kind) -> None:
    """The annealer's state alone sets the levels of a fresh model, one a block, below those of the first update."""
    _, _, annealer = start(kind, 0, {"horizon": 8, "schedule": "exponential"})
    for _ in range(4):
        annealer.step(1.0)
    model, _, other = start(kind, 9, {"horizon": 8, "schedule": "exponential"})
    other.load_state_dict(annealer.state_dict())
    assert mollifier.levels(model) == annealer.levels
    assert all(0.0 < level < 1.0 for level in annealer.levels)
    annealer.step(0.9)
    other.step(0.9)
    assert mollifier.levels(model) == annealer.levels
