"""Runs of linear layers with their units, dense and sparse, against the reference and against one layer at a time, with the same noise."""

import ctypes
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import Tensor
from torch.nn import functional as F

from mollifier import functional, ops
from mollifier.activations import activation
from mollifier.ops import Link, _chain, _library
from tests.ops.helpers import TOLERANCE, as_double, assert_near, draw_seed

LEVELS = st.sampled_from([0.0, 0.75, 0.9, 0.99, 1.0]) | st.floats(0.0, 1.0)


@dataclass
class Layer:
    """What is drawn for one layer."""

    wider: int
    level: float
    name: str
    push: str
    biased: bool
    one_a: bool
    residual: bool
    learns: bool


LAYER = st.builds(
    Layer,
    wider=st.sampled_from([0, 0, 1, 9, 30, -1, -4]),  # below 0: it narrows by sums
    level=LEVELS,
    name=st.sampled_from(["sigmoid", "hard_sigmoid", "tanh", "gelu", "softplus"]),
    push=st.sampled_from(["paper", "odds"]),
    biased=st.booleans(),
    one_a=st.booleans(),
    residual=st.booleans(),
    learns=st.booleans(),
)


def made(layers: list[Layer], units: int, dtype: torch.dtype) -> list[Link]:
    links = []
    for layer in layers:
        level = min(layer.level, 0.9) if layer.push == "odds" and layer.level < 1.0 else layer.level
        above = max(1, units + layer.wider)
        signs = torch.randn(units, dtype=dtype) if above < units else None
        weight = torch.randn(above, units, dtype=dtype) / units**0.5
        bias = torch.randn(above, dtype=dtype) if layer.biased else None
        a = torch.empty(1 if layer.one_a else above, dtype=dtype).uniform_(-2, 2)
        for each in (weight, bias, a):
            if each is not None:
                each.requires_grad_(layer.learns)
        levels = [torch.tensor(level, dtype=torch.float64)] * 2
        links.append(Link(weight, bias, a, activation(layer.name), *levels, 20.0, layer.push, layer.residual, signs))
        units = above
    return links


def learned(x: Tensor, links: list[Link]) -> list[Tensor]:
    return [
        each for each in (x, *(each for link in links for each in link[:3])) if each is not None and each.requires_grad
    ]


def reference(x: Tensor, links: list[Link], layers: list[Layer], mode: str) -> tuple[Tensor, list[Tensor]]:
    """By mollifier.functional in float64, with the kernels' own noise; and what it can be differentiated by."""
    leaves = []
    (h,) = as_double(x)
    leaves += [h] if x.requires_grad else []
    for link, layer in zip(links, layers, strict=True):
        weight, bias, a = copies = as_double(*link[:3])
        leaves += [each for each in copies if each is not None and layer.learns]
        if link.signs is not None:
            short = functional.signed_sums(h, link.signs.double(), len(weight))
        else:
            short = F.pad(h, (0, len(weight) - h.shape[-1]))
        seed = draw_seed() if mode == "sample" else 0
        if link.level >= 1.0:  # what is not used has a gradient of zero
            h = short + 0.0 * (weight.sum() + a.sum() + (0.0 if bias is None else bias.sum()))
            continue
        z = F.linear(h, weight, bias)
        normal, uniform = (each.double().view(z.shape) for each in ops.noise(seed, z.numel()))
        normal, uniform = (normal, uniform) if mode == "sample" else (mode, mode)
        above = functional.noisy_activation(z, layer.name, level=link.level, a=a, noise=normal, push=layer.push)
        h = functional.copy_mix(short, above + short if link.residual else above, level=link.level, noise=uniform)
    return h, leaves


@given(
    shape=st.tuples(st.integers(1, 40)) | st.tuples(st.integers(1, 4), st.integers(1, 9)),
    units=st.integers(1, 60),
    layers=st.lists(LAYER, min_size=1, max_size=5),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    by_x=st.booleans(),
    mode=st.sampled_from(["sample", "sample", "expected"]),
    seed=st.integers(0, 2**20),
)
@example(  # a's gradient must not depend on whether that of the layer below is wanted
    shape=(16,),
    units=33,
    layers=[
        Layer(0, 0.0, "sigmoid", "paper", False, False, False, False),
        Layer(0, 0.5, "sigmoid", "paper", False, False, False, True),
    ],
    dtype=torch.float32,
    by_x=False,
    mode="sample",
    seed=0,
)
@settings(max_examples=200)
def test_equals_the_reference_and_one_layer_at_a_time(shape, units, layers, dtype, by_x, mode, seed):
    run = partial(ops.chain, expected=mode == "expected")
    torch.manual_seed(seed)
    x = torch.randn(*shape, units, dtype=dtype).requires_grad_(by_x)
    links = made(layers, units, dtype)
    leaves = learned(x, links)
    torch.manual_seed(seed + 1)
    out = run(x, links)
    grad = torch.randn_like(out)
    got = [out, *(torch.autograd.grad(out, leaves, grad) if leaves else [])]

    torch.manual_seed(seed + 1)
    h = x
    for link in links:
        h = run(h, [link])
    alone = [h, *(torch.autograd.grad(h, leaves, grad) if leaves else [])]
    assert all(torch.equal(one, two) for one, two in zip(got, alone, strict=True))

    torch.manual_seed(seed + 1)
    wanted, doubles = reference(x, links, layers, mode)
    expected = [wanted, *(torch.autograd.grad(wanted, doubles, grad.double()) if leaves else [])]
    # float32 rounds in every layer
    assert_near(got, expected, TOLERANCE[dtype] * (3 * len(links) if dtype == torch.float32 else 1))

    with torch.no_grad():
        torch.manual_seed(seed + 1)
        assert_near([run(x, links)], [out], TOLERANCE[dtype] * len(links))


