"""What only recurrent modules have: time that is carried over a stream, through a checkpoint; states; bf16 of the LSTM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import mollifier
from mollifier.nn import RecurrentOptions

from .helpers import assert_equal, own_gradients, own_parameters
from .recurrent import RECURRENT, has_torch_lstm
from .zoo import Kind, by_name

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
CARRIED = RecurrentOptions(carry_time=True, time_cap=50)


def start(kind: Any, seed: int) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    model = mollifier.mollify(kind(3, 3, 2, dropout=0.1), recurrent=CARRIED)
    return model, torch.optim.Adam(model.parameters(), lr=0.01), mollifier.Annealer(model, k=3.0)


def stream(model: Any, optimizer: Any, annealer: Any, state: Any, updates: range) -> tuple[list[float], Any]:
    losses = []
    for update in updates:
        x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(update))
        output, state = model(x, state)
        state = tuple(part.detach() for part in state) if isinstance(state, tuple) else state.detach()
        loss = (output - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
        if update % 3 == 0:  # an evaluation in between
            with torch.no_grad():
                model.eval()(x)
            model.train()
    return losses, state


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_stream_resumes_bit_for_bit(kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, optimizer, annealer = start(kind, 0)
    _, state = stream(model, optimizer, annealer, None, range(5))
    assert model.get_buffer("_mollifier.time").tolist() == [4, 20]
    parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "annealer": annealer.state_dict()}
    torch.save({**parts, "state": state, "random": torch.get_rng_state()}, tmp_path / "checkpoint.pt")
    losses, _ = stream(model, optimizer, annealer, state, range(5, 9))

    other, other_optimizer, other_annealer = start(kind, 9)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    other.load_state_dict(saved["model"], strict=True)
    other_optimizer.load_state_dict(saved["optimizer"])
    other_annealer.load_state_dict(saved["annealer"])
    torch.set_rng_state(saved["random"])
    assert stream(other, other_optimizer, other_annealer, saved["state"], range(5, 9))[0] == losses
    for (name, want), got in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert_equal(got, want, name)


def test_a_plain_checkpoint_leaves_the_time_alone() -> None:
    model, *_ = start(nn.LSTM, 0)
    model(torch.randn(4, 2, 3))
    model.load_state_dict(nn.LSTM(3, 3, 2).state_dict(), strict=True)
    assert model.get_buffer("_mollifier.time").tolist() == [0, 4]


@by_name([kind for kind in RECURRENT if has_torch_lstm(kind)])
def test_bf16_autocast_of_torchs_lstm_at_level_zero_is_torchs(kind: Kind) -> None:
    """Some CPUs have no kernel for it: then the mollified one says so in the same words."""

    def attempt(model: nn.Module) -> Any:
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16):
            try:
                return kind.run(model.eval(), kind.input())
            except RuntimeError as error:
                return str(error)

    want, got = attempt(kind.plain()), attempt(kind.mollified(level=0.0))
    if isinstance(want, str):
        assert got == want
    else:
        assert_equal(got, want)


@by_name(RECURRENT)
@pytest.mark.parametrize("level", [0.999, 0.5])
def test_bf16_throughout(kind: Kind, level: float) -> None:
    """The whole model in bf16: the level is not rounded, outputs and gradients are close to those of float32."""
    model = kind.mollified(level=level)
    x = kind.input()
    want = kind.run(model.eval(), x)
    slopes = own_gradients(model, want)
    model.to(torch.bfloat16)
    got = kind.run(model, x if kind.vocabulary else x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert (got.float() - want).abs().max() < 0.06 * want.abs().max()
    if level == 0.5:  # at 0.999 some gradients are as small as what bf16 rounds away
        # rounded, a unit may fall on the other side of the kink where its push ends
        assert (own_gradients(model, got) - slopes).norm() <= 0.2 * slopes.norm()
    kind.run(model.train(), x if kind.vocabulary else x.bfloat16()).float().square().mean().backward()
    assert all(p.grad is not None for p in own_parameters(model))
