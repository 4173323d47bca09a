"""The rows of the contract, one by one, for every recurrent kind: the same tests as for feed-forward kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from . import (
    test_autocast,
    test_checkpoints,
    test_copies,
    test_level_one,
    test_level_zero,
    test_noise,
    test_parameters,
    test_restore,
    test_resume,
)
from .recurrent import RECURRENT, has_torch_lstm
from .zoo import Kind

ROWS = (
    test_level_zero,
    test_level_one,
    test_noise,
    test_parameters,
    test_checkpoints,
    test_copies,
    test_resume,
    test_autocast,
    test_restore,
)
# Said of `Copy` modules around feed-forward blocks; tests/nn/recurrent/test_level_one.py says it of recurrent layers.
ELSEWHERE = {"test_every_block_is_its_copy"}
# A restored hard-sigmoid LSTM still has a class of ours; torch.export does not take packed sequences, plain or not.
NOT_FOR = {
    "test_a_restored_model_pickles_as_a_plain_one": {"hard-sigmoid-lstm", "hard-sigmoid-gru"},
    "test_restored_model_exports": {"packed-encoder"},
}
TORCHS_OWN = ("The tensor attributes .*_flat_weights", "LSTM with projections is not supported with oneDNN")
Arguments = dict[str, Any]


def arguments(function: Callable[..., None]) -> tuple[list[Kind], list[Arguments]]:
    """The kinds that a test of the contract is parametrised over, and all values of its other parameters."""
    kinds: list[Kind] = []
    others: list[list[Arguments]] = []
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args
        if names == "kind":
            kinds = list(values)
        else:
            names = [names] if isinstance(names, str) else list(names)
            others.append([dict(zip(names, v if len(names) > 1 else [v], strict=True)) for v in values])
    return kinds, [{key: value for part in parts for key, value in part.items()} for parts in product(*others)]


def applies(kind: Kind, kinds: list[Kind], values: Arguments, name: str) -> bool:
    """Some rows are for what mollify converted, or for affine limits; bf16 is not for torch's own LSTM on a CPU."""
    converted, affine = all(k.by_hand is None for k in kinds), all(k.affine for k in kinds)
    plain_bf16 = "bf16" in str(values.get("precision")) or "dtypes_and_shapes_under_autocast" in name
    plain_bf16 |= name == "test_bf16_autocast_trains" and values["level"] == 0.0
    if (converted and kind.by_hand is not None) or (affine and not kind.affine):
        return False
    if kind.name in NOT_FOR.get(name, ()):
        return False
    return not (plain_bf16 and has_torch_lstm(kind))


def cases() -> Iterator[Any]:
    for module in ROWS:
        for name, function in vars(module).items():
            if name.startswith("test_") and "kind" in inspect.signature(function).parameters and name not in ELSEWHERE:
                kinds, combinations = arguments(function)
                for values, kind in product(combinations, RECURRENT):
                    if applies(kind, kinds, values, name):
                        shown = [getattr(v, "__name__", str(v)) for v in values.values()]
                        yield pytest.param(function, kind, values, id="-".join([name[5:], *shown, kind.name]))


@pytest.mark.filterwarnings(*(f"ignore:{warning}:UserWarning" for warning in TORCHS_OWN))
@pytest.mark.parametrize(("row", "kind", "values"), list(cases()))
def test_row(row: Callable[..., None], kind: Kind, values: Arguments, request: pytest.FixtureRequest) -> None:
    wanted = set(inspect.signature(row).parameters) - {"kind", *values}
    row(kind=kind, **values, **{name: request.getfixturevalue(name) for name in wanted})


def test_all_rows_are_here() -> None:
    """Ten rows are nine files, compile, distributed and the report; a file without tests of kinds would go unnoticed."""
    names = {case.values[0].__module__ for case in cases()}
    assert names == {module.__name__ for module in ROWS}
