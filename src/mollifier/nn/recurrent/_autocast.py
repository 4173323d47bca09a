"""Under autocast: the dtypes that the plain module would return, which differ from device to device and from kind to kind."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from mollifier.nn.recurrent._sequence import State, autocasts

KINDS = (nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
Dtypes = tuple[torch.dtype, ...]
Packed = Literal["", "even", "ragged"]  # torch takes another path for each, from version to version


def as_plain(module: nn.Module, rows: Tensor, hx: Any, found: State, packed: Packed = "") -> State:
    """Output and states of a mollified module, in the dtypes that the plain one gives them.

    Args:
        module: The module.
        rows: Its input.
        hx: The state that it was given, or None.
        found: Its output and states.
        packed: Were the sequences packed, and are they of different lengths?
    """
    if not autocasts(rows.device) or getattr(type(module), "gate", None) is not None:  # gates that torch does not have
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
    """Ask torch, by a module of the smallest size; None if it has no such operation on this machine."""
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
