"""Row 8 for recurrent kinds: DistributedDataParallel with find_unused_parameters=False, from level 1 to the plain network."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from .recurrent import RECURRENT
from .test_distributed import train_on_rank
from .zoo import Kind, by_name

RANKS = 2
NAMES = (
    "lstm",
    "lstm-bag-of-words",
    "gru-bidirectional",
    "rnn-relu",
    "hard-sigmoid-lstm",
    "packed-encoder",
    "lstm-cell",
)
SOME = [kind for kind in RECURRENT if kind.name in NAMES]


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    init = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    try:
        for kind in SOME:
            found = train_on_rank(kind, rank)
            torch.save(found.pop("weights"), f"{folder}/{kind.name}-{rank}.pt")
            Path(f"{folder}/{kind.name}-{rank}.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("ranks"))
    mp.spawn(worker, (path,), nprocs=RANKS)
    return path


@by_name(SOME)
def test_ranks_agree_from_level_one_to_the_plain_network(kind: Kind, folder: str) -> None:
    ranks = [json.loads(Path(f"{folder}/{kind.name}-{rank}.json").read_text()) for rank in range(RANKS)]
    weights = [torch.load(f"{folder}/{kind.name}-{rank}.pt", weights_only=True) for rank in range(RANKS)]
    assert ranks[0]["levels"] == ranks[1]["levels"]
    assert ranks[0]["losses"] != ranks[1]["losses"], "each rank has its own data and noise"
    assert set(ranks[0]["levels"][0]) == {1.0}
    assert all(0.0 < level < 1.0 for level in ranks[0]["levels"][3])
    assert set(ranks[0]["levels"][-1]) == {0.0}
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    begun = dict(kind.mollified(seed=0).named_parameters())
    moved = [name for name, weight in weights[0].items() if not torch.equal(weight, begun[name])]
    assert len(moved) > len(begun) // 2
