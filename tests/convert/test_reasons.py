"""The reasons in a report are the true ones, and equal rows are one line."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from tests.helpers import mlp


def why(model: nn.Module, **options) -> dict[str, str]:
    return {row.name: row.why for row in mollifier.plan(model, **options).skipped}


@pytest.mark.parametrize("act", [nn.Hardswish(), nn.PReLU()])
def test_a_hidden_layer_before_an_activation_that_cannot_be_mollified(act):
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), act, nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 1, 1))
    found = why(model)
    assert found["0"].startswith(f"{type(act).__name__} follows it: it")
    assert found["5"] == "output layer: no activation follows it"


class Attention(nn.Module):
    """Attention with projections of its own, and a feed-forward part."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x)))
        return x + self.down(F.gelu(self.up(x)))


class Stack(nn.Module):
    """Several such layers, all alike."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.h, self.head = nn.ModuleList([Attention() for _ in range(depth)]), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.h:
            x = layer(x)
        return self.head(x)


def test_attention_projections_are_not_called_output_layers():
    found = why(Stack())
    for name in ("query", "key", "value"):
        assert (
            found[f"h.0.{name}"] == "scaled_dot_product_attention follows it, not an activation that can be mollified"
        )
    assert found["h.0.out"] == "add follows it, not an activation that can be mollified"
    assert [name for name, reason in found.items() if reason.startswith("output")] == ["head"]


def test_equal_rows_are_one_line():
    report = mollifier.plan(Stack())
    lines = str(report).splitlines()
    assert len(report.blocks) == 4
    assert lines[0] == "mollified: 4 blocks"
    assert lines[2].split()[:2] == ["1-4", "h.{0..3}.forward(up,"]
    assert sum(line.startswith("  h.{0..3}.") for line in lines) == 5
    assert len(lines) == 3 + 1 + 5 + 1


def test_rows_that_differ_are_not():
    model = mollifier.mollify(Stack())
    mollifier.set_level(model, [0.1, 0.1, 0.2, 0.1])
    text = str(mollifier.report(model))
    assert "h.{0,1,3}.forward" in text
    assert " h.2.forward" in text
    assert "1, 2, 4" in text


def test_a_block_of_unknown_width_is_unknown_and_not_the_same():
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(100, 32, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x)

    model = nn.Sequential(Narrow(), nn.Linear(16, 1))
    assert [row.units for row in mollifier.plan(model, blocks="0").blocks] == ["unknown"]
    seen = mollifier.plan(model, blocks="0", example=torch.zeros(2, 100)).blocks
    assert [(row.units, row.copy) for row in seen] == [("100 → 16", "fixed")]


def test_nobody_is_told_to_pass_an_option_that_is_gone():
    with pytest.raises(TypeError, match="trace"):
        mollifier.mollify(Stack(), trace=True)
    assert not any("trace=" in reason for reason in why(Stack()).values())


def test_a_plan_changes_nothing():
    model = Stack()
    before, random = repr(model), torch.get_rng_state()
    report = mollifier.plan(model, level=0.5, exclude="h.0")
    assert repr(model) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert not mollifier.is_mollified(model)
    assert str(report) == str(mollifier.report(mollifier.mollify(model, level=0.5, exclude="h.0")))


def test_a_layer_that_is_read_twice_and_an_activation_that_is_flat_are_named() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            z = self.fc(x)
            return self.head(torch.tanh(z) + z)

    found = {row.name: row.why for row in mollifier.plan(Twice()).skipped}
    assert found["fc"].startswith("tanh and add take its output")
    flat = mollifier.plan(
        nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(1.0, 2.0), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    )
    why = {row.name: row.why for row in flat.skipped}
    assert why["0"].startswith("Hardtanh follows it: hardtanh on [1.0, 2.0] is flat at 0")
