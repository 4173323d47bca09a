"""The layer for inputs that are nearly all zero computes what `nn.Linear` computes."""

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier_lab.apply_method import apply_method, finish
from mollifier_lab.models.sparse import SparseInputLinear
from mollifier_lab.settings import RunConfig
from mollifier_lab.tasks.pentomino import PentominoTask

INPUTS = 64


def images(rows: int = 7) -> torch.Tensor:
    """Few inputs that are not zero, of all kinds of rows: the first and the last one are empty."""
    torch.manual_seed(1)
    x = torch.randn(rows, INPUTS) * (torch.rand(rows, INPUTS) < 0.1)
    x[0] = x[-1] = 0.0
    return x


def twins(bias: bool = True) -> tuple[nn.Linear, SparseInputLinear]:
    torch.manual_seed(0)
    dense = nn.Linear(INPUTS, 5, bias=bias)
    return dense, SparseInputLinear.of(copy.deepcopy(dense))


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_the_dense_product(bias: bool) -> None:
    dense, sparse = twins(bias)
    grad = torch.randn(7, 5)
    for layer in (dense, sparse):
        layer(images()).backward(grad)
    torch.testing.assert_close(sparse(images()), dense(images()))
    for ours, theirs in zip(sparse.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_an_input_that_needs_a_gradient_gets_it() -> None:
    dense, sparse = twins()
    x = images().requires_grad_()
    (ours,) = torch.autograd.grad(sparse(x).square().sum(), x)
    (theirs,) = torch.autograd.grad(dense(x).square().sum(), x)
    torch.testing.assert_close(ours, theirs)


def test_only_part_of_a_larger_tensor() -> None:
    dense, sparse = twins()
    x = torch.cat([images(), images() + 1.0], dim=1)[:, :INPUTS]
    assert not x.is_contiguous()
    torch.testing.assert_close(sparse(x), dense(x))


def test_the_parameters_stay_the_same_objects() -> None:
    layer = nn.Linear(INPUTS, 5)
    weight, bias = layer.weight, layer.bias
    sparse = SparseInputLinear.of(layer)
    assert sparse.weight is weight
    assert sparse.bias is bias
    assert weight.shape == (5, INPUTS)


@pytest.mark.parametrize("method", ["plain", "mollified", "mollified-residual", "residual-bn"])
def test_pentomino_reads_its_images_by_it_and_loads_a_dense_checkpoint(method: str) -> None:
    config = RunConfig.make("pentomino", method, width=8, depth=2)
    task = PentominoTask.__new__(PentominoTask)
    task.config, task.settings = config, config.settings
    model = task.model()
    annealer = apply_method(model, config)
    wide = [part for part in model.modules() if isinstance(part, nn.Linear) and part.in_features == task.inputs]
    assert len(wide) == (2 if mollifier.is_mollified(model) else 1)  # the layer, and the projection of its copy
    assert all(isinstance(part, SparseInputLinear) for part in wide)
    if mollifier.is_mollified(model):
        mollifier.set_level(model, 0.5)
    x = (torch.rand(16, task.inputs) < 0.01).float()
    model(x).square().sum().backward()
    assert all(part.weight.grad is not None and part.weight.grad.any() for part in wide)
    plain = finish(model, annealer)
    first = next(part for part in plain.modules() if isinstance(part, nn.Linear))
    dense = nn.Linear(task.inputs, 8)
    dense.load_state_dict(first.state_dict())
    torch.testing.assert_close(first(x), dense(x))
