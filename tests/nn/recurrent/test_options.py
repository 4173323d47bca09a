"""RecurrentOptions: each part switched off is the plain part; masks of a sequence; ways to take expectations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import mollifier
from mollifier.functional import noisy_activation, noisy_gate
from mollifier.nn import RecurrentOptions

from .helpers import CELLS, MODULES, packed, padded, pair, recurrent_weights_off, tensors

OFF = RecurrentOptions(gates=False, activations=False, copy=False)


@pytest.mark.parametrize("kind", MODULES | CELLS)
@pytest.mark.parametrize("level", [1.0, 0.5])
@pytest.mark.parametrize("training", [True, False])
def test_with_everything_off_it_is_plain_at_any_level(kind: str, level: float, training: bool) -> None:
    plain, module = pair(kind, 3, 4, level=level, options=OFF)
    x = torch.randn((2, 3) if kind in CELLS else (5, 2, 3), dtype=torch.float64)
    for one, two in zip(tensors(module.train(training)(x)), tensors(plain(x)), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def lstm_step(module: Any, x: Tensor, parts: set[str], level: float) -> Tensor:
    """The first step from a state of 0, in eval, written out for the parts that are on."""
    i, _, g, o = (x @ module.weight_ih_l0.T + module.bias_ih_l0 + module.bias_hh_l0).chunk(4, -1)
    layer = module.get_submodule("_mollifier.layers.0")

    def gate(z: Tensor, target: float) -> Tensor:
        on = "gates" in parts
        return noisy_gate(z, target, level=level, noise="expected") if on else torch.sigmoid(z)

    def act(z: Tensor, number: int) -> Tensor:
        if "activations" not in parts:
            return torch.tanh(z)
        a = layer.a[0, number]
        return noisy_activation(z, "tanh", level=level, a=a, c=20.0, noise="expected", push="paper")

    h = gate(o, 1.0) * act(gate(i, 1.0) * act(g, 0), 1)
    return level * x + (1.0 - level) * h if "copy" in parts else h


@pytest.mark.parametrize("parts", [{"gates"}, {"activations"}, {"copy"}, {"gates", "activations"}, {"gates", "copy"}])
@pytest.mark.parametrize("level", [1.0, 0.7, 0.2])
def test_each_part_alone_does_what_it_says(parts: set[str], level: float) -> None:
    options = replace(OFF, **dict.fromkeys(parts, True))
    _, module = pair("LSTM", 4, 4, level=level, options=options)
    x = 3.0 * torch.randn(1, 2, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x)[0][0], lstm_step(module, x[0], parts, level), rtol=1e-12, atol=1e-12)
    layer = module.get_submodule("_mollifier.layers.0")
    assert (layer.a is not None) == ("activations" in parts)
    assert (layer.copies is not None) == ("copy" in parts)


def test_elman_network_has_no_gates_to_switch() -> None:
    _, module = pair("RNN", 3, 3)
    assert module.get_submodule("_mollifier.layers.0").options.gates is False


def copied(module: Any, x: Tensor, lengths: list[int] | None) -> Tensor:
    """Which units of which step of which example are the input's, in training at level 1/2."""
    output = module.train()(x if lengths is None else packed(x, lengths))[0]
    return (output if lengths is None else padded(output)) == x


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("lengths", [None, [2, 6, 4, 1]], ids=["dense", "packed"])
def test_one_mask_for_the_whole_sequence(kind: str, lengths: list[int] | None) -> None:
    options = RecurrentOptions(copy_mask="sequence")
    _, module = pair(kind, 16, 16, level=0.5, options=options)
    x = torch.randn(6, 4, 16, dtype=torch.float64)
    found = copied(module, x, lengths)
    for example, length in enumerate(lengths or [6] * 4):
        assert bool((found[:length, example] == found[0, example]).all()), "the same units at every step"
    assert 16 < int(found[0].sum()) < 48, "about half of the units"
    assert not torch.equal(found[0, 0], found[0, 1]), "each example its own"
    assert not torch.equal(copied(module, x, lengths)[0], found[0]), "each call its own"


@pytest.mark.parametrize("lengths", [None, [2, 6, 4, 1]], ids=["dense", "packed"])
def test_a_mask_for_every_step(lengths: list[int] | None) -> None:
    _, module = pair("LSTM", 16, 16, level=0.5)
    x = torch.randn(6, 4, 16, dtype=torch.float64)
    found = copied(module, x, lengths)
    assert not torch.equal(found[0, 1], found[1, 1])
    share = found.sum() / (16 * sum(lengths or [24]))
    assert 0.35 < float(share) < 0.65


def test_directions_have_noise_of_their_own_also_when_frozen() -> None:
    options = RecurrentOptions(copy=False)
    _, module = pair("GRU", 3, 4, level=0.5, options=options, bidirectional=True)
    recurrent_weights_off(module)
    with torch.no_grad():  # both directions the same cell, reading the same single step
        for name, parameter in module.named_parameters():
            if name.endswith("_reverse"):
                parameter.copy_(module.get_parameter(name.removesuffix("_reverse")))
    layer = module.get_submodule("_mollifier.layers.0")
    layer.a.data[1] = layer.a.data[0]
    x = 3.0 * torch.randn(1, 5, 3, dtype=torch.float64)
    forward, back = module.eval()(x)[0].chunk(2, -1)
    assert torch.equal(forward, back)
    module.train()
    for _ in range(2):
        forward, back = module(x)[0].chunk(2, -1)
        assert not torch.equal(forward, back)
        with mollifier.frozen(module, seed=1):
            forward, back = module(x)[0].chunk(2, -1)
            assert not torch.equal(forward, back)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("noise", ["expected", "exact"])
def test_training_on_expectations_is_deterministic(kind: str, noise: str) -> None:
    _, module = pair(kind, 3, 4, level=0.5, train_noise=noise, eval_noise=noise)
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    before = torch.get_rng_state()
    trained = module.train()(x)[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(trained, module.eval()(x)[0])


def test_one_step_of_samples_averages_to_the_exact_expectation() -> None:
    """Of one step and one gate: over several, the expectation of a product is not the product of expectations."""
    options = RecurrentOptions(copy=False, activations=False)
    _, module = pair("GRU", 2, 2, level=0.8, options=options, eval_noise="exact")
    recurrent_weights_off(module)
    x = torch.randn(1, 1, 2, dtype=torch.float64)
    h = torch.randn(1, 1, 2, dtype=torch.float64)
    count = 100_000
    many = module.train()(x.expand(1, count, 2), h.expand(1, count, 2).contiguous())[0][0]
    with torch.no_grad():
        torch.testing.assert_close(many.mean(0), module.eval()(x, h)[0][0, 0], rtol=0, atol=0.02)
    assert (many.std(0) > 0.02).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"copy_mask": "batch"}, "copy_mask='batch'"),
        ({"time": "step"}, "time='step'"),
        ({"push": "hard"}, "push='hard'"),
        ({"projection": "never"}, "projection='never'"),
        ({"time_cap": 0}, "time_cap=0"),
        ({"a": (2.0, -2.0)}, "a="),
        ({"c": -1.0}, "c=-1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        RecurrentOptions(**options)
