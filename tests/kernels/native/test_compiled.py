"""The unit as an operation in torch.compile's graphs: against the reference with the same noise, and as a good citizen there."""

import pytest
import torch
from torch import nn

import mollifier
from mollifier import kernels
from mollifier.activations import activation
from mollifier.kernels._compiled import unit
from mollifier.kernels._library import parts
from tests.kernels.native.helpers import TOLERANCE, as_double, assert_near, unit_reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("shape", "unit_dim"), [((40, 30), -1), ((3, 8, 5, 4), -3)])
@pytest.mark.parametrize("name", ["tanh", "leaky_relu", None])
def test_the_operation_equals_the_reference(name, shape, unit_dim, dtype):
    act = None if name is None else activation(name, **({"negative_slope": 0.2} if name == "leaky_relu" else {}))
    narrow = list(shape)
    narrow[unit_dim] -= 3
    x, below = torch.randn(shape).to(dtype).requires_grad_(), torch.randn(narrow).to(dtype).requires_grad_()
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    a = None if act is None else torch.empty(shape[unit_dim], dtype=kind).uniform_(-2, 2).requires_grad_()
    levels, numbers = torch.tensor([0.6, 0.6], dtype=torch.float64), [] if act is None else list(parts(act))
    tail = (numbers, 20.0, "odds", unit_dim, narrow[unit_dim], False)
    out = unit(x, below, a, levels, torch.tensor(77), *tail)
    grad = torch.randn(shape).to(dtype)
    got = torch.autograd.grad(out, [each for each in (x, below, a) if each is not None], grad)
    doubles = as_double(x, below, a)
    noise = tuple(each.double().view(shape) for each in kernels.noise(77, x.numel()))
    spec = kernels.Spec(None, 0.6, 20.0, "odds", unit_dim)
    reference = unit_reference(*doubles, act, spec, noise)
    wanted = torch.autograd.grad(reference, [each for each in doubles if each is not None], grad.double())
    assert_near([out, *got], [reference, *wanted], TOLERANCE[dtype])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_schema_fake_and_autograd_are_what_torch_expects(memory_format):
    x = torch.randn(2, 5, 3, 4).contiguous(memory_format=memory_format).requires_grad_()
    a, below = torch.ones(5, requires_grad=True), torch.randn(2, 4, 3, 4, requires_grad=True)
    levels = torch.tensor([0.5, 0.5]).double()
    tail = (list(parts(activation("tanh"))), 20.0, "paper", -3, 4, False)
    torch.library.opcheck(unit, (x, below, a, levels, torch.tensor(3), *tail))


def test_a_compiled_model_has_one_node_a_block():
    graphs = []

    def look(graph, example):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    layers = [nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)]
    model = mollifier.mollify(nn.Sequential(*layers), level=0.5)
    compiled = torch.compile(model, backend=look, fullgraph=True)
    x = torch.randn(3, 4)
    compiled(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not torch.equal(compiled(x), compiled(x))  # fresh noise at every call
    (graph,) = graphs
    assert [node.target for node in graph.graph.nodes].count(torch.ops.mollifier.unit.default) == 2
    torch._dynamo.reset()
