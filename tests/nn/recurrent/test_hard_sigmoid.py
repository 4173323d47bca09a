"""The paper's plain modules, against loops over Python floats that share nothing with the library."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.nn import HardSigmoidGRU, HardSigmoidLSTM

from .helpers import everything, force, packed, padded, state_for, tensors

Row = list[float]


def hard_sigmoid(x: float) -> float:
    return min(1.0, max(0.0, x / 4.0 + 0.5))


def dot(weights: list[float], x: Row) -> float:
    return sum(w * value for w, value in zip(weights, x, strict=True))


def lstm_step(w: dict[str, Any], x: Row, h: Row, c: Row) -> tuple[Row, Row]:
    units = len(c)
    z = [dot(w["ih"][k], x) + w["bi"][k] + dot(w["hh"][k], h) + w["bh"][k] for k in range(4 * units)]
    new_c, new_h = [], []
    for k in range(units):
        i, f, g, o = (z[k + part * units] for part in range(4))
        new_c.append(hard_sigmoid(f) * c[k] + hard_sigmoid(i) * math.tanh(g))
        new_h.append(hard_sigmoid(o) * math.tanh(new_c[k]))
    return ([dot(row, new_h) for row in w["hr"]] if "hr" in w else new_h), new_c


def gru_step(w: dict[str, Any], x: Row, h: Row, c: Row) -> tuple[Row, Row]:
    units, new = len(h), []
    for k in range(units):
        below = [dot(w["ih"][k + part * units], x) + w["bi"][k + part * units] for part in range(3)]
        back = [dot(w["hh"][k + part * units], h) + w["bh"][k + part * units] for part in range(3)]
        r, z = hard_sigmoid(below[0] + back[0]), hard_sigmoid(below[1] + back[1])
        new.append((1 - z) * math.tanh(below[2] + r * back[2]) + z * h[k])
    return new, c


def by_hand(module: Any, rows: list[Row], h0: list[Row], c0: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
    """One sequence through all layers and directions: output of each step, final h and c."""
    step = lstm_step if module.mode == "LSTM" else gru_step
    hs, cs = [], []
    for layer in range(module.num_layers):
        sides = []
        for side in range(2 if module.bidirectional else 1):
            end = f"_l{layer}{'_reverse' if side else ''}"
            names = {"ih": "weight_ih", "hh": "weight_hh", "bi": "bias_ih", "bh": "bias_hh"}
            w = {key: getattr(module, name + end).tolist() for key, name in names.items()}
            if module.proj_size:
                w["hr"] = getattr(module, "weight_hr" + end).tolist()
            h, c = h0[len(hs)], c0[len(hs)]
            out = []
            for row in rows[::-1] if side else rows:
                h, c = step(w, row, h, c)
                out.append(h)
            sides.append(out[::-1] if side else out)
            hs.append(h)
            cs.append(c)
        rows = [[value for side in sides for value in side[t]] for t in range(len(rows))]
    return rows, hs, cs


CASES: dict[str, dict[str, Any]] = {
    "one": {},
    "stacked": {"num_layers": 2},
    "bidirectional": {"num_layers": 2, "bidirectional": True},
    "projected": {"num_layers": 2, "bidirectional": True, "proj_size": 2},
}


@pytest.mark.parametrize("kind", [HardSigmoidLSTM, HardSigmoidGRU])
@pytest.mark.parametrize("case", CASES)
def test_against_loops_over_floats(kind: type[nn.RNNBase], case: str) -> None:
    options = CASES[case]
    if kind is HardSigmoidGRU and "proj_size" in options:
        return
    module = kind(3, 4, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(4.0)  # into the clipped parts of the gates
    lengths = [2, 4, 1]
    x, state = torch.randn(4, 3, 3, dtype=torch.float64), state_for(module, 3)
    h0, c0 = state if module.mode == "LSTM" else (state, state)
    dense, dense_state = module(x, state)
    output, final = module(packed(x, lengths), state)
    output = padded(output)
    for example, length in enumerate(lengths):
        starts = [part[:, example].tolist() for part in (h0, c0)]
        want, h, c = by_hand(module, x[:length, example].tolist(), *starts)
        torch.testing.assert_close(output[:length, example].tolist(), want, rtol=1e-12, atol=1e-12)
        assert not output[length:, example].any()
        for got, value in zip(tensors(final), (h, c), strict=False):
            torch.testing.assert_close(got[:, example].tolist(), value, rtol=1e-12, atol=1e-12)
        want, h, c = by_hand(module, x[:, example].tolist(), *starts)
        torch.testing.assert_close(dense[:, example].tolist(), want, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(tensors(dense_state)[0][:, example].tolist(), h, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [HardSigmoidLSTM, HardSigmoidGRU])
def test_mollified_engine_at_level_zero_is_the_plain_module(kind: type[nn.RNNBase]) -> None:
    plain = kind(3, 4, 2, bidirectional=True, dtype=torch.float64)
    twin = kind(3, 4, 2, bidirectional=True, dtype=torch.float64)
    twin.load_state_dict(plain.state_dict())
    mollifier.mollify(twin, level=0.0)
    x = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    want = everything(plain, x, None, [x])
    for one, two in zip(everything(twin, x, None, [x]), want, strict=True):
        assert torch.equal(one, two)
    for one, two in zip(everything(force(twin), x, None, [x]), want, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)


def test_gates_are_hard() -> None:
    """Far from 0 a gate is shut or open for good, which torch's is not."""
    module, plain = HardSigmoidLSTM(1, 1, dtype=torch.float64), nn.LSTM(1, 1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module.bias_ih_l0[3] = -2.0  # the output gate
        module.bias_ih_l0[2] = 1.0
    plain.load_state_dict(module.state_dict())
    x: Tensor = torch.zeros(2, 1, 1, dtype=torch.float64)
    assert not module(x)[0].any()
    assert plain(x)[0].all()
