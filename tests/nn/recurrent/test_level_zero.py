"""Level 0 is torch's module over the whole space of its options: its own operation, and the reference engine as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

import mollifier
from mollifier.nn import RecurrentOptions

from .helpers import CELLS, everything, force, packed, pair, state_for, tensors

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}


@dataclass(frozen=True)
class Case:
    """A module, an input and perhaps a state."""

    kind: str
    sizes: tuple[int, int]
    options: dict[str, Any]
    form: str
    lengths: list[int]
    given: bool
    dtype: torch.dtype
    seed: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(["LSTM", "GRU", "RNN"]))
    sizes = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    options: dict[str, Any] = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    options["num_layers"] = draw(st.integers(1, 3))
    if kind == "LSTM":
        options["proj_size"] = draw(st.integers(0, sizes[1] - 1))
    if kind == "RNN":
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    form = draw(st.sampled_from(["batched", "unbatched", "packed"]))
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return Case(kind, sizes, options, form, lengths, draw(st.booleans()), dtype, draw(st.integers(0, 999)))


def arguments(case: Case, module: nn.RNNBase) -> tuple[Any, Any, list[Tensor]]:
    """Input and state as a caller gives them, and the leaves that they are made of."""
    torch.manual_seed(case.seed)
    steps, batch = max(case.lengths), len(case.lengths)
    if case.form == "unbatched":
        batch, shape = 1, (steps, case.sizes[0])
    else:
        shape = (batch, steps, case.sizes[0]) if module.batch_first else (steps, batch, case.sizes[0])
    x = torch.randn(shape, dtype=case.dtype, requires_grad=True)
    state, leaves = None, [x]
    if case.given:
        state = state_for(module, batch, case.dtype)
        if case.form == "unbatched":
            state = tuple(part[:, 0] for part in state) if isinstance(state, tuple) else state[:, 0]
        parts = [part.requires_grad_() for part in tensors(state)]
        leaves += parts
        state = tuple(parts) if isinstance(state, tuple) else parts[0]
    return packed(x, case.lengths, module.batch_first) if case.form == "packed" else x, state, leaves


@settings(max_examples=150)
@given(cases())
def test_engine_at_level_zero_is_torch(case: Case) -> None:
    torch.manual_seed(case.seed)
    plain, twin = pair(case.kind, *case.sizes, level=0.0, dtype=case.dtype, **case.options)
    input, state, leaves = arguments(case, plain)
    want = everything(plain.train(), input, state, leaves)
    got = everything(force(twin).train(), input, state, leaves)
    for one, two in zip(got, want, strict=True):
        torch.testing.assert_close(one, two, rtol=TOLERANCE[case.dtype], atol=TOLERANCE[case.dtype])


@settings(max_examples=60)
@given(cases(), st.sampled_from([0.0, 0.4]))
def test_inactive_module_is_torch_bit_for_bit_with_dropout(case: Case, dropout: float) -> None:
    options = case.options | ({"dropout": dropout} if case.options["num_layers"] > 1 else {})
    plain, twin = pair(case.kind, *case.sizes, level=0.0, dtype=case.dtype, **options)
    input, state, leaves = arguments(case, plain)
    found = []
    for module in (plain.train(), twin.train()):
        torch.manual_seed(case.seed)
        found.append([*everything(module, input, state, leaves), torch.get_rng_state()])
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [2, 4, 1]], ids=["dense", "packed"])
def test_engine_draws_torchs_dropout(kind: str, lengths: list[int]) -> None:
    """Between the layers, from the same seed the same mask."""
    options: dict[str, Any] = {"num_layers": 3, "dropout": 0.5, "bidirectional": True, "train_noise": "expected"}
    plain, twin = pair(kind, 3, 4, level=0.0, **options)
    x = torch.randn(4, 3, 3, dtype=torch.float64)
    input = x if set(lengths) == {4} else packed(x, lengths)
    found = []
    for module in (plain.train(), force(twin).train()):
        torch.manual_seed(1)
        found.append(tensors(module(input)))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    assert (found[0][0] - tensors(plain.eval()(input))[0]).abs().max() > 1e-3, "dropout did something"


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["unbatched", "batched"])
@pytest.mark.parametrize("engine", [True, False])
def test_cells(kind: str, bias: bool, shape: tuple[int, ...], engine: bool) -> None:
    for more in [{"nonlinearity": n} for n in ("tanh", "relu")] if kind == "RNNCell" else [{}]:
        plain, twin = pair(kind, 3, 4, bias, level=0.0, **more)
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        h = torch.randn(*shape[:-1], 4, dtype=torch.float64, requires_grad=True)
        for state in (None, (h, 2 * h) if kind == "LSTMCell" else h):
            want = everything(plain, x, state, [x, h])
            got = everything(force(twin) if engine else twin, x, state, [x, h])
            tolerance = 1e-12 if engine else 0.0
            for one, two in zip(got, want, strict=True):
                torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def test_a_layer_at_level_zero_below_one_above_it_is_torchs_layer() -> None:
    """Layers may be at several levels: one at 0 draws no noise and computes what it computes alone."""
    torch.manual_seed(0)
    plain, twin = pair("LSTM", 3, 3, num_layers=2)
    first = nn.LSTM(3, 3, dtype=torch.float64)
    first.load_state_dict({key: value for key, value in plain.state_dict().items() if key.endswith("l0")})
    mollifier.set_level(twin, [0.0, 1.0])
    x = torch.randn(4, 2, 3, dtype=torch.float64)
    output, (h, _) = twin(x)
    want, (h_want, _) = first(x)
    torch.testing.assert_close(output, want, rtol=1e-12, atol=1e-12)  # the second layer copies the first
    torch.testing.assert_close(h[:1], h_want, rtol=1e-12, atol=1e-12)
    mollifier.set_level(twin, [0.0, 0.5])
    twin.train()(x)[0].sum().backward()
    layers = [twin.get_submodule(f"_mollifier.layers.{number}") for number in (0, 1)]
    assert not layers[0].a.grad.any()
    assert layers[1].a.grad is not None


def test_an_empty_batch_passes_like_in_torch() -> None:
    for kind in ("LSTM", "GRU", "RNN"):
        plain, twin = pair(kind, 3, 4, bidirectional=True)
        x = torch.zeros(2, 0, 3, dtype=torch.float64)
        assert [t.shape for t in tensors(twin(x))] == [t.shape for t in tensors(plain(x))]


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("levels", [[0.0, 0.5], [0.0, 0.0]])
def test_parameters_of_idle_layers_have_their_gradient_under_torch_distributed(levels: list[float]) -> None:
    """DistributedDataParallel waits for all of them, also while only some layers are at 0."""
    options = RecurrentOptions(projection="learned")
    _, twin = pair("GRU", 5, 3, num_layers=2, bidirectional=True, options=options)
    mollifier.set_level(twin, levels)
    twin.train()(torch.randn(4, 2, 5, dtype=torch.float64))[0].sum().backward()
    idle = list(twin.get_submodule("_mollifier.layers.0").parameters())
    assert len(idle) == 3  # a, and the projection into each direction
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in idle)
    assert all(parameter.grad is not None for parameter in twin.parameters())
