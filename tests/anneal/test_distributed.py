"""Two processes anneal as one: the average of the loss is over all ranks."""

import math
import warnings
from pathlib import Path

import pytest
import torch
import torch.multiprocessing

import mollifier
from tests.helpers import mlp

# losses of rank 0 and rank 1, update by update
LOSSES = [(1.0, 3.0), (math.nan, 2.0), (math.nan, math.inf), (0.5, 0.1)]
MEANS = [2.0, 2.0, None, 0.3]


def worker(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    warnings.simplefilter("ignore", RuntimeWarning)
    together = mollifier.Annealer(mollifier.mollify(mlp(3, 3, 3, 1)), k=3.0, loss_average=0.9)
    alone = mollifier.Annealer(mollifier.mollify(mlp(3, 3, 3, 1)), k=3.0, distributed=False)
    front = mollifier.Annealer(mollifier.mollify(mlp(3, 3, 3, 1)), "adaptive", loss_average=0.0)
    seen = []
    for losses in LOSSES:
        together.step(losses[rank])
        alone.step(losses[rank])
        front.step(losses[rank])
        seen.append((together.loss_average, together.levels, together.skipped_losses))
    for update in range(60):  # of one rank alone the loss would rise
        front.step(0.3 + (0.2 if rank else -0.2) * update / 60)
    torch.save({"seen": seen, "alone": alone.loss_average, "front": front.levels}, Path(folder, f"{rank}.pt"))
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(worker, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def test_both_ranks_have_the_same_average_and_levels(ranks):
    assert ranks[0]["seen"] == ranks[1]["seen"]


def test_an_adaptive_front_is_at_the_same_place_on_both_ranks(ranks):
    assert ranks[0]["front"] == ranks[1]["front"]
    assert ranks[0]["front"][0] == pytest.approx(1.0 - 63 * 0.02 / 6.0, abs=0.02)  # it has not waited


def test_the_average_is_over_ranks_and_over_finite_losses_only(ranks):
    known: list[float] = []
    for mean, (average, levels, _) in zip(MEANS, ranks[0]["seen"], strict=True):
        known += [] if mean is None else [mean]
        weights = [0.9 ** (len(known) - i) for i in range(1, len(known) + 1)]
        by_hand = sum(w * loss for w, loss in zip(weights, known, strict=True)) / sum(weights)
        assert average == pytest.approx(by_hand, rel=1e-12)
        assert all(0 < level < 1 for level in levels)


def test_skipped_losses_are_counted_over_all_ranks(ranks):
    assert [count for _, _, count in ranks[0]["seen"]] == [0, 1, 3, 3]


@pytest.mark.usefixtures("process_group")
def test_a_group_of_one_is_like_none():
    together, alone = (
        mollifier.Annealer(mollifier.mollify(mlp(3, 3, 1)), k=3.0, distributed=distributed)
        for distributed in (True, False)
    )
    for loss in (1.0, 0.3, 2.0):
        together.step(loss)
        alone.step(loss)
    # plain numbers on the host and tensors on the device may differ in their last digit
    assert together.loss_average == pytest.approx(alone.loss_average, rel=1e-12)
    assert together.levels == pytest.approx(alone.levels, rel=1e-12)


def test_each_rank_can_keep_its_own_average(ranks):
    assert ranks[0]["alone"] != ranks[1]["alone"]
