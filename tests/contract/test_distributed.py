"""Row 8, third part: DistributedDataParallel with find_unused_parameters=False, from level 1 to the plain network."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import mollifier

from .helpers import loss_of
from .zoo import KINDS, Kind, by_name

RANKS = 2
BY_NAME = {kind.name: kind for kind in KINDS}
NAMES = (
    *("mlp", "mlp-narrowing", "mlp-norm-dropout", "resnet20", "functional", "transformer-encoder", "by-hand"),
    *("iterated", "listed", "functional-alive", "gan-generator", "vae", "siamese", "graph-named"),
)


def worker(rank: int, names: tuple[str, ...], folder: str) -> None:
    """One rank: its own data and its own noise; leaves what it ended with in a file."""
    torch.set_num_threads(1)
    init = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    try:
        for name in names:
            found = train_on_rank(BY_NAME[name], rank)
            torch.save(found.pop("weights"), f"{folder}/{name}-{rank}.pt")
            Path(f"{folder}/{name}-{rank}.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


def train_on_rank(kind: Kind, rank: int) -> dict[str, object]:
    model = kind.mollified(seed=rank).train()  # the ranks begin apart: DDP sends rank 0's weights to all
    wrapped = DistributedDataParallel(model, find_unused_parameters=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    annealer = mollifier.Annealer(wrapped, k=2.0, stop_at=0)
    torch.manual_seed(rank)
    levels, losses = [], []
    for update in range(9):
        if update == 5:
            annealer.finish()
        loss = loss_of(kind, wrapped, kind.input(seed=1000 * rank + update))
        optimizer.zero_grad()
        loss.backward()
        # DDP waits for every parameter, and so every one has its gradient: also those that act no more
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
        levels.append(mollifier.levels(wrapped))
        losses.append(loss.item())
        annealer.step(loss)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return {"weights": weights, "levels": levels, "losses": losses, "average": annealer.loss_average}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Starting two processes costs more than all their training, so they train every kind."""
    path = str(tmp_path_factory.mktemp("ranks"))
    mp.spawn(worker, (NAMES, path), nprocs=RANKS)
    return path


@by_name([BY_NAME[name] for name in NAMES])
def test_ranks_agree_from_level_one_to_the_plain_network(kind: Kind, folder: str) -> None:
    ranks = [json.loads(Path(f"{folder}/{kind.name}-{rank}.json").read_text()) for rank in range(RANKS)]
    weights = [torch.load(f"{folder}/{kind.name}-{rank}.pt", weights_only=True) for rank in range(RANKS)]
    assert ranks[0]["levels"] == ranks[1]["levels"]
    assert ranks[0]["average"] == ranks[1]["average"]
    assert ranks[0]["losses"] != ranks[1]["losses"], "each rank has its own data and noise"
    first, middle, last = ranks[0]["levels"][0], ranks[0]["levels"][3], ranks[0]["levels"][-1]
    assert set(first) == {1.0}
    assert all(0.0 < level < 1.0 for level in middle)
    assert set(last) == {0.0}
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    begun = dict(kind.mollified(seed=0).named_parameters())
    moved = [name for name, weight in weights[0].items() if not torch.equal(weight, begun[name])]
    assert len(moved) > len(begun) // 2
