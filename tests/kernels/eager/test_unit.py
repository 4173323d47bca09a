"""The eager unit against the reference with the same noise: outputs and all gradients, and what it keeps."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from mollifier import kernels
from mollifier.activations import activation
from mollifier.kernels import _eager_unit
from mollifier.kernels._eager_noise import channels_last, copied, draw, normals
from mollifier.kernels._library import BUILT_IN, draw_seed
from tests.kernels.native.helpers import TOLERANCE, as_double, assert_near, unit_reference

ACTIVATIONS = [*sorted(BUILT_IN), None]
NEAR = {**TOLERANCE, torch.float16: 3e-3}
SHAPES = [((37, 20), -1), ((5, 7, 12), -1), ((4, 9, 6), -2), ((3, 6, 5, 4), -3), ((1, 1), -1)]


def noise_of(seed: int, x: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """The |ξ| and, as numbers on the right side of the level, the copies that follow torch.manual_seed(seed)."""
    torch.manual_seed(seed)
    bits = draw(draw_seed(), x.shape, channels_last(x))
    return normals(bits, torch.float64), 1.0 + copied(bits, level, torch.float64).double() * 2.0


def same(shape, unit_dim, how, name, dtype, spec, copies, seed, one_a=False):
    """Run both and compare; spec is the kernels' own, for the reference."""
    torch.manual_seed(seed)
    act = None if name is None else activation(name)
    x, below = (2.0 * torch.randn(shape)).to(dtype), torch.randn(shape).to(dtype)
    if how == "transposed":
        x, below = (each.transpose(0, -1).contiguous().transpose(0, -1) for each in (x, below))
    if how == "channels_last" and len(shape) == 4:
        x, below = (each.to(memory_format=torch.channels_last) for each in (x, below))
    x, below = x.requires_grad_(), below.requires_grad_() if copies or act is None else None
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    units = 1 if one_a else shape[unit_dim]
    a = None if act is None else torch.empty(units, dtype=kind).uniform_(-2, 2).requires_grad_()
    shaped = a if a is None or one_a else a.view(-1, *(1,) * (-unit_dim - 1))
    torch.manual_seed(seed + 1)
    eager = kernels.EagerSpec(act, spec.level, spec.c, spec.push, spec.residual)
    out = kernels.eager_unit(x, below, shaped, eager)
    assert out.dtype == dtype
    grad = torch.randn(shape).to(dtype)
    used = [each for each in (x, below, a) if each is not None]
    got = torch.autograd.grad(out, used, grad)
    doubles = as_double(x, below, a)
    reference = unit_reference(*doubles, act, spec, noise_of(seed + 1, x, spec.level))
    wanted = torch.autograd.grad(reference, [each for each in doubles if each is not None], grad.double())
    assert_near([out, *got], [reference, *wanted], NEAR[dtype])


@given(
    shape=st.sampled_from(SHAPES),
    how=st.sampled_from(["plain", "transposed", "channels_last"]),
    name=st.sampled_from(ACTIVATIONS),
    dtype=st.sampled_from(list(NEAR)),
    level=st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0),
    push=st.sampled_from(["paper", "odds"]),
    copies=st.booleans(),
    residual=st.booleans(),
    one_a=st.booleans(),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=300)
def test_equals_the_reference_with_its_noise(shape, how, name, dtype, level, push, copies, residual, one_a, seed):
    if push == "odds" and 0.99 < level < 1.0:
        level = 0.99  # from there on c p / (1 - p) is so large that float32 cannot say on which side of u a push ends
    spec = kernels.Spec(None, level, 20.0, push, shape[1], 0, residual and (copies or name is None))
    same(*shape, how, name, dtype, spec, copies, seed, one_a)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name is not None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_activation_with_kept_and_with_recomputed_derivatives(name, dtype, monkeypatch):
    same((64, 50), -1, "plain", name, dtype, kernels.Spec(None, 0.5, 20.0), True, 7)
    monkeypatch.setattr(_eager_unit, "KEEP", 0)
    same((64, 50), -1, "plain", name, dtype, kernels.Spec(None, 0.5, 20.0), True, 7)
    same((64, 50), -1, "plain", name, dtype, kernels.Spec(None, 0.9, 20.0, "odds"), False, 7)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "gelu", "relu"])
@pytest.mark.parametrize("keep", [True, False])
def test_gradcheck(name, keep, monkeypatch):
    monkeypatch.setattr(_eager_unit, "KEEP", 100 if keep else 0)
    x, below = (torch.randn(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    a = torch.empty(6, dtype=torch.float64).uniform_(-2, 2).requires_grad_()

    def unit(*tensors: Tensor) -> Tensor:
        torch.manual_seed(11)
        return kernels.eager_unit(*tensors, kernels.EagerSpec(activation(name), 0.5, 20.0))

    assert torch.autograd.gradcheck(unit, (x, below, a))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["tanh", "relu", None])
def test_what_is_not_taken_does_no_harm(bad, name):
    act = None if name is None else activation(name)
    a = None if name is None else torch.ones(4)
    x, below = torch.randn(1, 4, requires_grad=True), torch.full((1, 4), bad, requires_grad=True)
    out = kernels.eager_unit(x, below, a, kernels.EagerSpec(act, 1e-9, 20.0))  # next to nothing is copied
    assert out.isfinite().all()
    assert torch.equal(torch.autograd.grad(out, below, torch.full_like(out, bad))[0], torch.zeros(1, 4))
    out = kernels.eager_unit(below, x, a, kernels.EagerSpec(act, 1.0, 20.0))  # everything is
    assert torch.equal(out, x)
    assert torch.equal(
        torch.autograd.grad(out, below, torch.full_like(out, bad))[0].nan_to_num(9.0) * 0, torch.zeros(1, 4)
    )
    out = kernels.eager_unit(torch.full((1, 4), float("nan")), x, a, kernels.EagerSpec(act, 1e-9, 20.0))
    assert out.isnan().all()


def test_a_second_derivative_is_refused_and_says_what_to_do():
    x = torch.randn(3, 4, requires_grad=True)
    out = kernels.eager_unit(x, None, torch.ones(4), kernels.EagerSpec(activation("tanh"), 0.5, 20.0))
    with pytest.raises(RuntimeError, match="MOLLIFIER_KERNELS=off"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4, 4)])
def test_the_graph_can_be_walked_twice(shape):
    x, below = torch.randn(shape, requires_grad=True), torch.randn(shape)
    out = kernels.eager_unit(x, below, torch.ones(1), kernels.EagerSpec(activation("relu"), 0.5, 20.0)).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    assert torch.equal(first, torch.autograd.grad(out, x)[0])


@pytest.mark.parametrize(
    ("shape", "name", "most"),
    [
        ((128, 200), "sigmoid", 9.1),
        ((64, 64, 24, 24), "sigmoid", 4.1),
        ((64, 64, 24, 24), "relu", 4.1),
        ((128, 200), None, 1.1),
    ],
)
def test_bytes_kept_for_the_backward_pass(shape, name, most):
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    x, below = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    a = None if name is None else torch.ones(1, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = kernels.eager_unit(x, below, a, kernels.EagerSpec(None if name is None else activation(name), 0.5, 20.0))
    assert sum(kept.values()) / x.numel() < most
    assert (out.data_ptr() in kept) == (name == "relu")  # what follows keeps it, too
