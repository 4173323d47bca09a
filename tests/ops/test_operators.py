"""The operators as torch sees them: schemas, fakes, derivatives, vmap, graphs; and the reference in their place."""

import pytest
import torch
from torch import nn

import mollifier
from mollifier import ops
from mollifier.activations import activation
from mollifier.ops import _chain, _library, _unit
from mollifier.ops._operator import BUILT_IN, noise_for, numbers, of_numbers
from tests.ops.helpers import assert_near

LEVEL = torch.tensor(0.6, dtype=torch.float64)
OPERATORS = torch.ops.mollifier


def unit_arguments(shape=(6, 5), unit_dim=-1, name="tanh", expected=False, keep=False, last=False):
    narrow = list(shape)
    narrow[unit_dim] -= 1
    x, below = torch.randn(shape, requires_grad=True), torch.randn(narrow, requires_grad=True)
    if last:
        x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    a = torch.empty(shape[unit_dim]).uniform_(-2, 2).requires_grad_() if name else None
    act = numbers(activation(name)) if name else []
    return x, below, a, LEVEL, LEVEL, torch.tensor([7]), act, 20.0, False, unit_dim, False, expected, keep


def chain_arguments(expected=False, keep=True):
    weights = [torch.randn(5, 11), torch.randn(6, 5)]
    biases, a = [torch.empty(0), torch.randn(6)], [torch.ones(5), torch.ones(1)]
    for each in (*weights, biases[1], *a):
        each.requires_grad_()
    settings = [*numbers(activation("tanh")), 20.0, 0.0, 0.0]
    settings += [*numbers(activation("gelu")), 20.0, 1.0, 1.0]
    x, signs = torch.randn(7, 11, requires_grad=True), torch.randn(11)  # the first link narrows
    return x, weights, biases, a, [LEVEL] * 4, [signs, torch.empty(0)], torch.tensor([3, 4]), settings, expected, keep


def recurrent_arguments(lstm=True, expected=False):
    x, wide = torch.randn(9, 3, requires_grad=True), 16 if lstm else 12
    states = [torch.randn(4, 4, requires_grad=True) for _ in range(1 + lstm)]
    weights = [torch.randn(wide, 3), torch.randn(wide, 4), torch.randn(wide), torch.randn(wide)]
    for each in weights:
        each.requires_grad_()
    a = torch.ones(1, 1 + lstm, 4, requires_grad=True)
    rest = [4, 3, 2], lstm, False, True, expected, 20.0, False, False, False, 0, True
    return x, states, weights, a, LEVEL, [LEVEL], torch.tensor(2), torch.tensor([5, 6]), *rest


with torch.random.fork_rng():
    torch.manual_seed(0)  # one in some hundred draws cancels so well that rounding shows
    CALLS = {
        "unit": ("unit", unit_arguments()),
        "unit, channels": ("unit", unit_arguments((2, 5, 3, 4), -3)),
        "unit, channels last": ("unit", unit_arguments((2, 5, 3, 4), -3, last=True)),
        "unit, expected": ("unit", unit_arguments(expected=True)),
        "copy": ("unit", unit_arguments(name=None)),
        "chain": ("chain", chain_arguments()),
        "chain, expected": ("chain", chain_arguments(expected=True)),
        "lstm": ("recurrent", recurrent_arguments()),
        "gru, expected": ("recurrent", recurrent_arguments(False, True)),
        "noise": ("noise", (torch.tensor(3), 10)),
    }


@pytest.mark.parametrize("call", CALLS)
def test_torch_finds_nothing_wrong(call):
    name, given = CALLS[call]
    torch.library.opcheck(getattr(OPERATORS, name).default, given)


