"""The handler for Ignite: the same as a bare loop, resumable, with plain checkpoints and logged levels."""

from pathlib import Path
from typing import Any

import pytest
import torch

import mollifier
from tests.integrations.loops import bare, batches, loss_of, network, same

ignite = pytest.importorskip("ignite", reason="pip install 'mollifier[ignite]'")
from ignite.engine import Engine, Events  # noqa: E402
from ignite.handlers import Checkpoint, DiskSaver, TensorboardLogger  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Loop:
    """What a user of Ignite writes."""

    def __init__(self, **settings: Any) -> None:
        from mollifier.integrations.ignite import MollifierHandler

        self.model = mollifier.mollify(network())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.trainer = Engine(self.update)
        self.handler = MollifierHandler(self.model, **settings)
        self.handler.attach(self.trainer)

    def update(self, engine: Engine, batch: Any) -> torch.Tensor:
        x, y = batch
        loss = loss_of(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.handler.plain,
            "mollifier": self.handler,
            "optimizer": self.optimizer,
            "trainer": self.trainer,
        }

    def run(self, epochs: int) -> None:
        self.trainer.run(batches(), max_epochs=epochs)


def test_it_does_what_a_bare_loop_does() -> None:
    loop = Loop(k=2.0, restore=False)
    torch.manual_seed(1)
    loop.run(2)
    model, annealer = bare(2, k=2.0)
    assert loop.handler.annealer.levels == annealer.levels
    assert same(loop.model, model)


def test_resumed_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole, part, resumed = (Loop(k=2.0, restore=False) for _ in range(3))
    saver = Checkpoint(part.parts(), DiskSaver(tmp_path, require_empty=False), filename_pattern="checkpoint.pt")
    part.trainer.add_event_handler(Events.EPOCH_COMPLETED(once=1), saver)
    torch.manual_seed(1)
    part.run(1)
    Checkpoint.load_objects(resumed.parts(), torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    for loop in (whole, resumed):
        # the noise of the second epoch is what counts
        if loop is whole:
            torch.manual_seed(1)
            loop.run(1)
        torch.manual_seed(2)
        loop.trainer.run(batches(), max_epochs=2)
    assert resumed.handler.annealer.updates == whole.handler.annealer.updates == 16
    assert same(resumed.model, whole.model)


def test_its_checkpoints_load_into_the_plain_network() -> None:
    loop = Loop(k=100.0, restore=False)
    loop.run(1)
    assert any(loop.handler.annealer.levels)
    plain = network()
    plain.load_state_dict(loop.handler.plain.state_dict(), strict=True)
    assert torch.equal(plain[0].weight, loop.model[0].weight)


def test_it_ends_with_the_plain_network() -> None:
    loop = Loop(horizon=4)
    loop.run(1)
    assert not mollifier.is_mollified(loop.model)
    assert list(loop.model.state_dict()) == list(network().state_dict())


def test_it_warns_when_annealing_has_not_ended() -> None:
    loop = Loop(horizon=1000)
    with pytest.warns(RuntimeWarning, match="the model stays mollified"):
        loop.run(1)
    assert mollifier.is_mollified(loop.model)


def test_the_loss_may_be_a_part_of_the_output() -> None:
    loop = Loop(k=2.0, restore=False, loss=lambda output: output["loss"])
    update = loop.trainer._process_function
    loop.trainer._process_function = lambda engine, batch: {"loss": update(engine, batch)}
    torch.manual_seed(1)
    loop.run(2)
    assert loop.handler.annealer.levels == bare(2, k=2.0)[1].levels


def test_levels_go_to_the_loggers(tmp_path: Path) -> None:
    loop = Loop(horizon=8)
    with TensorboardLogger(log_dir=str(tmp_path)) as logger:
        logger.attach_output_handler(
            loop.trainer, event_name=Events.ITERATION_COMPLETED, tag="training", metric_names="all"
        )
        loop.run(1)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    name = next(tag for tag in events.Tags()["scalars"] if tag.endswith("mollifier/level_2"))
    assert len(events.Scalars(name)) == 8
    assert events.Scalars(name)[-1].value == 0.0