@pytest.fixture
def sparse_from():
    """Sets the level from which on only the units that are not copied are computed."""

    def change(level: float) -> None:
        _library.LIBRARY.mollifier_sparse_from(ctypes.c_double(level))

    yield change
    change(0.75)


@pytest.mark.parametrize("level", [0.2, 0.5, 0.9])
def test_dense_and_sparse_are_the_same_function(level, sparse_from):
    x, weight, bias = torch.randn(90, 64, requires_grad=True), torch.randn(128, 64) / 8, torch.randn(128)
    a = torch.empty(128).uniform_(-2, 2)
    link = Link(weight, bias, a, activation("sigmoid"), *[torch.tensor(level)] * 2)
    results = []
    for first in (0.0, 2.0):  # sparse at every level (below a third there is no room: it falls back), then at none
        sparse_from(first)
        torch.manual_seed(5)
        out = ops.chain(x, [link])
        results.append([out, *torch.autograd.grad(out.square().sum(), x)])
    assert_near(results[0], results[1], 2e-5)
    assert torch.equal(results[0][0], results[1][0]) == (level < 1 / 3)


def test_gradcheck():
    torch.manual_seed(3)
    layers = [Layer(2, 0.5, "sigmoid", "paper", True, False, False, True)]
    layers += [
        Layer(0, 0.8, "tanh", "odds", True, True, True, True),
        Layer(1, 0.3, "gelu", "paper", False, False, False, True),
    ]
    links = made(layers, 4, torch.float64)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def chain(x: Tensor, *tensors: Tensor | None) -> Tensor:
        torch.manual_seed(11)
        parts = [
            link._replace(weight=w, bias=b, a=a) for link, w, b, a in zip(links, *[iter(tensors)] * 3, strict=False)
        ]
        return ops.chain(x, parts)

    tensors = [each for link in links for each in link[:3]]
    assert torch.autograd.gradcheck(chain, (x, *tensors))


def simple(depth: int, rows: int = 128, units: int = 64, level: float = 0.5) -> tuple[Tensor, list[Link]]:
    layer = Layer(0, level, "sigmoid", "paper", True, False, False, True)
    return torch.randn(rows, units, requires_grad=True), made([layer] * depth, units, torch.float32)


def test_the_graph_can_be_walked_twice():
    for level in (0.5, 0.9):
        x, links = simple(3, level=level)
        out = ops.chain(x, links).sum()
        first = torch.autograd.grad(out, learned(x, links), retain_graph=True)
        again = torch.autograd.grad(out, learned(x, links))
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_what_is_changed_before_the_backward_pass_is_noticed():
    x, links = simple(2)
    out = ops.chain(x, links).sum()
    with torch.no_grad():
        links[1].weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_bytes_kept_for_the_backward_pass(level):
    kept = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x, links = simple(6, level=level)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = ops.chain(x, links)
    for tensor in learned(x, links):
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    outputs = 5 * out.numel() * 4  # of the layers inside, which plain ones keep as well
    assert (sum(kept.values()) - outputs) / (6 * out.numel()) < 8.1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_what_is_copied_takes_no_harm_from_what_is_not_and_the_other_way(level, bad):
    x, (link,) = simple(1, rows=40, level=level)
    torch.manual_seed(1)
    whole = ops.chain(x, [link])
    copied = whole == x
    with torch.no_grad():
        link.weight[7] = bad
    torch.manual_seed(1)
    out = ops.chain(x, [link])
    others = torch.arange(64) != 7
    assert out[copied | others].isfinite().all()
    grad = torch.zeros(40, 64)
    grad[:, 3] = torch.where(copied[:, 3], bad, 1.0)
    by_weight, by_a = torch.autograd.grad(out, (link.weight, link.a), grad)
    assert by_weight[others].isfinite().all()
    assert by_a[others].isfinite().all()


def test_seeds_drawn_together_are_those_drawn_one_by_one():
    torch.manual_seed(4)
    together = ops.draw_seeds(20).tolist()
    torch.manual_seed(4)
    assert together == [draw_seed() for _ in range(20)]
    assert ops.draw_seeds(0).tolist() == []


def test_in_lots_it_is_the_same(monkeypatch):
    torch.manual_seed(1)
    layers = [
        Layer(wider, level, "sigmoid", "paper", True, False, False, True)
        for wider, level in ((3, 0.5), (0, 0.9), (2, 1.0), (0, 0.3))
    ]
    links, x = made(layers, 6, torch.float32), torch.randn(5, 6, requires_grad=True)
    inputs = [x, *(tensor for link in links for tensor in link[:3])]

    def results():
        torch.manual_seed(2)
        out = ops.chain(x, links)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    whole = results()
    columns = 5 * 4 * 3
    monkeypatch.setattr(_chain, "LOT", columns * (9 + 9))  # the first two keep that much
    lots = results()
    assert [len(some) for some in _chain._lots(links, 5 * 4)] == [2, 1, 1]
    assert all(torch.equal(one, two) for one, two in zip(whole, lots, strict=True))
