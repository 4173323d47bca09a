"""Levels are written to where the buffers are at that moment, and autograd notices."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch

import mollifier
from mollifier.anneal._writing import LevelWriter


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sigmoid(), torch.nn.Linear(4, 1))


def buffers(**settings: Any) -> dict[str, Any]:
    return {"level": torch.ones((), **{"dtype": torch.float64, **settings})}


def test_each_block_gets_its_own() -> None:
    groups = [[buffers(), buffers()], [buffers()]]
    LevelWriter(groups).write([0.25, 0.75])
    assert [[float(each["level"]) for each in group] for group in groups] == [[0.25, 0.25], [0.75]]


def test_a_buffer_that_was_replaced_is_found() -> None:
    mine = buffers()
    writer, before = LevelWriter([[mine]]), mine["level"]
    mine["level"] = torch.ones((), dtype=torch.float64)
    writer.write([0.5])
    assert (float(mine["level"]), float(before)) == (0.5, 1.0)


def test_a_buffer_whose_memory_was_replaced_is_found() -> None:
    mine = buffers()
    writer, other = LevelWriter([[mine]]), torch.ones((), dtype=torch.float64)
    mine["level"].data = other
    writer.write([0.5])
    assert float(mine["level"]) == float(other) == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_every_type_of_number(dtype: torch.dtype) -> None:
    mine = buffers(dtype=dtype)
    LevelWriter([[mine]]).write([0.5])
    assert float(mine["level"]) == 0.5


def test_levels_of_inference_mode() -> None:
    with torch.inference_mode():
        mine = buffers()
        LevelWriter([[mine]]).write([0.5])
        assert float(mine["level"]) == 0.5


def test_autograd_notices() -> None:
    mine = buffers()
    x = torch.ones((), dtype=torch.float64, requires_grad=True)
    y = x * mine["level"]
    LevelWriter([[mine]]).write([0.5])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_of_an_annealer_writes_to_the_copy_of_its_model(again: Any) -> None:
    model = mollifier.mollify(network())
    annealer = mollifier.Annealer(model, k=10.0)
    annealer.step(0.7)
    before = mollifier.levels(model)
    other, of_other = again((model, annealer))
    of_other.step(0.7)
    assert mollifier.levels(model) == before
    assert mollifier.levels(other) == of_other.levels != before
