"""gradcheck through time, with frozen noise: inputs, states and every parameter, the a included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import mollifier
from mollifier.nn import RecurrentOptions

from .helpers import CELLS, packed, pair, state_for, tensors

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
CASES: dict[str, tuple[str, dict[str, Any], RecurrentOptions]] = {
    "lstm": ("LSTM", {}, RecurrentOptions()),
    "lstm-stacked-narrower": ("LSTM", {"num_layers": 2, "proj_size": 1}, RecurrentOptions()),
    "lstm-bag-of-words": ("LSTM", {}, RecurrentOptions(copy=False)),
    "lstm-unbiased": ("LSTM", {}, RecurrentOptions(unbiased_gates=True)),
    "lstm-no-gates": ("LSTM", {}, RecurrentOptions(gates=False)),
    "lstm-no-activations": ("LSTM", {}, RecurrentOptions(activations=False)),
    "lstm-papers-push": ("LSTM", {}, RecurrentOptions(push="paper", copy=False)),
    "lstm-sequence-mask": ("LSTM", {}, RecurrentOptions(copy_mask="sequence")),
    "gru-bidirectional": ("GRU", {"bidirectional": True}, RecurrentOptions()),
    "gru-bag-of-words": ("GRU", {}, RecurrentOptions(copy=False)),
    "rnn-tanh": ("RNN", {"bidirectional": True}, RecurrentOptions(copy=False)),
    "rnn-relu": ("RNN", {"nonlinearity": "relu"}, RecurrentOptions()),
    "hard-sigmoid-lstm": ("HardSigmoidLSTM", {}, RecurrentOptions(copy=False)),
    "hard-sigmoid-gru": ("HardSigmoidGRU", {}, RecurrentOptions(copy=False)),
}


def check(module: Any, call: Any, leaves: list[Tensor], fast: bool = False) -> None:
    """Numerical against analytical gradients of all outputs, for the leaves and all parameters (moved in place).

    Element by element, or ``fast``: along random directions.
    """
    parameters = list(module.parameters())
    with mollifier.frozen(module, seed=4):
        assert torch.autograd.gradcheck(lambda *_: tuple(tensors(call())), (*leaves, *parameters), fast_mode=fast)


@pytest.mark.parametrize("level", [0.3, 0.9])
@pytest.mark.parametrize("is_packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_through_time(case: str, is_packed: bool, level: float) -> None:
    kind, options, mollified = CASES[case]
    _, module = pair(kind, 2, 2, level=level, options=mollified, **options)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    parts = [part.requires_grad_() for part in tensors(state_for(module, 2))]
    state = tuple(parts) if module.mode == "LSTM" else parts[0]
    # the packed graph is made anew at every call, since gradcheck moves x in place
    check(module.train(), lambda: module(packed(x, [2, 3]) if is_packed else x, state), [x, *parts], fast=is_packed)
    if mollified.activations:
        layer = module.get_submodule("_mollifier.layers.0")
        with mollifier.frozen(module, seed=4):
            loss = sum(t.square().sum() for t in tensors(module(x, state)))
            (grad,) = torch.autograd.grad(loss, layer.a)
        assert bool(grad.any()), "a learns"


@pytest.mark.parametrize("level", [0.3, 0.9])
@pytest.mark.parametrize("kind", CELLS)
def test_gradients_of_cells_over_steps(kind: str, level: float) -> None:
    _, cell = pair(kind, 2, 2, level=level)
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)

    def steps() -> list[Tensor]:
        state, out = None, []
        for step in x:
            state = cell(step, state)
            out += tensors(state)
        return out

    check(cell.train(), steps, [x])


@pytest.mark.parametrize("noise", ["expected", "exact"])
def test_gradients_of_deterministic_training(noise: str) -> None:
    for kind in ("LSTM", "HardSigmoidLSTM"):
        _, module = pair(kind, 2, 2, level=0.6, train_noise=noise)
        x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
        check(module.train(), lambda module=module, x=x: module(x), [x], fast=noise == "exact")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(("near", "end"), [(1.0 - 1e-9, 1.0), (1e-9, 0.0)])
@pytest.mark.parametrize("training", [True, False])
def test_gradients_go_to_those_of_the_ends(kind: str, near: float, end: float, training: bool) -> None:
    """Also at large inputs, where a gate's inverse or the odds could overflow."""
    found = []
    for level in (near, end):
        torch.manual_seed(0)
        _, module = pair(kind, 3, 3, level=level, options=RecurrentOptions(copy=False), dtype=torch.float32)
        x = 50.0 * torch.randn(6, 4, 3)
        torch.manual_seed(3)
        sum(t.square().mean() for t in tensors(module.train(training)(x))).backward()
        found.append([parameter.grad for parameter in module.parameters() if parameter.requires_grad])
    for got, want in zip(*found, strict=True):
        assert got is not None
        want = torch.zeros_like(got) if want is None else want
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()) + 1e-6)
