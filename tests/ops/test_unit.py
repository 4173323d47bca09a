"""The fused unit against the reference with the same noise: outputs and all gradients."""

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from mollifier.activations import activation
from mollifier.ops import _unit
from mollifier.ops._operator import BUILT_IN
from tests.ops.helpers import TOLERANCE, Spec, as_double, assert_near, noise_of, unit as run_unit, unit_reference

ACTIVATIONS = [*sorted(BUILT_IN), None]
LEVELS = st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int, str]:
    """A shape, where its units are, and how it lies in memory."""
    kind = draw(st.sampled_from(["features", "sequence", "channels", "channels_last", "signal"]))
    units, size = draw(st.integers(1, 40)), st.integers(1, 9)
    if kind == "features":
        return (draw(st.integers(1, 60)), units), -1, draw(st.sampled_from(["plain", "transposed", "sliced"]))
    if kind == "sequence":
        return (draw(size), draw(size), units), -1, draw(st.sampled_from(["plain", "transposed", "sliced"]))
    if kind == "signal":
        return (draw(size), units, draw(size)), -2, draw(st.sampled_from(["plain", "transposed"]))
    return (draw(size), units, draw(size), draw(size)), -3, "channels_last" if kind == "channels_last" else "plain"


def laid_out(tensor: Tensor, how: str) -> Tensor:
    if how == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "sliced":
        wide = torch.stack([tensor, tensor + 1.0], -1)
        return wide[..., 0]
    return tensor.to(memory_format=torch.channels_last) if how == "channels_last" else tensor


def same(
    shape: tuple[int, ...],
    unit_dim: int,
    how: str,
    name: str | None,
    dtype: torch.dtype,
    spec: Spec,
    copies: bool,
    seed: int,
    one_a: bool = False,
) -> None:
    """Run both and compare."""
    torch.manual_seed(seed)
    act = None if name is None else activation(name)
    spec.act = act
    units = shape[unit_dim]
    x = laid_out((2.0 * torch.randn(shape)).to(dtype), how).requires_grad_()
    below = None
    if copies or act is None:
        narrow = list(shape)
        narrow[unit_dim] = spec.in_units = max(1, min(units, spec.in_units or units))
        below = laid_out(torch.randn(narrow).to(dtype), how).requires_grad_()
    kind = torch.float64 if dtype == torch.float64 else torch.float32
    a = None if act is None else torch.empty(1 if one_a else units, dtype=kind).uniform_(-2, 2).requires_grad_()

    torch.manual_seed(seed + 1)
    out = run_unit(x, below, a, spec)
    grad = torch.randn(shape).to(dtype)
    noise = noise_of(seed + 1, shape, channels_last=out.dim() == 4 and not out.is_contiguous())
    used = [each for each in (x, below, a) if each is not None]
    got = torch.autograd.grad(out, used, grad)
    copied = as_double(x, below, a)
    reference = unit_reference(*copied, act, spec, noise)
    wanted = torch.autograd.grad(reference, [each for each in copied if each is not None], grad.double())
    assert_near([out, *got], [reference, *wanted], TOLERANCE[dtype])


@given(
    shape=shapes(),
    name=st.sampled_from(ACTIVATIONS),
    dtype=st.sampled_from(list(TOLERANCE)),
    level=LEVELS,
    push=st.sampled_from(["paper", "odds"]),
    copies=st.booleans(),
    residual=st.booleans(),
    in_units=st.integers(0, 40),
    one_a=st.booleans(),
    mode=st.sampled_from(["sample", "sample", "expected"]),
    seed=st.integers(0, 2**20),
)
@settings(max_examples=400)
def test_equals_the_reference_with_its_noise(
    shape, name, dtype, level, push, copies, residual, in_units, one_a, mode, seed
):
    if push == "odds" and 0.99 < level < 1.0:
        level = 0.99  # from there on c p / (1 - p) is so large that float32 cannot say on which side of u a push ends
    size, unit_dim, how = shape
    spec = Spec(None, level, 20.0, push, unit_dim, in_units, residual and copies, mode)
    same(size, unit_dim, how, name, dtype, spec, copies, seed, one_a)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name is not None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_activation_with_kept_and_with_recomputed_derivatives(name, dtype, monkeypatch):
    same((64, 50), -1, "plain", name, dtype, Spec(None, 0.5, 20.0, "paper", -1, 20), True, 7)
    monkeypatch.setattr(_unit, "KEEP", 0)
    same((64, 50), -1, "plain", name, dtype, Spec(None, 0.5, 20.0, "paper", -1, 20), True, 7)
    same((4, 6, 5, 3), -3, "channels_last", name, dtype, Spec(None, 0.3, 20.0, "odds", -3, 4), True, 8)


