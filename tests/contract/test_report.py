"""Row 10: what can't be mollified is listed in the report with the reason; what is, in forward order with its shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier

from . import models
from .helpers import capture
from .zoo import CONVERTED, KINDS, Kind, by_name

BY_NAME = {kind.name: kind for kind in KINDS}


class Twisted(nn.Module):
    """A forward that depends on its data, so that torch.fx cannot follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.fc(x)) if x.sum() > 0 else torch.tanh(self.fc(x))


class Calls(nn.Module):
    """Functional activations in a forward that torch.fx can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x))).sigmoid()


class Computed(nn.Module):
    """A functional activation whose options the forward computes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, slope: float = 0.1) -> Tensor:
        return self.fc2(F.leaky_relu(self.fc1(x), slope))


class Mystery(nn.Module):
    """A module of the user's that may be an activation: nobody can tell."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.abs().clamp(max=1.0)


class OwnLSTM(nn.LSTM):
    """Recurrent, and called in a way of its own."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x)[0]


class Holding(nn.Module):
    """Something beside a run that is mollified, so that there is a report."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.run, self.other = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), other

    def forward(self, x: Tensor) -> Any:
        return self.other(self.run(x))


LEFT_ALONE: dict[str, tuple[Any, dict[str, Any], str, str, str]] = {
    "PReLU": (nn.PReLU, {}, "other", "PReLU", "slope is learned"),
    "RReLU": (nn.RReLU, {}, "other", "RReLU", "random itself"),
    "flat at 0": (lambda: nn.Hardtanh(1.0, 2.0), {}, "other", "Hardtanh", "flat at 0"),
    "recurrent": (lambda: OwnLSTM(4, 4), {}, "other", "OwnLSTM", "recurrent"),
    "attention": (lambda: nn.MultiheadAttention(4, 2), {}, "other", "MultiheadAttention", "name the layer around it"),
    "unknown module": (Mystery, {}, "other", "Mystery", "mollifier.register"),
    "functional call": (Computed, {}, "other", "leaky_relu", "its options are computed in forward"),
    "output of a forward": (Calls, {}, "other", "sigmoid", "output: "),
    "layer before the output": (Calls, {}, "other.fc2", "Linear", "output: "),
    "excluded": (Calls, {"exclude": F.relu}, "other", "relu", "excluded"),
    "excluded by type": (lambda: models.mlp(4, 4, 4), {"exclude": nn.Sigmoid}, "other.1", "Sigmoid", "excluded"),
    "excluded by name": (Calls, {"exclude": "other.forward(fc1, *)"}, "other", "relu", "excluded"),
    "untraceable": (Twisted, {}, "other", "F.relu", "cannot be traced (TraceError"),
    "lazy layer": (lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU()), {}, "other.0", "LazyLinear", "place"),
    "layer alone": (Twisted, {}, "other.fc", "Linear", "name its block"),
    "output layer": (lambda: nn.Linear(4, 4), {}, "other", "Linear", "output layer: "),
    "output layer in a container": (lambda: nn.Sequential(nn.Linear(4, 4)), {}, "other.0", "Linear", "output layer: "),
    "hidden layer": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Hardswish(), nn.Linear(4, 4)),
        {},
        "other.0",
        "Linear",
        "Hardswish follows it: it is not in the table",
    ),
    "by hand": (lambda: mollifier.nn.NoisyActivation("tanh", 4), {}, "other", "NoisyActivation", "by hand"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_what_is_left_alone_is_listed_with_the_reason(case: str) -> None:
    build, options, name, what, why = LEFT_ALONE[case]
    torch.manual_seed(0)
    model = mollifier.mollify(Holding(build()), **options)
    report = mollifier.report(model)
    found = {(skipped.name, skipped.what): skipped.why for skipped in report.skipped}
    assert why in found[name, what]
    assert f"{name} ({what}): " in str(report)


def test_functional_calls_are_not_listed_once_they_are_mollified() -> None:
    report = mollifier.report(mollifier.mollify(Holding(Calls()), output=True))
    assert not any("relu" in s.what or "sigmoid" in s.what for s in report.skipped)
    assert [row.name for row in report.blocks] == [
        "run[0:1]",
        "other.forward(fc1, relu)",
        "other.forward(fc2, sigmoid)",
    ]


def test_a_model_with_nothing_to_mollify_says_why_all_at_once() -> None:
    model = nn.Sequential(nn.PReLU(), Mystery(), nn.Linear(4, 4))
    with pytest.raises(ValueError, match="nothing to mollify") as caught:
        mollifier.mollify(model)
    for skipped in ("0 (PReLU)", "1 (Mystery)", "2 (Linear)"):
        assert skipped in str(caught.value)
    assert not mollifier.is_mollified(model)


def test_shapes_and_copy_rules() -> None:
    def shown(name: str) -> list[tuple[str, str, str, str]]:
        rows = mollifier.report(BY_NAME[name].mollified()).blocks
        return [(row.name, row.kind, row.units, row.copy) for row in rows]

    assert shown("mlp-narrowing") == [("[0:1]", "run", "6 → 4", "fixed"), ("[2:3]", "run", "4 → 2", "fixed")]
    assert shown("mlp-nested") == [
        ("0[0:1]", "run", "6 → 8", "pad"),
        ("1.0[0:1]", "run", "8 → 8", "copy"),
        ("1.0.2[0:1]", "run", "8 → 8", "copy"),
    ]
    assert shown("bottleneck") == [("0", "residual", "4 → 8", "pad"), ("1", "residual", "8 → 8", "copy")]
    assert shown("activation-alone") == [("act", "activation", "", "none")]
    assert shown("gpt2") == [(f"transformer.h.{i}", "named", "unknown", "copy") for i in range(2)]
    assert shown("functional") == [
        ("forward(conv, relu)", "run", "2 → 4", "pad"),
        ("forward(fc1, tanh)", "run", "16 → 16", "copy"),
        ("forward(fc2, sigmoid)", "run", "16 → 8", "fixed"),
    ]
    assert [row[0] for row in shown("resnet20")] == ["stem[0:2]"] + [
        f"layer{s}.{b}" for s in (1, 2, 3) for b in range(3)
    ]
    assert [row[3] for row in shown("resnet20")] == ["pad", *["copy"] * 3, "pad", "copy", "copy", "pad", "copy", "copy"]


@by_name(CONVERTED)
def test_the_report_counts_every_level_and_every_a(kind: Kind) -> None:
    model = kind.mollified()
    count = len(mollifier.levels(model))
    mollifier.set_level(model, [number / count for number in range(count)])
    rows = mollifier.report(model).blocks
    assert [row.level for row in rows] == mollifier.levels(model)
    noisy = [part for part in model.modules() if isinstance(part, mollifier.nn.NoisyActivation)]
    shown = sorted(text for row in rows for text in row.activations)
    assert shown == sorted(f"{part.activation} ({part.units} a)" for part in noisy)
    projections = sum(row.copy == "project" for row in rows)
    assert len(mollifier.added_parameters(model)) == len(noisy) + projections


@by_name(CONVERTED)
def test_levels_are_in_forward_order(kind: Kind) -> None:
    """The n-th level belongs to the n-th block that a forward meets."""
    model, met = kind.mollified().eval(), []
    count = len(mollifier.levels(model))
    marks = [(number + 1) / (count + 1) for number in range(count)]
    mollifier.set_level(model, marks)

    def note(name: str, module: nn.Module, args: Any, out: Any) -> None:
        if isinstance(module, mollifier.nn.Annealed) and float(module.level) not in met:
            met.append(float(module.level))

    capture(model, note)
    kind.run(model, kind.input())
    assert met == marks
