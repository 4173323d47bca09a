"""Tiny real runs of the map, the adding problem and the twins."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mollifier_lab.frontier import adding, annealing, cells, convnets, twins, ways
from mollifier_lab.models import resnet
from mollifier_lab.runs import find_runs
from mollifier_lab.settings import settings_for
from tests.lab import files
from tests.lab.data import makers


@pytest.mark.parametrize("activation", ["sigmoid", "step"])
def test_a_part_of_the_map(activation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makers.mnist(tmp_path / "data" / "mnist", train=10_012, test=8)
    few = [ways.BY_NAME[name] for name in ("lsuv", "adaptive", "expected, front")]
    monkeypatch.setattr(cells, "WAYS", few)
    monkeypatch.setattr(ways, "TRIALS", 2)
    options = {"smoke": True, "data": tmp_path / "data", "show": False, "allow_other_data": True}
    found = cells.make(activation, (3,), tmp_path, **options)
    assert {(cell.way, cell.depth, cell.activation) for cell in found} == {(way.name, 3, activation) for way in few}
    assert {cell.seed for cell in found} == {0, 1, 2}  # none trains in six updates: the first depth is the edge
    runs = [run.path for run in find_runs(tmp_path / "runs")]
    assert len(runs) == 3 * 2 + 3 * 2
    times = {path: (path / "result.json").stat().st_mtime_ns for path in runs}
    assert cells.make(activation, (3,), tmp_path, **options) == found  # nothing is run twice
    assert times == {path: (path / "result.json").stat().st_mtime_ns for path in runs}


def test_the_adding_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding, "STEPS", (100,))
    monkeypatch.setattr(adding, "TRIALS", 1)
    found = adding.make(tmp_path, smoke=True, show=False)
    assert len(found) == len(adding.CELLS) * len(adding.WAYS)
    assert all(0.0 < each.test_loss < 2.0 for each in found)
    assert adding.table(found).count("\n| 100 |") == 3


def test_the_convolutional_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.cifar10(tmp_path / "data" / "cifar10" / "cifar-10-batches-bin")
    few = {name: convnets.WAYS[name] for name in ("batch norm (stays)", "mollified, front, delta-orthogonal")}
    monkeypatch.setattr(convnets, "WAYS", few)
    monkeypatch.setattr(convnets, "DEPTHS", (20,))
    monkeypatch.setattr(convnets, "TRIALS", 1)
    found = convnets.make(tmp_path, smoke=True, data=tmp_path / "data", show=False, allow_other_data=True)
    assert [each.way for each in found] == list(few)
    assert all(0.0 < each.test_error <= 1.0 for each in found)
    assert convnets.table(found).count(" % |") == len(few)
    settings = [json.loads((run.path / "config.json").read_text())["settings"] for run in find_runs(tmp_path / "runs")]
    assert sorted(each["normalised"] for each in settings) == [False, True]
    assert sorted(each["init"] for each in settings) == ["delta-orthogonal", "he"]


def test_a_plain_twin_needs_less_memory_and_computes_the_same_as_its_blocks() -> None:
    x = torch.randn(1, 3, 32, 32)
    plain = resnet(20, width=2, architecture="plain", normalised=False).eval()
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in plain.modules())
    assert torch.equal(twins.flat(plain)(x), plain(x))
    deep = resnet(20, width=2)
    deep(torch.randn(8, 3, 32, 32))  # statistics other than 0 and 1
    deep.eval()
    before = deep(x)
    assert torch.allclose(twins.folded(deep)(x), before, atol=1e-4)
    with torch.no_grad():
        one = 2 * 32 * 32 * 4  # bytes of a feature map of the first stage
        assert twins.peak(twins.in_place(twins.flat(plain)), x) == 2 * one
        assert twins.peak(twins.in_place(deep), x) == 3 * one


def test_runs_that_have_converged_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end there: how far below it they are depends on the evaluation at which that was seen."""
    monkeypatch.setattr(annealing, "first_at", lambda *_: 100.0)
    config = SimpleNamespace(settings=replace(settings_for("parity"), converged=1e-3))

    def found(*losses: float) -> annealing.AnnealingResult:
        return annealing._found(
            "parity", "k=10", [SimpleNamespace(config=config, counted=loss, result={}) for loss in losses]
        )  # type: ignore[misc]

    assert found(1e-5, 9e-4).final == found(1e-3, 1e-3).final
    assert found(1e-5, 2e-3).final.mean == pytest.approx(1.5e-3)


def test_the_comparison_of_annealing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing, "KS", (10, 100))
    monkeypatch.setattr(annealing, "SEEDS", 2)
    monkeypatch.setattr(annealing, "CASES", {"parity": annealing.CASES["parity"]})
    variants = annealing.variants
    annealing.make(tmp_path, smoke=True, show=False)
    assert len(find_runs(tmp_path / "runs")) == 4 * 2
    with monkeypatch.context() as patch:  # the front's horizon is named after the updates, which are fewer here
        patch.setattr(annealing, "variants", lambda name: variants(name, 4))
        found = annealing.results(tmp_path)
    assert [each.way for each in found] == ["k=10", "k=100", "horizon=3,schedule=front", "schedule=adaptive"]
    assert all(each.final.n == 2 and each.diverged == 0 and math.isinf(each.updates) for each in found)
    row = annealing.table(found).splitlines()[2]
    assert row.startswith("| parity | 10")
    assert row.endswith(("yes |", "no |"))
    assert annealing.table(found[:-1]).count("\n") == 2  # without the adaptive front there is nothing to say
