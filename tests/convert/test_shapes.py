"""What an example shows: shapes, units and the order of the calls."""

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.convert._shapes import CallRecord, record_calls
from tests.helpers import BasicBlock, mlp, snapshot


class Two(nn.Module):
    """Takes two arguments; calls its activation at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(3, 4), nn.Linear(3, 4), nn.Tanh()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.act(self.two(y)), self.drop(self.norm(self.act(self.one(x))))


X, Y = torch.ones(5, 3), torch.zeros(5, 3)


@pytest.mark.parametrize("example", [(X, Y), [X, Y], {"x": X, "y": Y}])
def test_every_call_is_noted(example):
    seen, _ = record_calls(Two(), example)
    assert seen["two"].first < seen["one"].first  # in the order of the calls
    assert seen["one"].inputs == [(5, 3)]
    assert seen["one"].outputs == [(5, 4)]
    assert seen["act"].inputs == [(5, 4), (5, 4)]
    assert seen[""].outputs == [(5, 4)]


def test_one_tensor_is_one_argument():
    assert record_calls(mlp(3, 4, 1), X)[0]["1"].inputs == [(5, 4)]


def test_the_model_and_the_random_state_are_as_before():
    model = Two()
    model.drop.eval()
    before, random = snapshot(model), torch.get_rng_state()
    record_calls(model, (X, Y))
    assert snapshot(model) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training
    assert not model.drop.training


def test_units_are_where_the_last_layer_has_them():
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.ReLU())
    seen, _ = record_calls(model, torch.zeros(2, 1, 4, 4))
    assert (seen["1"].unit_dim, seen["1"].units()) == (-3, 3)
    assert (seen["4"].unit_dim, seen["4"].units()) == (-1, 5)


def test_units_only_where_all_calls_agree():
    assert CallRecord(1, -1, [(2, 3), (9, 3)]).units() == 3
    assert CallRecord(1, -1, [(2, 3), (2, 4)]).units() is None
    assert CallRecord(1, -3, [(2, 3)]).units() is None
    assert CallRecord(1, -3, [(2, 3, 4, 4), (2, 9)]).units() is None
    assert CallRecord(1, -1).units() is None


class Pair(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class Custom(nn.Module):
    """A block whose widths its structure does not show."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("layer", "shape", "units", "rule"),
    [
        (nn.Linear(4, 4), (3, 4), "4 → 4", "copy"),
        (nn.Linear(4, 6), (3, 4), "4 → 6", "pad"),
        (nn.Linear(4, 2), (3, 4), "4 → 2", "fixed"),
        (nn.Linear(4, 2), (3, 7, 4), "4 → 2", "fixed"),
        (nn.Conv2d(2, 5, 3, stride=2, padding=1), (3, 2, 8, 8), "2 → 5", "pad"),
        (nn.Conv1d(4, 2, 3), (3, 4, 8), "4 → 2", "fixed"),
        (nn.Softmax(-1), (3, 4), "4 → 4", "copy"),
        (nn.Conv2d(2, 2, 3, padding=1), (2, 8, 8), "2 → 2", "copy"),
    ],
)
def test_an_example_gives_a_named_block_its_width(layer, shape, units, rule):
    x = torch.randn(shape)
    model = mollifier.mollify(Pair(Custom(layer)), blocks="block", example=x)
    row = mollifier.report(model).blocks[0]
    assert (row.units, row.copy) == (units, rule)
    assert model(x).shape == layer(x).shape
    if rule == "copy":
        assert torch.equal(model.eval()(x), x)


@pytest.mark.parametrize(
    ("block", "shape", "message"),
    [
        (nn.Flatten(), (3, 2, 2), r"takes \(3, 2, 2\) to \(3, 4\)"),
        (nn.Unflatten(0, (1, 3)), (3, 4), r"takes \(3, 4\) to \(1, 3, 4\)"),
        (nn.AdaptiveAvgPool1d(2), (3, 4, 8), None),
        (nn.Sequential(nn.Conv1d(2, 2, 1), nn.Flatten(0, 1)), (3, 2, 4), r"takes \(3, 2, 4\) to \(6, 4\)"),
    ],
)
def test_shapes_without_a_copy_path_are_refused(block, shape, message):
    model = Pair(Custom(block))
    if message is None:  # features that become fewer are projected
        model = mollifier.mollify(model, blocks="block", example=torch.zeros(shape))
        assert mollifier.report(model).blocks[0].copy == "fixed"
        return
    with pytest.raises(ValueError, match=rf"block 'block' {message}: there is no copy path"):
        mollifier.mollify(model, blocks="block", example=torch.zeros(shape))


def test_an_example_counts_the_a_of_activations_in_a_forward_of_ones_own():
    model = mollifier.mollify(Two(), example=(X, Y))
    assert mollifier.report(model).blocks[0].activations == ["tanh (4 a)"]
    model(X, Y)


def test_an_example_and_residual_blocks():
    model = nn.Sequential(BasicBlock(2, 2), BasicBlock(2, 4, stride=2), nn.Conv2d(4, 1, 1))
    x = torch.randn(2, 2, 7, 7)
    report = mollifier.report(mollifier.mollify(model, example=x))
    assert [(row.kind, row.units) for row in report.blocks] == [("residual", "2 → 2"), ("residual", "2 → 4")]
    assert model(x).shape == (2, 1, 4, 4)


class Borrows(nn.Module):
    """Calls a module that another part of the model has as well, or that only that part has."""

    def __init__(self, other: nn.Module, shared: bool) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(3, 3), other if shared else [other]

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 1000:  # torch.fx cannot trace this
            return x
        other = self.other if isinstance(self.other, nn.Module) else self.other[0]
        return torch.tanh(self.own(other(x)))


@pytest.mark.parametrize("shared", [True, False])
def test_an_example_may_call_a_module_that_belongs_to_another_part(shared):
    one = nn.Linear(3, 3)
    model = nn.Sequential(one, nn.Tanh(), Borrows(one, shared), nn.Linear(3, 1))
    assert [row.name for row in mollifier.plan(model, example=X).blocks] == ["[0:1]", "2.forward(own, tanh)"]
