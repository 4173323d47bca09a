"""A block built by hand: the copy around anything."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn import MollifiedBlock, NoisyActivation
from mollifier.nn.copy import first_tensor


class Out(NamedTuple):
    name: str
    hidden: Tensor
    cache: Tensor


class Layer(nn.Module):
    """Returns what its test asks for."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, h: Tensor, scale: float = 1.0, *, shift: float = 0.0) -> Any:
        return self.make(h * scale + shift)


@pytest.mark.parametrize("level", [0.0, 0.25, 1.0])
def test_it_mixes_the_block_with_its_input(level):
    layer = nn.Linear(3, 3)
    block = MollifiedBlock(layer, level=level).eval()
    x = torch.randn(4, 3)
    torch.testing.assert_close(block(x), level * x + (1 - level) * layer(x))


def test_wider_and_narrower_and_residual_blocks():
    x = torch.randn(4, 3)
    wide = MollifiedBlock(nn.Linear(3, 5), 3, 5).eval()
    assert torch.equal(wide(x), nn.functional.pad(x, (0, 2)))
    narrow = MollifiedBlock(nn.Linear(3, 2), 3, 2).eval()
    assert torch.equal(narrow(x), narrow.copy.projection(x))
    layer = nn.Linear(3, 3)
    residual = MollifiedBlock(layer, level=0.0, residual=True)
    assert torch.equal(residual(x), layer(x) + x)


def test_an_image_block():
    block = MollifiedBlock(nn.Conv2d(3, 5, 3, stride=2, padding=1), 3, 5, unit_dim=-3).eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(block(x)[:, :3], nn.functional.avg_pool2d(x, 2))


@pytest.mark.parametrize("level", [0.0, 1.0])
@pytest.mark.parametrize("kind", [tuple, list])
def test_the_first_tensor_of_a_tuple_or_list_is_mixed(kind, level):
    cache = torch.ones(7)
    block = MollifiedBlock(Layer(lambda h: kind([None, -h, cache])), level=level).eval()
    x = torch.randn(4, 3)
    out = block(x)
    assert type(out) is kind
    assert out[0] is None
    assert torch.equal(out[1], x if level else -x)
    assert out[2] is cache


def test_a_namedtuple_stays_one():
    cache = torch.ones(7)
    out = MollifiedBlock(Layer(lambda h: Out("layer", -h, cache))).eval()(torch.ones(2))
    assert type(out) is Out
    assert out.name == "layer"
    assert torch.equal(out.hidden, torch.ones(2))
    assert out.cache is cache


def test_further_arguments_are_passed_on():
    block = MollifiedBlock(Layer(lambda h: h), level=0.5).eval()
    assert block(torch.ones(2), 3.0, shift=1.0).tolist() == [2.5, 2.5]


@pytest.mark.parametrize("level", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [{"hidden": torch.ones(2)}, None, (), [1, 2]])
def test_another_return_type_is_refused(wrong, level):
    block = MollifiedBlock(Layer(lambda h: wrong), level=level)
    kind = type(wrong).__name__
    with pytest.raises(TypeError, match=rf"a mollified block returned {kind}; expected a tensor, or a tuple or list"):
        block(torch.ones(2))


def test_an_input_changed_in_place_is_noticed():
    block = MollifiedBlock(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3)))
    with pytest.raises(RuntimeError, match=r"changed its own input in place, so there is nothing left to copy"):
        block(torch.randn(4, 3))
    block.copy.set_level(0)
    assert block(torch.randn(4, 3)).shape == (4, 3)  # the plain network may do as it likes
    fine = MollifiedBlock(nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)))
    assert fine(torch.randn(4, 3)).shape == (4, 3)


def test_it_works_on_inference_tensors():
    block = MollifiedBlock(nn.Linear(3, 3)).eval()
    with torch.inference_mode():
        x = torch.randn(4, 3)
        assert torch.equal(block(x), x)


def test_one_level_governs_the_block_and_what_is_in_it():
    def layer() -> nn.Module:
        return MollifiedBlock(nn.Sequential(nn.Linear(4, 4), NoisyActivation("sigmoid", 4)))

    net = nn.Sequential(layer(), layer(), nn.Linear(4, 1))
    assert mollifier.levels(net) == [1.0, 1.0]
    mollifier.set_level(net, [0.25, 0.5])
    assert [float(part.level) for part in net.modules() if isinstance(part, mollifier.nn.Annealed)] == [
        0.25,
        0.25,
        0.5,
        0.5,
    ]


def test_first_tensor_leaves_the_rest_alone():
    assert first_tensor(torch.neg, torch.ones(1)).tolist() == [-1.0]
    out = first_tensor(torch.neg, ["x", torch.ones(1), torch.ones(1)])
    assert out[0] == "x"
    assert [t.tolist() for t in out[1:]] == [[-1.0], [1.0]]
