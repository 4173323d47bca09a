"""Row 1: level 0 is the plain network bit for bit, outputs and gradients, and draws no noise."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mollifier

from .helpers import assert_equal, cotangent, own_parameters, seeded
from .limits import pad
from .zoo import BECOMES_PLAIN, CONVERTED, ENCODER, Kind, by_name


def everything(kind: Kind, model: nn.Module, dtype: torch.dtype, context: Any) -> dict[str, Tensor | None]:
    """All that a forward and a backward leave behind: output, random state, gradients, buffers."""
    x = kind.input(dtype)
    x.requires_grad_(x.is_floating_point())
    with context:
        out = seeded(kind, model, x)
    found: dict[str, Tensor | None] = {"output": out.detach(), "random state": torch.get_rng_state()}
    out.backward(cotangent(out))
    found["gradient of the input"] = x.grad
    own = own_parameters(model)
    found.update({f"gradient {number}": parameter.grad for number, parameter in enumerate(own)})
    buffers = [buffer for name, buffer in model.named_buffers() if not name.endswith(("level", "projection.weight"))]
    return found | {f"buffer {number}": buffer for number, buffer in enumerate(buffers)}


@by_name(BECOMES_PLAIN)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("precision", ["float32", "float64", "bf16-autocast"])
def test_level_zero_is_the_plain_network(kind: Kind, training: bool, precision: str) -> None:
    dtype = torch.float64 if precision == "float64" else torch.float32

    def context() -> Any:
        return torch.autocast("cpu", torch.bfloat16) if "bf16" in precision else contextlib.nullcontext()

    want = everything(kind, kind.plain(dtype).train(training), dtype, context())
    model = kind.mollified(dtype, level=0.0).train(training)
    got = everything(kind, model, dtype, context())
    assert got.keys() == want.keys()
    assert sum(value is not None for key, value in want.items() if key.startswith("gradient")) > 0
    for key in want:
        assert_equal(got[key], want[key], key)
    # none, or zero where mollify sees to it that no loop meets a missing one
    assert all(added.grad is None or not added.grad.any() for added in mollifier.added_parameters(model))


@by_name(BECOMES_PLAIN)
def test_level_zero_without_gradients(kind: Kind) -> None:
    """Also in inference, where torch may take other kernels."""
    x = kind.input()
    with torch.inference_mode():
        want = kind.run(kind.plain().eval(), x)
        assert_equal(kind.run(kind.mollified(level=0.0).eval(), x), want)


@by_name(CONVERTED)
def test_level_zero_after_higher_levels(kind: Kind) -> None:
    """Nothing of the higher levels lingers: a model that was run at 1 and 0.5 is at 0 what one that never was is."""
    model = kind.mollified().train()
    for level in (1.0, 0.5):
        mollifier.set_level(model, level)
        kind.run(model.eval(), kind.input())
    mollifier.set_level(model, 0.0)
    fresh = kind.mollified(level=0.0).eval()
    assert_equal(kind.run(model.eval(), kind.input()), kind.run(fresh, kind.input()))


def test_residual_stays_at_level_zero() -> None:
    kind = next(kind for kind in CONVERTED if kind.residual)
    plain: Any = kind.plain()
    x = kind.input()
    h = torch.sigmoid(plain[0](x)) + pad(x, 8)
    h = torch.sigmoid(plain[2](h)) + h
    assert_equal(kind.run(kind.mollified(level=0.0), x), plain[4](h))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")  # torch's own, of its own kernel
@pytest.mark.parametrize("masked", [False, True], ids=["dense", "nested-tensor"])
def test_transformer_encoder_takes_its_fused_kernel_at_level_zero_only(
    masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    fused = torch._transformer_encoder_layer_fwd

    def counting(*args: Any, **kwargs: Any) -> Tensor:
        calls.append(args)
        return fused(*args, **kwargs)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", counting)
    x = ENCODER.input()
    mask = (torch.arange(5) >= torch.tensor([[5], [4], [3], [2]])) if masked else None

    def run(model: nn.Module) -> Tensor:
        calls.clear()
        with torch.no_grad():
            return model.eval()(x, src_key_padding_mask=mask)

    want = run(ENCODER.plain())
    assert len(calls) == 2
    model = ENCODER.mollified(level=0.5)
    half = run(model)
    assert calls == []
    assert half.shape == x.shape
    mollifier.set_level(model, 1.0)
    assert_equal(run(model), x)
    mollifier.set_level(model, 0.0)
    assert_equal(run(model), want)
    assert len(calls) == 2