def test_many_pieces_and_chunks():
    # more rows than pieces, more units than a chunk, and a padded edge inside one
    spec = Spec(None, 0.4, 20.0, "paper", -1, 300)
    same((700, 611), -1, "plain", "sigmoid", torch.float64, spec, True, 1)
    same((3, 5, 40, 41), -3, "plain", "tanh", torch.float64, Spec(None, 0.4, 20.0, "paper", -3, 2), True, 1)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "gelu", "relu"])
def test_gradcheck(name):
    torch.manual_seed(3)
    x, below = (torch.randn(4, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    a = torch.empty(6, dtype=torch.float64).uniform_(-2, 2).requires_grad_()

    def unit(*tensors: Tensor) -> Tensor:
        torch.manual_seed(11)
        return run_unit(*tensors, Spec(activation(name), 0.5, 20.0, "paper", -1, 6))

    assert torch.autograd.gradcheck(unit, (x, below, a))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_and_infinity_are_not_hidden(name):
    act = None if name is None else activation(name)
    x = torch.tensor([[float("nan"), 1.0, float("nan"), -2.0]])
    below = torch.zeros(1, 4)
    spec = Spec(act, 1e-9, 20.0, "paper", -1, 4)  # next to nothing is copied
    out = run_unit(x, below, None if act is None else torch.ones(4), spec)
    assert out.isnan().tolist() == [[True, False, True, False]]
    everything = Spec(act, 1.0, 20.0, "paper", -1, 4)
    copied = run_unit(torch.zeros(1, 4), x, None if act is None else torch.ones(4), everything)
    assert torch.equal(copied.isnan(), x.isnan())


@pytest.mark.parametrize("name", ["gelu", "mish", "silu", "sigmoid", "tanh"])
def test_an_activation_is_precise_where_it_is_nearly_0(name):
    act, x = activation(name), torch.linspace(-5.0, 8.0, 2001)
    out = run_unit(x[None], None, torch.ones(1), Spec(act, 0.0))  # without a push it is the activation alone
    torch.testing.assert_close(out[0].double(), act.f(x.double()), rtol=3e-6, atol=1e-12)


def test_a_noisy_relu_without_a_push_has_the_plain_gradient():
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    a = torch.zeros(3, requires_grad=True)  # of a = 0 no push comes
    out = run_unit(x, None, a, Spec(activation("relu"), 0.5, unit_dim=-3))
    grad_x, grad_a = torch.autograd.grad(out.sum(), (x, a))
    assert torch.equal(grad_x, (x > 0).float())
    assert torch.equal(grad_a, torch.zeros(3))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_taken_does_no_harm(bad):
    act = activation("tanh")
    x = torch.randn(1, 4, requires_grad=True)
    below = torch.full((1, 4), bad, requires_grad=True)
    out = run_unit(x, below, torch.ones(4), Spec(act, 1e-9, 20.0, "paper", -1, 4))
    assert out.isfinite().all()
    assert torch.equal(torch.autograd.grad(out, below, torch.full_like(out, bad))[0], torch.zeros(1, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("unit_dim", [-1, -2], ids=["derivatives kept", "computed again"])
def test_even_an_infinite_gradient_goes_one_way_only(dtype, unit_dim):
    x = torch.randn(30, 40, 40, dtype=dtype, requires_grad=True)
    below = torch.randn(30, 40, 40, dtype=dtype, requires_grad=True)
    out = run_unit(x, below, torch.ones(40), Spec(activation("sigmoid"), 0.5, 20.0, "paper", unit_dim, 40))
    by_x, by_below = torch.autograd.grad(out, (x, below), torch.full_like(out, float("inf")))
    copied = by_below != 0
    assert 0.45 < copied.double().mean() < 0.55
    assert by_below[copied].isposinf().all()
    assert not by_x[copied].any()
    assert by_x[~copied].isposinf().all()


def test_a_second_derivative_is_refused_and_says_what_to_do():
    x = torch.randn(3, 4, requires_grad=True)
    spec = Spec(activation("tanh"), 0.5, 20.0)
    out = run_unit(x, None, torch.ones(4), spec)
    with pytest.raises(RuntimeError, match="MOLLIFIER_KERNELS=off"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_the_graph_can_be_walked_twice():
    x = torch.randn(3, 4, requires_grad=True)
    spec = Spec(activation("tanh"), 0.5, 20.0, "paper", -1, 4)
    out = run_unit(x, torch.randn(3, 4), torch.ones(4), spec).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    assert torch.equal(first, torch.autograd.grad(out, x)[0])
