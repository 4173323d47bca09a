"""Levels of a model: one per block, in forward order."""

import math

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn import Annealed, Copy, MollifiedBlock, NoisyActivation
from tests.helpers import BasicBlock, mlp


def parts(model: nn.Module) -> list[Annealed]:
    return [part for part in model.modules() if isinstance(part, Annealed)]


def test_every_block_has_one_level_for_its_copy_and_its_noise():
    model = mollifier.mollify(nn.Sequential(mlp(3, 4, 5), nn.ReLU(), BasicBlock(2, 2)))
    assert mollifier.levels(model) == [1.0, 1.0, 1.0]
    mollifier.set_level(model, [0.25, 0.5, 0.75])
    assert mollifier.levels(model) == [0.25, 0.5, 0.75]
    block = [float(part.level) for part in parts(model[2])]
    assert block == [0.75, 0.75]
    assert {type(part) for part in parts(model[2])} == {Copy, NoisyActivation}


@pytest.mark.parametrize("value", [0.5, torch.tensor(0.5), [0.5, 0.5], torch.tensor([0.5, 0.5]), (0.5, 0.5)])
def test_numbers_lists_and_tensors(value):
    model = mollifier.mollify(mlp(3, 4, 4, 1))
    mollifier.set_level(model, value)
    assert mollifier.levels(model) == [0.5, 0.5]


@pytest.mark.parametrize("whole", [0, 1, True, 1.0])
def test_whole_numbers(whole):
    model = mollifier.mollify(mlp(3, 4, 1))
    mollifier.set_level(model, whole)
    assert mollifier.levels(model) == [float(whole)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (1.5, r"level 1.5: expected a number in \[0, 1\]"),
        (-0.1, r"level -0.1: expected"),
        (math.nan, r"level nan: expected"),
        (torch.tensor(2.0), r"level 2.0: expected"),
        ([0.5, 1.5], r"level 1.5: expected"),
        ([0.5, math.nan], r"level nan: expected"),
        ([0.5], r"set_level: 1 levels were given, the model has 2 blocks"),
        ([0.5, 0.5, 0.5], r"3 levels were given, the model has 2 blocks"),
        ([], r"0 levels were given"),
    ],
)
def test_wrong_levels_are_refused_and_change_nothing(wrong, message):
    model = mollifier.mollify(mlp(3, 4, 4, 1))
    mollifier.set_level(model, [0.25, 0.75])
    with pytest.raises(ValueError, match=message):
        mollifier.set_level(model, wrong)
    assert mollifier.levels(model) == [0.25, 0.75]
    assert all(part.active for part in parts(model))


@pytest.mark.parametrize(
    "act", [mollifier.levels, lambda m: mollifier.set_level(m, 0.5), lambda m: mollifier.frozen(m).__enter__()]
)
def test_a_plain_model_has_no_levels(act):
    model = mlp(3, 4, 1)
    assert not mollifier.is_mollified(model)
    with pytest.raises(ValueError, match=r"Sequential is not mollified. Call mollifier.mollify\(model\) first"):
        act(model)


def test_two_mollified_parts_of_one_model_keep_their_order():
    one, two = mollifier.mollify(mlp(3, 4, 4, 1)), mollifier.mollify(mlp(1, 2, 1))
    model = nn.Sequential(two, nn.Linear(1, 3), one)
    mollifier.set_level(one, [0.1, 0.2])
    mollifier.set_level(two, 0.3)
    assert mollifier.levels(model) == pytest.approx([0.3, 0.1, 0.2])
    mollifier.set_level(model, [0.5, 0.6, 0.7])
    assert mollifier.levels(one) == pytest.approx([0.6, 0.7])


def test_networks_built_by_hand():
    inner = nn.Sequential(nn.Linear(4, 4), NoisyActivation("tanh", 4), MollifiedBlock(nn.Linear(4, 4)))
    model = nn.Sequential(NoisyActivation("relu"), MollifiedBlock(inner), NoisyActivation("relu"))
    assert len(parts(model)) == 5
    mollifier.set_level(model, [0.1, 0.2, 0.3])
    assert mollifier.levels(model) == pytest.approx([0.1, 0.2, 0.3])
    assert mollifier.levels(model[1]) == pytest.approx([0.2])


class Reversed(nn.Module):
    """Registered in another order than it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = mlp(4, 4, 4), mlp(3, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


class Dependent(Reversed):
    """The same, in a forward that depends on its data."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x)) if x.sum() < 1e9 else x


def test_blocks_are_in_the_order_of_their_calls():
    assert [row.name for row in mollifier.plan(Reversed()).blocks] == ["first[0:1]", "last[0:1]"]


def test_with_an_example_they_are_also_where_the_forward_depends_on_its_data():
    by_structure = mollifier.plan(Dependent())
    by_call = mollifier.plan(Dependent(), example=torch.zeros(2, 3))
    assert [row.name for row in by_structure.blocks] == ["last[0:1]", "first[0:1]"]
    assert [row.name for row in by_call.blocks] == ["first[0:1]", "last[0:1]"]


def test_frozen_noise_is_the_same_at_every_call_and_leaves_nothing():
    model, x = mollifier.mollify(mlp(3, 8, 8, 1)), torch.randn(6, 3)
    mollifier.set_level(model, 0.5)
    random = torch.get_rng_state()
    with mollifier.frozen(model, seed=1) as inside:
        assert inside is model
        one = model(x)
        assert torch.equal(model(x), one)
        with mollifier.frozen(model, seed=2):
            assert not torch.equal(model(x), one)
        assert torch.equal(model(x), one)
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(part.frozen for part in parts(model))
    with mollifier.frozen(model, seed=1):
        assert torch.equal(model(x), one)
    with pytest.raises(RuntimeError), mollifier.frozen(model):
        raise RuntimeError
    assert not any(part.frozen for part in parts(model))


def test_frozen_draws_do_not_depend_on_the_level():
    """Common random numbers: what is copied at one level is copied at every higher one."""
    model = mollifier.mollify(nn.Sequential(nn.Linear(30, 30), nn.Sigmoid()), activations=False, output=True)
    x = torch.randn(20, 30)
    copied = []
    with mollifier.frozen(model):
        for level in (0.2, 0.6):
            mollifier.set_level(model, level)
            copied.append(model(x) == x)
    assert (copied[1] | ~copied[0]).all()
    assert 0 < copied[0].sum() < copied[1].sum()
