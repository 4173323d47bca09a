"""At level 1 a mollified network is an affine map of its input, and its objective convex in all its parameters.

The Hessian and the midpoint test are taken over every parameter at once, in float64 and in eval(): the head's, those of the
layers that are copied past, and the a that mollification added. The same Hessian at level 0 has negative eigenvalues.
"""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from tests.helpers import BasicBlock, mlp

Objective = Callable[[Tensor], Tensor]
HEADS = {"logistic": 3, "linear": 1}


class ResNet(nn.Module):
    """A stem, two residual blocks (one strided and wider), average pooling and a head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU())
        self.blocks = nn.Sequential(BasicBlock(2, 2), BasicBlock(2, 4, stride=2))
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def deep_mlp(outputs: int) -> tuple[nn.Module, Tensor]:
    return mlp(3, 4, 5, 5, 5, outputs, activation=nn.Tanh), torch.randn(12, 3, dtype=torch.float64)


def resnet(outputs: int) -> tuple[nn.Module, Tensor]:
    return ResNet(outputs), torch.randn(6, 1, 6, 6, dtype=torch.float64)


def objective(net: nn.Module, x: Tensor, head: str) -> tuple[Objective, Tensor]:
    """The loss as a function of all parameters in one vector, and their present value."""
    parameters = dict(net.named_parameters())
    shapes = {name: value.shape for name, value in parameters.items()}
    classes = torch.arange(len(x)) % 3
    values = torch.linspace(-1, 1, len(x), dtype=torch.float64)[:, None]

    def loss(vector: Tensor) -> Tensor:
        parts = vector.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        out = torch.func.functional_call(net, named, (x,))
        return F.cross_entropy(out, classes) if head == "logistic" else F.mse_loss(out, values)

    return loss, torch.cat([value.detach().flatten() for value in parameters.values()])


def hessian_of(loss: Objective) -> Objective:
    return torch.func.jacrev(torch.func.jacrev(loss))  # twice backward: the decompositions of forward mode warn


def smallest_eigenvalue(loss: Objective, at: Tensor) -> float:
    hessian = hessian_of(loss)(at)
    torch.testing.assert_close(hessian, hessian.T, rtol=0, atol=1e-9)
    return float(torch.linalg.eigvalsh(hessian)[0])


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("network", [deep_mlp, resnet])
def test_the_objective_is_convex_at_level_1_and_not_at_level_0(network, head):
    plain, x = network(HEADS[head])
    net = mollifier.mollify(plain.double()).eval()
    loss, start = objective(net, x, head)
    points = [start, *(start + torch.randn_like(start) for _ in range(2))]

    for point in points:
        assert smallest_eigenvalue(loss, point) >= -1e-8
    for _ in range(50):
        one, two = (3 * torch.randn_like(start) for _ in range(2))
        for share in (0.5, 0.1):
            chord = share * loss(one) + (1 - share) * loss(two)
            assert loss(share * one + (1 - share) * two) <= chord + 1e-10 * (1 + chord.abs())

    mollifier.set_level(net, 0)
    assert min(smallest_eigenvalue(loss, point) for point in points) < -1e-4


@pytest.mark.parametrize("network", [deep_mlp, resnet])
def test_the_network_is_affine_at_level_1(network):
    plain, x = network(3)
    net = mollifier.mollify(plain.double()).eval()
    zero = net(torch.zeros_like(x))
    torch.testing.assert_close(net(2 * x - 3 * x.flip(0)) - zero, 2 * (net(x) - zero) - 3 * (net(x.flip(0)) - zero))
    mollifier.set_level(net, 0)
    assert not torch.allclose(net(2 * x) - net(0 * x), 2 * (net(x) - net(0 * x)))


def narrowing_mlp(outputs: int) -> tuple[nn.Module, Tensor]:
    return mlp(7, 5, 4, 2, outputs), torch.randn(12, 7, dtype=torch.float64)


def narrowing_convnet(outputs: int) -> tuple[nn.Module, Tensor]:
    layers = [nn.Conv2d(5, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 3, stride=2, padding=1), nn.Tanh()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, outputs)), torch.randn(8, 5, 4, 4, dtype=torch.float64)


class Last(nn.Module):
    """The last output of two bidirectional layers, the second of which narrows, and a head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(5, 3, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(6, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def narrowing_gru(outputs: int) -> tuple[nn.Module, Tensor]:
    return Last(outputs), torch.randn(6, 3, 5, dtype=torch.float64)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("network", [narrowing_mlp, narrowing_convnet, narrowing_gru])
def test_with_the_fixed_projection_a_network_that_narrows_is_convex_too(network, head):
    plain, x = network(HEADS[head])
    net = mollifier.mollify(copy.deepcopy(plain).double(), projection="fixed").eval()
    assert "fixed" in {row.copy for row in mollifier.report(net).blocks}
    loss, start = objective(net, x, head)
    for point in (start, *(start + torch.randn_like(start) for _ in range(2))):
        assert smallest_eigenvalue(loss, point) >= -1e-8
    for _ in range(50):
        one, two = (3 * torch.randn_like(start) for _ in range(2))
        chord = 0.5 * loss(one) + 0.5 * loss(two)
        assert loss(0.5 * one + 0.5 * two) <= chord + 1e-10 * (1 + chord.abs())

    learned = mollifier.mollify(plain.double(), projection="learned").eval()
    loss, start = objective(learned, x, head)
    assert smallest_eigenvalue(loss, start) < -1e-4


def test_a_learned_projection_makes_it_a_product_convex_in_each_factor():
    """Where a layer narrows and the copy is a learned projection P, the objective at level 1 is that of W P x, a product of two linear
    maps. It is convex in the head W and in P alone, but not in both together, so the paper's claim holds for padding and for the fixed
    projection only.
    """
    net = mollifier.mollify(mlp(5, 3, 3).double(), projection="learned").eval()
    x = torch.randn(12, 5, dtype=torch.float64)
    loss, start = objective(net, x, "logistic")
    sizes = {name: value.numel() for name, value in net.named_parameters()}
    owner = [name for name, size in sizes.items() for _ in range(size)]
    factors = {
        "projection": torch.tensor(["projection" in name for name in owner]),
        "head": torch.tensor([name in ("2.weight", "2.bias") for name in owner]),
    }
    assert factors["projection"].sum() == 15
    assert factors["head"].sum() == 12
    hessian = hessian_of(loss)(start)
    for mask in factors.values():
        assert torch.linalg.eigvalsh(hessian[mask][:, mask])[0] >= -1e-8
    assert torch.linalg.eigvalsh(hessian)[0] < -1e-4
