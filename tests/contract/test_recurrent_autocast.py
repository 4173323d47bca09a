"""Row 8 for recurrent kinds, autocast: the dtypes of the plain module at every level."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

import mollifier

MODULES: list[Any] = [
    lambda: nn.LSTM(4, 5),
    lambda: nn.LSTM(4, 5, num_layers=2, bidirectional=True),
    lambda: nn.GRU(4, 5),
    lambda: nn.RNN(4, 5),
    lambda: nn.LSTMCell(4, 5),
    lambda: nn.GRUCell(4, 5),
    lambda: nn.RNNCell(4, 5),
    lambda: mollifier.nn.HardSigmoidLSTM(4, 5),
]


def dtypes(out: Any) -> list[torch.dtype]:
    return [leaf.dtype for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")  # from torch, of its own module
@pytest.mark.parametrize("make", [*MODULES, lambda: nn.LSTM(4, 5, proj_size=3)])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_every_level_has_the_dtypes_of_the_plain_module(make: Any, given: torch.dtype, training: bool) -> None:
    plain = make().train(training)
    model = mollifier.mollify(make(), train_noise="sample").train(training)
    x = torch.randn(3, 4, dtype=given) if isinstance(plain, nn.RNNCellBase) else torch.randn(3, 2, 4, dtype=given)
    with torch.autocast("cpu", torch.bfloat16):
        want = plain(x)
        for level in (1.0, 0.5, 0.0):
            mollifier.set_level(model, level)
            for state in (None, want if isinstance(plain, nn.RNNCellBase) else want[1]):
                assert dtypes(model(x, state)) == dtypes(plain(x, state))


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("lengths", [(3, 2), (3, 3)])
def test_packed_sequences_too(make: Any, lengths: tuple[int, int]) -> None:
    plain, model = make(4, 5), mollifier.mollify(make(4, 5), level=0.5)
    x = pack_sequence([torch.randn(length, 4) for length in lengths])
    with torch.autocast("cpu", torch.bfloat16):
        assert dtypes(model(x)[0].data) == dtypes(plain(x)[0].data)
        assert dtypes(model(x)[1]) == dtypes(plain(x)[1])


def test_asking_torch_draws_no_random_numbers() -> None:
    model, x = mollifier.mollify(nn.LSTM(4, 5, dtype=torch.float64), level=0.5).eval(), torch.randn(3, 2, 4).double()
    before = torch.get_rng_state()
    with torch.autocast("cpu", torch.float16):
        model(x)
    assert torch.equal(torch.get_rng_state(), before)
