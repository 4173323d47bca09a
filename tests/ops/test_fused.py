"""Where nn.Sequential runs its blocks as one, and that nobody misses the calls of the modules inside."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier import ops
from mollifier.nn import Annealed, _fused
from tests.ops.helpers import assert_near

BLOCKS = 5


def network(level: float = 0.5, dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    widths, activations = [6, 8, 8, 12, 12, 12], [nn.Sigmoid(), nn.Tanh(), nn.Sigmoid(), nn.LeakyReLU(0.2), nn.GELU()]
    layers: list[nn.Module] = []
    for number, activation in enumerate(activations):
        layers += [nn.Linear(widths[number], widths[number + 1], bias=number != 1), activation]
    return mollifier.mollify(nn.Sequential(*layers, nn.Linear(12, 2)).to(dtype), level=level)


def set_levels(model: nn.Module, levels: list[float]) -> None:
    for part in model.modules():
        if isinstance(part, Annealed):
            assert part.order is not None
            part.set_level(levels[part.order])


def chain_lengths(run: Callable[[], object]) -> list[int]:
    """How many blocks each call of the operator for a chain takes, in the order of the calls."""
    found: list[int] = []

    def counted(x: Tensor, links: Sequence[ops.Link], **options: Any) -> Tensor:
        found.append(len(links))
        return chain(x, links, **options)

    chain = ops.chain
    with mock.patch.object(ops, "chain", counted):
        run()
    return found


def results(model: nn.Module, x: Tensor, seed: int = 1) -> list[Tensor]:
    torch.manual_seed(seed)
    out = model(x)
    wanted = [x, *model.parameters()]
    grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)
    after = torch.rand(3)  # as many draws were made, too
    return [
        out,
        after,
        *(torch.zeros_like(each) if grad is None else grad for each, grad in zip(wanted, grads, strict=True)),
    ]


@pytest.fixture
def one_by_one(monkeypatch):
    """The results with one layer at a time, each of which is tested against the reference."""

    def get(model: nn.Module, x: Tensor) -> list[Tensor]:
        with monkeypatch.context() as changed:
            changed.setattr(_fused, "_chain", lambda blocks, index, x: [])
            return results(model, x)

    return get


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("levels", "chains"),
    [
        ([0.5] * 5, [5]),
        ([0.95] * 5, [5]),
        ([0.5, 0.0, 0.9, 1.0, 0.3], [1, 3]),  # level 0 is torch's own operation
        ([1.0, 1.0, 0.8, 0.2, 0.0], [4]),
        ([0.0] * 5, []),
        ([1.0] * 5, [5]),
    ],
)
def test_equals_one_layer_at_a_time(levels, chains, dtype, one_by_one):
    model = network(dtype=dtype)
    set_levels(model, levels)
    x = torch.randn(30, 6, dtype=dtype, requires_grad=True)
    assert chain_lengths(lambda: model(x)) == chains
    assert_near(results(model, x), one_by_one(model, x), 1e-5 if dtype == torch.float32 else 1e-10)


def inner(model: nn.Sequential) -> dict[str, nn.Module]:
    end = model[5]._mollifier.ends[0]
    return {"linear": model[4], "activation": model[5], "copy": end.copy, "noise": end.noise}


@pytest.mark.parametrize("which", ["linear", "activation"])
def test_hooks_inside_are_called(which, one_by_one):
    model, x = network(), torch.randn(30, 6, requires_grad=True)
    calls = []
    hooks = [
        inner(model)[which].register_forward_hook(lambda *_: calls.append("forward")),
        inner(model)[which].register_full_backward_hook(lambda *_: calls.append("backward")),
    ]
    got = results(model, x)
    assert calls == ["forward", "backward"]
    assert chain_lengths(lambda: model(x)) == [2, 2]  # the hooked one is called, the others run together
    for hook in hooks:
        hook.remove()
    assert chain_lengths(lambda: model(x)) == [5]
    if which == "linear":  # else the hooked activation and its copy draw one seed each
        assert_near(got, one_by_one(model, x), 1e-5)


@pytest.mark.parametrize("which", ["linear", "activation", "copy", "noise"])
def test_a_hook_or_an_own_forward_keeps_a_block_out(which):
    model, x = network(), torch.randn(30, 6, requires_grad=True)
    handle = inner(model)[which].register_forward_pre_hook(lambda *_: None)
    assert chain_lengths(lambda: model(x)) == [2, 2]
    handle.remove()
    module = inner(model)[which]
    module.forward = module.forward
    assert chain_lengths(lambda: model(x)) == [2, 2]


def test_nothing_of_ours_is_called_at_level_0():
    """It is the plain network: whoever listens to a copy hears it while it copies."""
    model, calls = network(0.0), []
    for which in ("copy", "noise"):
        inner(model)[which].register_forward_hook(lambda *_: calls.append(1))
    model(torch.randn(3, 6))
    assert calls == []
    mollifier.set_level(model, 0.5)
    model(torch.randn(3, 6))
    assert calls == [1, 1]


def test_a_hook_on_all_modules_is_called():
    model, calls = network(), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: calls.append(type(module).__name__))
    try:
        assert chain_lengths(lambda: model(torch.randn(3, 6))) == []
    finally:
        handle.remove()
    assert [name.removeprefix("Mollified") for name in calls].count("Linear") == 6


def test_what_the_kernels_do_not_serve_goes_layer_by_layer():
    model, x = network(), torch.randn(30, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert chain_lengths(lambda: model(x)) == []
    assert chain_lengths(lambda: copy.deepcopy(model).bfloat16()(x.bfloat16())) == []
    model[4].weight = nn.Parameter(model[4].weight.detach().t().contiguous().t())  # not in memory order
    assert chain_lengths(lambda: model(x)) == [2, 2]
    plain = network()
    plain[3]._mollifier.ends[0].copy.set_level(0.7)  # an ablation: the copy's level apart from the noise's
    assert chain_lengths(lambda: plain(x)) == [1, 3]


class Tagged(Tensor):
    """A tensor of somebody's own."""