def test_torch_finds_nothing_wrong_with_the_backwards():
    detached = [each.detach() if isinstance(each, torch.Tensor) else each for each in unit_arguments(keep=True)]
    out, kept = OPERATORS.unit(*detached)
    tail = (detached[6], 20.0, False, -1, 4, False, False, False, True)
    torch.library.opcheck(OPERATORS.unit_backward.default, (torch.randn_like(out), None, kept, detached[2], *tail))
    x, weights, biases, a, *rest = chain_arguments()
    weights, biases, a = ([each.detach() for each in some] for some in (weights, biases, a))
    y, kept = OPERATORS.chain(x.detach(), weights, biases, a, *rest)
    given = (torch.randn_like(y), x.detach(), kept, weights, a, rest[1], rest[3], False, [1, 1, 0, 0, 1, 1, 1])
    torch.library.opcheck(OPERATORS.chain_backward.default, given)
    x, states, weights, a, *rest = recurrent_arguments()
    states, weights = ([each.detach() for each in some] for some in (states, weights))
    out, _, c, z, kept, plain, levels = OPERATORS.recurrent(x.detach(), states, weights, a.detach(), *rest)
    given = (
        [torch.randn_like(out), torch.randn_like(c)],
        [1, 0, 1],
        x.detach(),
        states,
        weights,
        a.detach(),
        [z, kept, plain],
    )
    settings = (levels, torch.tensor([5, 6]), [4, 3, 2], True, False, True, False, False)
    for by_x, by_states in ((True, True), (True, False), (False, True)):
        torch.library.opcheck(OPERATORS.recurrent_backward.default, (*given, *settings, by_x, by_states))


