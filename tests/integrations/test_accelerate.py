"""A loop of Accelerate: the same as a bare loop, resumable, with plain checkpoints and logged levels."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mollifier
from tests.integrations.loops import bare, batches, loss_of, network, same

accelerate = pytest.importorskip("accelerate", reason="pip install 'mollifier[accelerate]'")


class Loop:
    """What a user of Accelerate writes."""

    def __init__(self, accumulate: int = 1, **settings: Any) -> None:
        from mollifier.integrations.accelerate import AcceleratedAnnealer

        self.accelerator = accelerate.Accelerator(
            cpu=True, gradient_accumulation_steps=accumulate, log_with=settings.pop("log_with", None), project_dir=settings.pop("folder", None)
        )  # fmt: skip
        model = mollifier.mollify(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        if self.accelerator.log_with:
            self.accelerator.init_trackers("loop")
        self.annealer = AcceleratedAnnealer(self.accelerator, self.model, **settings)

    def epoch(self) -> None:
        for x, y in batches():
            with self.accelerator.accumulate(self.model):
                loss = loss_of(self.model(x), y)
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.annealer.step(loss)


def test_it_does_what_a_bare_loop_does() -> None:
    loop = Loop(k=2.0)
    torch.manual_seed(1)
    loop.epoch()
    loop.epoch()
    model, annealer = bare(2, k=2.0)
    assert loop.annealer.annealer.levels == annealer.levels
    assert same(loop.model, model)


def test_accumulated_gradients_count_as_one_update() -> None:
    loop = Loop(accumulate=4, horizon=10)
    loop.epoch()
    assert loop.annealer.annealer.updates == 2


def test_resumed_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole, part = Loop(k=2.0), Loop(k=2.0)
    for loop in (whole, part):
        torch.manual_seed(1)
        loop.epoch()
    part.accelerator.save_state(str(tmp_path))
    resumed = Loop(k=2.0)
    resumed.accelerator.load_state(str(tmp_path))  # brings the random numbers along, too
    resumed.epoch()
    torch.manual_seed(1)
    again = Loop(k=2.0)
    torch.manual_seed(1)
    again.epoch()
    again.epoch()
    assert resumed.annealer.annealer.updates == 16
    assert same(resumed.model, again.model)


def test_its_checkpoints_load_into_the_plain_network(tmp_path: Path) -> None:
    loop = Loop(k=100.0)
    loop.epoch()
    assert any(loop.annealer.annealer.levels)
    loop.accelerator.save_state(str(tmp_path))
    plain = network()
    accelerate.load_checkpoint_in_model(plain, str(tmp_path), strict=True)
    assert torch.equal(plain[0].weight, loop.model[0].weight)


def test_it_ends_with_the_plain_network() -> None:
    loop = Loop(horizon=4)
    loop.epoch()
    loop.annealer.end()
    assert list(loop.model.state_dict()) == list(network().state_dict())
    assert not any(type(each) is not getattr(nn, type(each).__name__) for each in loop.model.modules())


def test_levels_go_to_the_trackers(tmp_path: Path) -> None:
    loop = Loop(horizon=8, log_with="tensorboard", folder=str(tmp_path))
    loop.epoch()
    loop.accelerator.end_training()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(next(tmp_path.rglob("events.out.*")).parent))
    events.Reload()
    assert [event.step for event in events.Scalars("mollifier/level_1")] == list(range(1, 9))
    assert events.Scalars("mollifier/level_2")[-1].value == 0.0