def test_tensors_of_other_kinds_go_layer_by_layer():
    model = network()
    assert chain_lengths(lambda: model(torch.randn(3, 6).as_subclass(Tagged))) == []
    model[4].weight = nn.Parameter(model[4].weight.detach().as_subclass(Tagged))
    assert type(model[4].weight) is not nn.Parameter or isinstance(model[4].weight, Tagged)
    assert 5 not in chain_lengths(lambda: model(torch.randn(3, 6)))


def test_transforms_of_torch_func_go_layer_by_layer():
    model, x = network(), torch.randn(4, 3, 6)
    out = torch.func.vmap(model, randomness="different")(x)
    assert out.shape == (4, 3, 2)
    gradient = torch.func.grad(lambda x: model(x).sum())(x)
    assert gradient.shape == x.shape
    assert gradient.any()


def test_parameters_exchanged_for_one_call_are_the_ones_used():
    model, x = network(), torch.randn(5, 6)
    others = {name: torch.randn_like(value, requires_grad=True) for name, value in model.named_parameters()}
    torch.manual_seed(2)
    got = torch.func.functional_call(model, others, x)
    assert chain_lengths(lambda: torch.func.functional_call(model, others, x)) == [5]
    changed = copy.deepcopy(model)
    changed.load_state_dict({**model.state_dict(), **others})
    torch.manual_seed(2)
    assert torch.equal(got, changed(x))


def test_changed_modules_are_the_ones_used():
    model, x = network(), torch.randn(5, 6)
    model(x)
    model[4] = nn.Linear(8, 12)
    torch.nn.init.zeros_(model[4].weight)
    with pytest.warns(
        RuntimeWarning, match="a mollified Sigmoid was called on a tensor that did not come from its layer"
    ):
        out = model(x)
    assert chain_lengths(lambda: model(x)) == [2, 2]  # the copy went with the layer that was taken out
    out.sum().backward()
    assert model[4].weight.grad is not None


def test_frozen_parameters_get_no_gradient():
    model = network()
    for number in (0, 4):
        model[number].requires_grad_(False)
    model(torch.randn(5, 6)).sum().backward()
    assert model[0].weight.grad is None
    assert model[4].bias.grad is None
    assert model[2].weight.grad is not None


def test_copies_and_pickles_behave_alike():
    model, x = network(), torch.randn(5, 6, requires_grad=True)
    wanted = results(model, x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(torch.equal(one, two) for one, two in zip(results(twin, x), wanted, strict=True))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_same_on_one_thread_and_two(level):
    # the matrix product is torch's, and may round differently on two threads
    model, x = network(level), torch.randn(300, 6, requires_grad=True)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results(model, x)
        torch.set_num_threads(2)
        two = results(model, x)
    finally:
        torch.set_num_threads(before)
    assert_near(two, one, 1e-6)
