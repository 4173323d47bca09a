"""Conversion of a recurrent module's input and state to one form and back: the rows of all steps, and the number of rows per step.

Under autocast, results get the dtypes that the plain module would return, which depend on the device and on the kind of module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

State = tuple[Tensor, ...]
KINDS = (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
Dtypes = tuple[torch.dtype, ...]
Packed = Literal["", "even", "ragged"]  # torch takes a different path for each, depending on its version


@dataclass
class Sequence:
    """A batch of sequences, longest first.

    Attributes:
        rows: A tensor of shape (rows, features): the rows of step 1, then of step 2, …
        sizes: The number of rows of each step, which never increases from step to step.
        state: The initial states, each of shape (layers · directions, batch, units).
        given: The first part of the initial state as it was given, for a stream that continues; otherwise None.
        packed: The input, if it was packed; otherwise None.
        batched: Whether the input had a batch dimension.
    """

    rows: Tensor
    sizes: list[int]
    state: State
    given: Tensor | None
    packed: PackedSequence | None
    batched: bool

    def examples(self) -> Tensor:
        """Return the index of the sequence that each row belongs to."""
        device, batch = self.rows.device, self.sizes[0]
        if self.sizes[-1] == batch:
            return torch.arange(batch, device=device).repeat(len(self.sizes))
        return torch.cat([torch.arange(size, device=device) for size in self.sizes])


def autocasts(device: torch.device) -> bool:
    """Return whether autocast is enabled on a device; the meta device has none."""
    # torch 2.8 cannot compile torch.amp.is_autocast_available
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def read(module: nn.RNNBase, input: Any, hx: Any, plain: Callable[[Any, Any], Any]) -> Sequence:
    """Convert a module's arguments to a `Sequence`; for invalid ones torch's own forward ``plain`` raises the error."""
    packed = input if isinstance(input, PackedSequence) else None
    parts: State | None = None if hx is None else tuple(hx) if module.mode == "LSTM" else (hx,)
    if packed is not None and packed.sorted_indices is not None and parts is not None:
        parts = tuple(
            part.index_select(1, packed.sorted_indices) for part in parts
        )  # before any shapes are checked, as in torch
    if not _fits(module, input, parts):
        plain(input, hx)
        raise RuntimeError(f"{module.mode}: a form of input or state that mollified modules do not take")
    batched = packed is not None or input.dim() == 3
    if packed is not None:
        rows, sizes = packed.data, packed.batch_sizes.tolist()
    else:
        steps_first = input if batched else input.unsqueeze(1)
        steps_first = steps_first.transpose(0, 1) if batched and module.batch_first else steps_first
        rows, sizes = steps_first.flatten(0, 1), [steps_first.size(1)] * steps_first.size(0)
    if parts is None:
        state: State = tuple(rows.new_zeros(shape) for shape in _state_shapes(module, sizes[0]))
    else:
        state = parts if batched else tuple(part.unsqueeze(1) for part in parts)
    given = None if hx is None else hx[0] if module.mode == "LSTM" else hx
    return Sequence(rows, sizes, state, given, packed, batched)


def _state_shapes(module: nn.RNNBase, batch: int) -> list[tuple[int, ...]]:
    count = module.num_layers * (2 if module.bidirectional else 1)
    units = [module.proj_size or module.hidden_size] + [module.hidden_size] * (module.mode == "LSTM")
    return [(count, batch, size) for size in units]


def _fits(module: nn.RNNBase, input: Any, parts: State | None) -> bool:
    """Return whether shapes and dtypes are those that torch requires."""
    packed = isinstance(input, PackedSequence)
    data = input.data if packed else input
    if not packed and data.dim() not in (2, 3):
        return False
    batched = packed or data.dim() == 3
    time, across = (1, 0) if module.batch_first and batched and not packed else (0, 1)
    kind = module.weight_ih_l0.dtype
    mixed = autocasts(data.device)
    if data.size(-1) != module.input_size or data.size(time) == 0 or (data.dtype != kind and not mixed):
        return False
    if parts is None:
        return True
    batch = int(input.batch_sizes[0]) if packed else data.size(across) if batched else 1
    shapes = _state_shapes(module, batch)
    shapes = shapes if batched else [(count, units) for count, _, units in shapes]
    return [tuple(part.shape) for part in parts] == shapes and (mixed or all(part.dtype == kind for part in parts))


def write(module: nn.RNNBase, sequence: Sequence, rows: Tensor, state: State) -> tuple[Any, Any]:
    """Convert rows and final states to the form of the caller's input."""
    output: Any
    if sequence.packed is not None:
        _, batch_sizes, order, back = sequence.packed
        output = PackedSequence(rows, batch_sizes, order, back)
        if back is not None:
            state = tuple(part.index_select(1, back) for part in state)
    else:
        output = rows.view(len(sequence.sizes), sequence.sizes[0], rows.size(1))
        if not sequence.batched:
            output = output.squeeze(1)
            state = tuple(part.squeeze(1) for part in state)
        elif module.batch_first:
            output = output.transpose(0, 1)
    return output, state if module.mode == "LSTM" else state[0]


def as_plain(module: nn.Module, rows: Tensor, hx: Any, found: State, packed: Packed = "") -> State:
    """Return the output and states of a mollified module in the dtypes that the plain module would return.

    Args:
        module: The module.
        rows: Its input.
        hx: The state that it was given, or None.
        found: Its output and states.
        packed: Whether the sequences were packed, and whether their lengths differ.
    """
    if not autocasts(rows.device) or getattr(type(module), "gate", None) is not None:  # torch has no such gates
        return found
    kind = next(each for each in KINDS if isinstance(module, each))
    state = None if hx is None else tuple(part.dtype for part in ((hx,) if isinstance(hx, Tensor) else hx))
    given = next(module.parameters()).dtype, rows.dtype, state
    where = rows.device.type, torch.get_autocast_dtype(rows.device.type)
    dtypes: Dtypes | None = _asked(kind, bool(getattr(module, "proj_size", 0)), packed, *where, *given)
    if dtypes is None:
        return found
    return tuple(part.to(dtype) for part, dtype in zip(found, dtypes, strict=True))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@cache
def _asked(
    kind: type[nn.Module],
    projected: bool,
    packed: Packed,
    device: str,
    target: torch.dtype,
    weight: torch.dtype,
    input: torch.dtype,
    state: Dtypes | None,
) -> Dtypes | None:
    """Find the dtypes by running a torch module of minimal size; return None if torch has no such operation on this machine."""
    size = {"proj_size": 1} if projected else {}
    module = kind(1, 2, device="meta", dtype=weight, **size).to_empty(device=device)  # draws no random numbers
    batch = () if isinstance(module, nn.RNNCellBase) else (1,)
    x: Any = torch.zeros(*batch, 2, 1, dtype=input, device=device)
    x = pack_sequence([x[0], x[0, :1] if packed == "ragged" else x[0]]) if packed else x
    hx: Any = None
    if state is not None:
        units = [1 if projected else 2, 2]
        hx = [torch.zeros(*batch, 2, n, dtype=dtype, device=device) for n, dtype in zip(units, state, strict=False)]
        hx = tuple(hx) if len(hx) == 2 else hx[0]
    try:
        with torch.no_grad(), torch.autocast(device, target):
            out = module(x, hx)
    except RuntimeError:  # e.g. a CPU for which oneDNN has no LSTM in bfloat16
        return None
    if not batch:
        return tuple(part.dtype for part in (out if isinstance(out, tuple) else (out,)))
    rows, final = out
    return rows.data.dtype, *(part.dtype for part in (final if isinstance(final, tuple) else (final,)))