@pytest.mark.parametrize("call", ["unit", "unit, channels", "unit, expected", "copy", "chain", "chain, expected"])
def test_the_reference_in_its_place_computes_the_same(call):
    name, given = CALLS[call]
    composite = {"unit": _unit._composite, "chain": _chain._composite}[name]
    inputs = [
        each for each in torch.utils._pytree.tree_leaves(given) if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    results = []
    for run in (getattr(OPERATORS, name), composite):
        out = run(*given)[0]
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    assert_near(*results, 1e-4)


def test_a_batch_of_levels_and_seeds_under_vmap():
    x, below, a, _, _, _, *tail = unit_arguments()
    x, below, a = (each.detach() for each in (x, below, a))
    levels, seeds = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([[1], [2], [3]])

    def call(x, level, seed):
        return OPERATORS.unit(x, below, a, level, level, seed, *tail)[0]

    xs = torch.randn(3, *x.shape)
    together = torch.vmap(call)(xs, levels, seeds)
    assert torch.equal(together, torch.stack([call(*each) for each in zip(xs, levels, seeds, strict=True)]))


def test_activations_are_told_by_numbers():
    for name in sorted(BUILT_IN):
        assert of_numbers(numbers(activation(name))).name == name
    assert of_numbers([]) is None


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
    assert [node.target for node in graph.graph.nodes].count(OPERATORS.unit.default) == 2
    torch._dynamo.reset()


@pytest.mark.parametrize("run", ["unit", "chain"])
def test_second_derivatives_of_expected_values_are_the_references(run, monkeypatch):
    torch.manual_seed(3)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    a = torch.empty(6, dtype=torch.float64).uniform_(-2, 2).requires_grad_()
    weight = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    tanh = activation("tanh")

    def results():
        if run == "chain":
            link = ops.Link(weight, None, a, tanh, LEVEL, LEVEL)
            out = ops.chain(x, [link], expected=True)
        else:
            out = ops.unit(x @ weight.T, x, a, tanh, level=LEVEL, normal="expected")
        first = torch.autograd.grad(out.square().sum(), (x, a, weight), create_graph=True)
        return [*first, *torch.autograd.grad(sum(each.square().sum() for each in first), (x, a, weight))]

    got = results()
    monkeypatch.setattr(_library, "LIBRARY", None)
    monkeypatch.setattr(_library, "_SILENT", True)
    assert_near(got, results(), 1e-10)


def twice(out: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """First and second derivatives."""
    first = torch.autograd.grad(out.square().sum(), inputs, create_graph=True)
    return [*first, *torch.autograd.grad(sum(each.square().sum() for each in first), inputs, materialize_grads=True)]


@pytest.mark.parametrize("level", [0.3, 0.9])
def test_second_derivatives_of_a_chain_with_sampled_noise_are_those_of_the_reference_with_the_same_noise(level):
    torch.manual_seed(3)
    p = torch.tensor(level, dtype=torch.float64)
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    weights = [torch.randn(6, 5, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)]
    a = [torch.empty(6, dtype=torch.float64).uniform_(-2, 2) for _ in weights]
    bias = torch.randn(6, dtype=torch.float64)
    inputs = [each.requires_grad_() for each in (x, *weights, *a, bias)]
    acts = [activation("tanh"), activation("sigmoid")]
    links = [
        ops.Link(weight, offset, scale, act, p, p)
        for weight, offset, scale, act in zip(weights, (bias, None), a, acts, strict=True)
    ]
    torch.manual_seed(1)
    got = twice(ops.chain(x, links), inputs)
    torch.manual_seed(1)
    assert_near(got, twice(_chain._composite(x, *_chain._arguments(links, False))[0], inputs), 1e-9)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_second_derivatives_of_channels_with_sampled_noise_are_those_of_the_reference(noisy, last):
    torch.manual_seed(3)
    shape = torch.channels_last if last else torch.contiguous_format
    x, below = (torch.randn(2, 3, 4, 5, dtype=torch.float64).contiguous(memory_format=shape) for _ in range(2))
    a = torch.empty(3, dtype=torch.float64).uniform_(-2, 2)
    inputs = [x.requires_grad_(), below.requires_grad_(), *([a.requires_grad_()] if noisy else [])]
    act = activation("tanh") if noisy else None
    torch.manual_seed(1)
    out = ops.unit(x, below, a if noisy else None, act, level=LEVEL, unit_dim=-3)
    got = twice(out, inputs)
    torch.manual_seed(1)
    shape = (2, 4, 5, 3) if last else x.shape
    noises = noise_for(x, shape, ops.draw_seeds(1), False)
    noises = [each.movedim(-1, 1) if last else each for each in noises]
    settings = act, LEVEL, LEVEL, 20.0, "paper", -3, False
    want = _unit.reference(x, below, a if noisy else None, *settings, *noises)
    assert_near([out, *got], [want, *twice(want, inputs)], 1e-9)


@pytest.mark.parametrize("noisy", [False, True])
def test_in_half_precision_a_second_derivative_copies_the_units_that_the_kernel_copied(noisy):
    x, below = (torch.randn(4, 8, 16, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    a, act = (torch.ones(8), activation("tanh")) if noisy else (None, None)
    out = ops.unit(x, below, a, act, level=LEVEL, unit_dim=-3)
    grad = torch.ones_like(out)
    (first,) = torch.autograd.grad(out, below, grad, retain_graph=True)
    (again,) = torch.autograd.grad(out, below, grad, create_graph=True)
    assert torch.equal(first, again.detach())  # 1 where a unit is copied, else 0


def test_levels_that_change_before_the_backward_pass_do_no_harm():
    x, level = torch.randn(6, 5, requires_grad=True), torch.tensor(0.5, dtype=torch.float64)
    grads = []
    for change in (False, True):
        torch.manual_seed(1)
        level.fill_(0.5)
        out = ops.unit(x, torch.randn(6, 5), torch.ones(5), activation("tanh"), level=level).sum()
        if change:
            level.fill_(0.0)
        grads.append(torch.autograd.grad(out, x)[0])
    assert torch.equal(*grads)


def test_an_empty_batch_and_autocast():
    x = torch.randn(0, 4, requires_grad=True)
    link = ops.Link(torch.randn(4, 4, requires_grad=True), None, torch.ones(4), activation("tanh"), LEVEL, LEVEL)
    out = ops.chain(ops.unit(x, x, torch.ones(4), activation("tanh"), level=LEVEL), [link])
    assert out.shape == (0, 4)
    out.sum().backward()
    assert torch.equal(link.weight.grad, torch.zeros(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert OPERATORS.chain(*chain_arguments())[0].dtype == torch.float32
        assert ops.chain(torch.randn(3, 4), [link]).dtype == torch.bfloat16
