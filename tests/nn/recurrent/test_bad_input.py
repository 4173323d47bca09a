"""Bad input is reported as torch reports it, at every level; what lies behind a sequence's end never matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

from .helpers import CELLS, MODULES, force, packed, padded, pair, state_for, tensors

Call = Callable[[Any], Any]


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def state(module: Any, *shape: int) -> Any:
    """A state of this shape; its c, too."""
    return (zeros(*shape), zeros(*shape)) if module.mode == "LSTM" else zeros(*shape)


CALLS: dict[str, Call] = {
    "features": lambda m: m(zeros(5, 2, 7)),
    "features-unbatched": lambda m: m(zeros(5, 7)),
    "dimensions-1": lambda m: m(zeros(3)),
    "dimensions-4": lambda m: m(zeros(1, 5, 2, 3)),
    "dtype": lambda m: m(zeros(5, 2, 3).float()),
    "no-steps": lambda m: m(zeros(0, 2, 3)),
    "no-steps-unbatched": lambda m: m(zeros(0, 3)),
    "state-layers": lambda m: m(zeros(5, 2, 3), state(m, 1, 2, 4)),
    "state-batch": lambda m: m(zeros(5, 2, 3), state(m, 2, 3, 4)),
    "state-units": lambda m: m(zeros(5, 2, 3), state(m, 2, 2, 5)),
    "state-unbatched-for-batched": lambda m: m(zeros(5, 2, 3), state(m, 2, 4)),
    "state-batched-for-unbatched": lambda m: m(zeros(5, 3), state(m, 2, 1, 4)),
    "state-units-unbatched": lambda m: m(zeros(5, 3), state(m, 2, 5)),
    "packed-features": lambda m: m(packed(zeros(5, 2, 7), [5, 2])),
    "packed-state-batch": lambda m: m(packed(zeros(5, 2, 3), [2, 5]), state(m, 2, 1, 4)),
    "packed-state-units": lambda m: m(packed(zeros(5, 2, 3), [2, 5]), state(m, 2, 2, 5)),
    "packed-sorted-state-batch": lambda m: m(pack_padded_sequence(zeros(5, 2, 3), [5, 2]), state(m, 2, 3, 4)),
}
CELL_CALLS: dict[str, Call] = {
    "features": lambda m: m(zeros(2, 7)),
    "features-unbatched": lambda m: m(zeros(7)),
    "dimensions-0": lambda m: m(zeros()),
    "dimensions-3": lambda m: m(zeros(1, 2, 3)),
    "dtype": lambda m: m(zeros(2, 3).float()),
    "state-batch": lambda m: m(zeros(2, 3), cell_state(m, 3, 4)),
    "state-units": lambda m: m(zeros(2, 3), cell_state(m, 2, 5)),
    "state-dimensions": lambda m: m(zeros(2, 3), cell_state(m, 1, 2, 4)),
    "state-batched-for-unbatched": lambda m: m(zeros(3), cell_state(m, 1, 4)),
}


def cell_state(cell: Any, *shape: int) -> Any:
    return (zeros(*shape), zeros(*shape)) if isinstance(cell, torch.nn.LSTMCell) else zeros(*shape)


def complaint(call: Call, module: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as found:  # noqa: PT011 — whatever torch raises is what is compared
        call(module)
    return found.type, str(found.value)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("call", CALLS)
def test_modules_complain_like_torch(kind: str, call: str) -> None:
    torchs = torch.nn.LSTM if "LSTM" in kind else torch.nn.GRU if "GRU" in kind else torch.nn.RNN
    plain, module = pair(kind, 3, 4, num_layers=2)
    want = complaint(CALLS[call], torchs(3, 4, num_layers=2, dtype=torch.float64))
    for one in (plain, module, pair(kind, 3, 4, num_layers=2, level=0.0)[1]):
        assert complaint(CALLS[call], one) == want


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("call", CELL_CALLS)
def test_cells_complain_like_torch(kind: str, call: str) -> None:
    plain, cell = pair(kind, 3, 4)
    assert complaint(CELL_CALLS[call], cell) == complaint(CELL_CALLS[call], plain)


@pytest.mark.parametrize("kind", MODULES)
def test_a_state_of_another_dtype_is_refused(kind: str) -> None:
    plain, module = pair(kind, 3, 4)
    single = state(module, 1, 2, 4)
    single = tuple(part.float() for part in single) if isinstance(single, tuple) else single.float()
    assert complaint(lambda m: m(zeros(5, 2, 3), single), module)[0] is RuntimeError
    if kind in ("LSTM", "GRU", "RNN"):
        assert complaint(lambda m: m(zeros(5, 2, 3), single), module) == complaint(
            lambda m: m(zeros(5, 2, 3), single), plain
        )


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("training", [True, False])
def test_nan_in_the_padding_does_not_leak(kind: str, level: float, training: bool) -> None:
    _, module = pair(kind, 3, 4, level=level, num_layers=2, bidirectional=True)
    lengths = [2, 4, 1, 3]
    x = torch.randn(4, 4, 3, dtype=torch.float64)
    behind = (torch.arange(4)[:, None] >= torch.tensor(lengths))[:, :, None]
    dirty = x.masked_fill(behind, float("nan")).requires_grad_()
    found, slopes = [], []
    for input in (x, dirty):
        torch.manual_seed(2)
        output, final = force(module).train(training)(packed(input, lengths))
        found.append([padded(output), *tensors(final)])
        module.zero_grad()
        sum(t.square().sum() for t in found[-1]).backward()
        slopes.append([parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None])
    for clean, other in (*zip(*found, strict=True), *zip(*slopes, strict=True)):
        assert torch.equal(clean, other)
    assert dirty.grad is not None
    assert not dirty.grad[behind.expand_as(dirty)].any()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_nan_in_one_example_stays_there(kind: str) -> None:
    _, module = pair(kind, 3, 4, level=0.5, num_layers=2)
    x = torch.randn(4, 3, 3, dtype=torch.float64)
    torch.manual_seed(2)
    clean = module.train()(x)[0]
    x[1, 1] = float("nan")
    torch.manual_seed(2)
    output = module(x)[0]
    assert torch.equal(output[:, [0, 2]], clean[:, [0, 2]])
    assert torch.equal(output[0], clean[0])
    assert bool(output[1:, 1].isnan().any())


def test_a_sequence_without_steps_cannot_be_packed() -> None:
    with pytest.raises(RuntimeError, match="greater than 0"):
        pack_padded_sequence(zeros(3, 2, 3), torch.tensor([3, 0]), enforce_sorted=False)


@pytest.mark.parametrize("kind", MODULES)
def test_packed_and_sorted_need_no_reordering(kind: str) -> None:
    """Sequences that come sorted have no indices, and give what unsorted ones give."""
    _, module = pair(kind, 3, 4, level=0.5)
    x, hx = torch.randn(4, 3, 3, dtype=torch.float64), state_for(module, 3)
    by_length = pack_padded_sequence(x, torch.tensor([4, 2, 1]))
    assert by_length.sorted_indices is None
    want = module(by_length, hx)
    mixed = [2, 0, 1]
    moved = tuple(part[:, mixed] for part in hx) if isinstance(hx, tuple) else hx[:, mixed]
    got = module(packed(x[:, mixed], [1, 4, 2]), moved)
    torch.testing.assert_close(padded(got[0]), padded(want[0])[:, mixed], rtol=1e-12, atol=1e-12)
    for one, two in zip(tensors(got[1]), tensors(want[1]), strict=True):
        torch.testing.assert_close(one, two[:, mixed], rtol=1e-12, atol=1e-12)
