"""Level 1 in eval: the copy of each step's input; without the copy an affine recurrence, the bag of words."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import mollifier
from mollifier.nn import RecurrentOptions
from tests.contract.limits import matrix

from .helpers import MODULES, packed, padded, pair, recurrent_weights_off, state_for

LENGTHS = [3, 5, 1, 4]
BAG = RecurrentOptions(copy=False, push="odds")  # the exact linear limit
SHAPES: dict[str, dict[str, Any]] = {
    "one": {},
    "stacked": {"num_layers": 3},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
}
every_kind = pytest.mark.parametrize("kind", MODULES)
every_shape = pytest.mark.parametrize("shape", SHAPES)
both_forms = pytest.mark.parametrize("is_packed", [False, True], ids=["dense", "packed"])


def run(module: Any, x: Tensor, is_packed: bool, state: Any = None) -> Tensor:
    """The output, steps first; where a sequence has ended, zeros."""
    return padded(module(packed(x, LENGTHS), state)[0]) if is_packed else module(x, state)[0]


def valid(x: Tensor, is_packed: bool) -> Tensor:
    ends = torch.tensor(LENGTHS if is_packed else [5] * 4)
    return (torch.arange(5)[:, None] < ends)[:, :, None]


def copied(x: Tensor, copies: Any, units: int) -> Tensor:
    """One layer: the input padded or projected into each direction."""
    maps = [None if copy.projection is None else matrix(copy.projection) for copy in copies]
    return torch.cat([F.pad(x, (0, units - x.shape[-1])) if each is None else x @ each.T for each in maps], -1)


@every_kind
@every_shape
@both_forms
@pytest.mark.parametrize("width", [2, 4, 7], ids=["narrower", "same", "wider"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_each_steps_input_is_copied(kind: str, shape: str, is_packed: bool, width: int, training: bool) -> None:
    """In training, too, since a probability of 1 is no chance."""
    _, module = pair(kind, 4, width, **SHAPES[shape])
    x = torch.randn(5, 4, 4, dtype=torch.float64)
    want = x
    for layer in module.get_submodule("_mollifier.layers"):
        want = copied(want, layer.copies, width)
    got = run(module.train(training), x, is_packed)
    torch.testing.assert_close(got, want * valid(x, is_packed), rtol=1e-12, atol=1e-12)
    if shape != "bidirectional" and width >= 4:
        assert torch.equal(got, want * valid(x, is_packed)), "padding rounds nothing"


@pytest.mark.parametrize("width", [3, 6], ids=["narrower", "wider"])
def test_projected_lstm_and_projection_by_name(width: int) -> None:
    _, module = pair("LSTM", 4, 8, proj_size=width)
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    copies = module.get_submodule("_mollifier.layers.0.copies")
    torch.testing.assert_close(module(x)[0], copied(x, copies, width), rtol=1e-12, atol=1e-12)
    assert (copies[0].rule, copies[0].projection is None) == (("pad", True) if width > 4 else ("fixed", False))
    _, always = pair("LSTM", 4, 8, proj_size=width, options=RecurrentOptions(projection="always"))
    copies = always.get_submodule("_mollifier.layers.0.copies")
    torch.testing.assert_close(always(x)[0], x @ copies[0].projection.weight.T, rtol=1e-12, atol=1e-12)


@every_kind
@every_shape
@both_forms
def test_without_the_copy_it_is_affine_in_the_sequence(kind: str, shape: str, is_packed: bool) -> None:
    plain, module = pair(kind, 4, 3, options=BAG, **SHAPES[shape])
    x, y = torch.randn(2, 5, 4, 4, dtype=torch.float64)
    h, g = (state_for(module, 4) for _ in range(2))
    add = (lambda a, b: tuple(map(torch.add, a, b))) if module.mode == "LSTM" else torch.add

    def bend(net: Any, scale: float) -> float:
        """Of the map from input and state together."""
        zero = torch.zeros_like(x)
        nothing = add(h, tuple(-t for t in h) if module.mode == "LSTM" else -h)
        ends = run(net, scale * x, is_packed, h) + run(net, scale * y, is_packed, g)
        both = run(net, scale * (x + y), is_packed, add(h, g)) + run(net, zero, is_packed, nothing)
        return float((ends - both).detach().abs().max())

    assert bend(module, 1.0) < 1e-12
    assert bend(module, 1000.0) < 1e-8
    assert bend(plain, 3.0) > 1e-3, "the plain module bends, else the line above says nothing"


def running_mean(values: Tensor, lengths: list[int], reverse: bool) -> Tensor:
    """Of each sequence, from its own start or from its own end."""
    out = torch.zeros_like(values)
    for example, length in enumerate(lengths):
        for t in range(length):
            span = values[t:length, example] if reverse else values[: t + 1, example]
            out[t, example] = span.mean(0)
    return out


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "HardSigmoidLSTM", "HardSigmoidGRU"])
@every_shape
@both_forms
@pytest.mark.parametrize("given", [False, True], ids=["no-state", "state"])
def test_with_recurrent_weights_off_it_is_the_running_mean(kind: str, shape: str, is_packed: bool, given: bool) -> None:
    """The bag of words. What the state held before is forgotten: at t = 1 the forget gate is at 0."""
    _, module = pair(kind, 4, 3, options=BAG, **SHAPES[shape])
    recurrent_weights_off(module)
    lengths = LENGTHS if is_packed else [5] * 4
    x = torch.randn(5, 4, 4, dtype=torch.float64)
    units = slice(6, 9)  # the candidate: third of LSTM's four parts, third of GRU's three
    want = x
    for layer in range(module.num_layers):
        sides = []
        for side in range(2 if module.bidirectional else 1):
            end = f"_l{layer}{'_reverse' if side else ''}"
            w, b, b2 = (getattr(module, name + end)[units] for name in ("weight_ih", "bias_ih", "bias_hh"))
            sides.append(running_mean(want @ w.T + b + b2, lengths, reverse=bool(side)))
        want = torch.cat(sides, -1)
    state = state_for(module, 4) if given else None
    torch.testing.assert_close(run(module, x, is_packed, state), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_elman_network_is_linear(nonlinearity: str) -> None:
    _, module = pair("RNN", 4, 3, options=BAG, nonlinearity=nonlinearity)
    x, h = torch.randn(5, 2, 4, dtype=torch.float64), torch.randn(1, 2, 3, dtype=torch.float64)
    state = h[0]
    for step, got in zip(x, module(x, h)[0], strict=True):
        state = step @ module.weight_ih_l0.T + module.bias_ih_l0 + state @ module.weight_hh_l0.T + module.bias_hh_l0
        torch.testing.assert_close(got, state, rtol=1e-12, atol=1e-12)


@every_kind
def test_output_moves_from_one_limit_to_the_other(kind: str) -> None:
    """In eval, without a jump at either end."""
    _, module = pair(kind, 4, 4, options=BAG, num_layers=2)
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    out = {}
    for level in (0.0, 1e-7, 0.5, 1.0 - 1e-7, 1.0):
        mollifier.set_level(module, level)
        out[level] = module(x)[0].detach()
    near = 5e-3  # γ of a sigmoid gate is kept 1e-4 away from 0 and 1 below level 1
    assert (out[1e-7] - out[0.0]).abs().max() < 1e-4
    assert (out[1.0 - 1e-7] - out[1.0]).abs().max() < near
    assert min((out[0.5] - out[end]).abs().max() for end in (0.0, 1.0)) > 2 * near
