from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mollifier
from mollifier_lab.errors import LabError
from mollifier_lab.models import resnet
from mollifier_lab.models.branches import Survival
from mollifier_lab.models.resnet import BasicBlock, PadShortcut


@pytest.mark.parametrize(
    ("depth", "count", "published"), [(20, 269722, 0.27), (32, 464154, 0.46), (56, 853018, 0.85), (110, 1727962, 1.7)]
)
def test_parameters_as_in_the_paper_of_he_and_others(depth: int, count: int, published: float) -> None:
    model = resnet(depth)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert abs(count / 1e6 - published) < 0.05
    layers = [part for part in model.modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
    assert len(layers) == depth


def test_shortcuts_take_every_second_pixel_and_have_no_parameters() -> None:
    shortcut = PadShortcut(2, 4)
    x = torch.randn(1, 2, 4, 4)
    out = shortcut(x)
    assert out.shape == (1, 4, 2, 2)
    assert torch.equal(out[:, 1:3], x[:, :, ::2, ::2])
    assert not out[:, [0, 3]].any()
    assert list(shortcut.parameters()) == []
    model = resnet(20)
    assert [type(part.shortcut) for part in model if isinstance(part, BasicBlock)].count(PadShortcut) == 2


def by_hand(block: BasicBlock, x: torch.Tensor) -> torch.Tensor:
    h = F.relu(block.norm1(F.conv2d(x, block.conv1.weight, stride=block.conv1.stride, padding=1)))
    return block.norm2(F.conv2d(h, block.conv2.weight, padding=1))


def test_blocks_by_hand() -> None:
    x = torch.randn(3, 4, 8, 8)
    same, wider = BasicBlock(4, 4).eval(), BasicBlock(4, 8, 2).eval()
    torch.testing.assert_close(same(x), F.relu(x + by_hand(same, x)))
    torch.testing.assert_close(wider(x), F.relu(PadShortcut(2, 8)(x) + by_hand(wider, x)))
    plain = BasicBlock(4, 4, residual=False).eval()
    torch.testing.assert_close(plain(x), F.relu(by_hand(plain, x)))
    deep = BasicBlock(4, 4, survival=Survival(0.6)).eval()
    torch.testing.assert_close(deep(x), F.relu(x + 0.6 * by_hand(deep, x)))
    dropped = BasicBlock(4, 4, survival=Survival(1e-9))
    assert torch.equal(dropped(x), F.relu(x))
    dropping = BasicBlock(4, 4, dropout=0.5)
    assert not torch.equal(dropping(x), dropping(x))


def test_architectures() -> None:
    models = {each: resnet(20, width=2, architecture=each) for each in ("plain", "residual", "dropout")}
    blocks = {each: [part for part in model if isinstance(part, BasicBlock)] for each, model in models.items()}
    assert all(part.shortcut is None for part in blocks["plain"])
    assert all(part.shortcut is not None for part in blocks["residual"] + blocks["dropout"])
    assert all(isinstance(part.dropout, nn.Dropout) for part in blocks["dropout"])
    model = resnet(20, width=2, architecture="stochastic-depth", survival=0.1)
    chances = [part.survival.probability for part in model if isinstance(part, BasicBlock)]
    assert chances == pytest.approx([1 - 0.1 * number for number in range(1, 10)])
    with pytest.raises(LabError, match="depth=21, architecture='highway': expected a depth of 6 n"):
        resnet(21, architecture="highway")


def test_kaiming() -> None:
    weight = resnet(20)[9].conv2.weight
    assert weight.std().item() == pytest.approx((2 / (9 * weight.shape[1])) ** 0.5, rel=0.05)


@pytest.mark.parametrize("architecture", ["plain", "residual"])
def test_the_copy_goes_past_the_last_relu(architecture: str) -> None:
    model = mollifier.mollify(resnet(20, width=2, architecture=architecture)).eval()
    rows = mollifier.report(model).blocks
    assert [row.kind for row in rows] == ["run"] + ["residual"] * 9
    assert rows[1].activations == ["relu (2 a)", "relu (2 a)"]  # the second one stands after the addition
    x = torch.randn(2, 2, 8, 8)
    assert torch.equal(model[3](x), x)  # negative numbers, too
    mollifier.set_level(model, 0.0)
    assert (mollifier.restore(model)[3](x) >= 0).all()
