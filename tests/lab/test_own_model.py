"""`mollifier_lab.compare`: any model from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier_lab
from mollifier_lab import LabError, imports
from mollifier_lab.cli import main
from mollifier_lab.own_model import Comparison
from mollifier_lab.runs import RunFolder
from tests.lab import guide

TINY = {"updates": 6, "batch": 16, "evaluate_every": 3}


@pytest.fixture(autouse=True)
def as_before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is registered is gone afterwards; pictures, which take longest, are drawn for one test alone."""
    for name in ("curves_png", "levels_png", "losses_png"):
        if "page" not in request.node.name:
            monkeypatch.setattr(f"mollifier_lab.report.pictures.{name}", lambda tasks: b"")
    with guide.as_before():
        yield


class Net(nn.Module):
    """Two inputs, batch norm, and a functional activation: nothing that the laboratory knows."""

    def __init__(self, outputs: int = 2) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, outputs)
        self.middle = nn.Linear(8, 8)

    def forward(self, x: Tensor, scale: Tensor) -> Any:
        x = torch.tanh(self.norm(self.first(x)))
        return self.last(torch.tanh(self.middle(x)) * scale)


def two_inputs() -> Any:
    x, scale = torch.randn(64, 3), torch.rand(64, 1)
    y = (x.sum(1) > 0).long()
    return {"train": (x[:32], scale[:32], y[:32]), "valid": (x[32:], scale[32:], y[32:])}


def regression() -> Any:
    x = torch.randn(48, 3)
    return (x[:32], x[:32].sum(1, keepdim=True)), (x[32:], x[32:].sum(1, keepdim=True))


def line() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def compared(out: Path, *args: Any, **more: Any) -> Comparison:
    given = {"seeds": 2, "threads": 1, "show": False, **TINY, **more}
    return mollifier_lab.compare(*(args or (Net, two_inputs)), out=out, **given)


def test_a_model_of_any_kind_with_its_table_page_and_weights(tmp_path: Path) -> None:
    before = imports.recorded()
    found = compared(tmp_path / "out", Net, two_inputs, ["plain", "mollified:k=5", "copy"])
    assert [(row.variant, row.metric, row.done) for row in found.rows] == [
        ("plain", "test_error", 2), ("copy only", "test_error", 2), ("mollified, k=5", "test_error", 2),
    ]  # fmt: skip
    assert found.page.exists()
    assert "own-classifier: test error" in str(found)
    assert {"mollified,", "k=5"} <= set(str(found).split())
    Net().load_state_dict(found.state_dict("mollified:k=5", seed=1))
    with pytest.raises(LabError, match="mollified, seed 7: no such run is done"):
        found.state_dict("mollified", seed=7)
    assert imports.recorded() == before  # other runs of this process have nothing to do with it


def test_called_again_nothing_is_done_twice_and_another_model_is_refused(tmp_path: Path) -> None:
    found = compared(tmp_path / "out")
    times = {run.path: (run.path / "result.json").stat().st_mtime_ns for run in found.runs}
    again = compared(tmp_path / "out")
    assert {run.path: (run.path / "result.json").stat().st_mtime_ns for run in again.runs} == times

    def other_data() -> Any:
        return {name: (*part[:-1], 1 - part[-1]) for name, part in two_inputs().items()}

    for make_model, make_data in ((lambda: Net(3), two_inputs), (Net, other_data)):
        with pytest.raises(LabError, match=r"contains a different run: (chance is .*; )?source is "):
            compared(tmp_path / "out", make_model, make_data)
    with pytest.raises(LabError, match=r"contains a different run: lr is 0.1 there, 0.5 is requested"):
        compared(tmp_path / "out", lr=0.5)


def test_stopped_and_called_again_it_is_bit_for_bit_the_same(tmp_path: Path) -> None:
    whole = compared(tmp_path / "whole")
    calls = iter(range(100))

    def stop(outputs: Tensor, targets: Tensor) -> Tensor:
        if next(calls) == 40:
            raise KeyboardInterrupt
        return F.cross_entropy(outputs, targets)

    with pytest.raises(LabError, match=r"call mollifier_lab.compare again, with the same arguments"):
        compared(tmp_path / "out", Net, two_inputs, loss=stop)
    compared(tmp_path / "out", Net, two_inputs, loss=stop)
    for run in whole.runs:
        other = tmp_path / "out" / run.path.relative_to((tmp_path / "whole").resolve())
        for name in ("metrics.jsonl", "model.safetensors"):
            assert (other / name).read_bytes() == (run.path / name).read_bytes()


def test_numbers_as_targets_and_a_loss_of_ones_own(tmp_path: Path) -> None:
    found = compared(tmp_path / "mse", line, regression)
    assert {row.metric for row in found.rows} == {"test_loss"}
    absolute = compared(tmp_path / "l1", line, regression, loss=F.l1_loss)
    assert absolute.rows[0].final.mean != found.rows[0].final.mean


def test_commands_read_its_runs_and_say_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(tmp_path / "out", methods=["plain"], seeds=1)
    (found.runs[0].path / "result.json").unlink()
    for table in (guide.settings.TASKS, guide.methods.OPEN, guide.register.OWN):
        table.pop("own-classifier")
    imports._LOADED.clear()
    assert main(["ls", str(tmp_path / "out")]) == 0
    assert "unfinished" in capsys.readouterr().out
    assert RunFolder(found.runs[0].path).config().task == "own-classifier"
    assert main(["resume", str(found.runs[0].path)]) == 2
    assert "the model of this run was given from Python: call mollifier_lab.compare again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make_data", "told"),
    [
        (lambda: torch.zeros(3), "make_data: expected"),
        (lambda: (torch.zeros(3, 3), torch.zeros(3)), "make_data: expected"),
        (lambda: [(torch.zeros(3, 3), torch.zeros(2))] * 2, "of one length"),
        (lambda: {"train": (torch.zeros(3, 3), torch.zeros(3))}, "make_data: expected"),
        (lambda: [(torch.zeros(4, 3), torch.zeros(4, 2).long())] * 2, "for other shapes pass a loss"),
        (lambda: [(torch.full((4, 3), torch.nan), torch.zeros(4, 1))] * 2, "is not a number"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(make_data: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=told):
        compared(tmp_path / "out", line, make_data)
    assert not (tmp_path / "out").exists()


def test_methods_that_need_another_network_do_not_apply(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="'residual' does not apply to task 'own-model'; these do: plain"):
        compared(tmp_path / "out", line, regression, ["residual"])
    with pytest.raises(LabError, match="no setting 'widht'"):
        compared(tmp_path / "out", line, regression, widht=3)
