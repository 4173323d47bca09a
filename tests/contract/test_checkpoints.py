"""Row 5: a plain checkpoint loads into the mollified model and the other way round, nested as deep as you like."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

import mollifier

from .helpers import assert_equal, loss_of
from .zoo import CONVERTED, KINDS, RESTORED, Kind, by_name

State = OrderedDict[str, Tensor]


class Bigger(nn.Module):
    """A model with ours somewhere inside it, among others."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.before = nn.Linear(2, 2)
        self.towers = nn.ModuleDict({"left": nn.Sequential(nn.Linear(2, 2), inner), "right": nn.Linear(2, 1)})


def trained(kind: Kind, model: nn.Module) -> nn.Module:
    """After two updates: no weight, no running statistic and no counter is where it began."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for update in range(2):
        optimizer.zero_grad()
        loss_of(kind, model.train(), kind.input(seed=update)).backward()
        optimizer.step()
    return model


def metadata(state: State) -> dict[str, dict[str, int]]:
    """The versions that state_dict records for each module, which load_state_dict acts on."""
    return dict(state._metadata)  # type: ignore[attr-defined]


def assert_same_state(got: State, want: State) -> None:
    assert list(got) == list(want)
    for key in want:
        assert_equal(got[key], want[key], key)


@by_name(CONVERTED)
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_a_plain_checkpoint_loads_strictly(kind: Kind, level: float) -> None:
    source = trained(kind, kind.plain(seed=8))
    state = source.state_dict()
    keys, versions = list(state), metadata(state)
    model = kind.mollified(level=level)
    added = [parameter.detach().clone() for parameter in mollifier.added_parameters(model)]
    result = model.load_state_dict(state, strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert (list(state), metadata(state)) == (keys, versions), "the checkpoint itself is untouched"
    assert set(mollifier.levels(model)) == {level}
    for parameter, before in zip(mollifier.added_parameters(model), added, strict=True):
        assert_equal(parameter.detach(), before)
    assert_same_state(mollifier.plain_state_dict(model), state)
    if level == 0.0 and not kind.residual:
        x = kind.input()
        assert_equal(kind.run(model.eval(), x), kind.run(source.eval(), x))


@by_name(CONVERTED)
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_plain_state_dict_loads_strictly_into_the_plain_model(kind: Kind, level: float) -> None:
    model = trained(kind, kind.mollified(level=level))
    state, plain = mollifier.plain_state_dict(model), kind.plain(seed=8)
    assert list(state) == list(plain.state_dict())
    # without them, batch norm would not find its counter and take the checkpoint for one of torch 0.3
    assert metadata(state) == metadata(plain.state_dict())
    plain.load_state_dict(state, strict=True)
    assert_same_state(plain.state_dict(), state)
    if level == 0.0 and not kind.residual:
        x = kind.input()
        assert_equal(kind.run(plain.eval(), x), kind.run(model.eval(), x))


@by_name(CONVERTED)
def test_nested_in_a_bigger_model(kind: Kind) -> None:
    """With prefixes on every key, and load_state_dict called on the outermost module only."""
    torch.manual_seed(1)
    plain = Bigger(kind.plain(seed=8))
    mollified = Bigger(kind.mollified(level=0.5))
    mollified.load_state_dict(plain.state_dict(), strict=True)
    assert_same_state(mollifier.plain_state_dict(mollified), plain.state_dict())
    assert set(mollifier.levels(mollified)) == {0.5}

    back = Bigger(kind.plain(seed=9))
    back.load_state_dict(mollifier.plain_state_dict(mollified), strict=True)
    assert_same_state(back.state_dict(), plain.state_dict())
    assert metadata(mollifier.plain_state_dict(mollified)) == metadata(plain.state_dict())

    other = Bigger(kind.mollified(level=1.0, seed=9))
    other.load_state_dict(mollified.state_dict(), strict=True)
    assert_same_state(other.state_dict(), mollified.state_dict())


@by_name(KINDS)
@pytest.mark.parametrize(("from_level", "to_level"), [(0.5, 1.0), (0.0, 0.5), (0.5, 0.0)])
def test_a_mollified_checkpoint_loads_strictly_and_sets_the_levels(
    kind: Kind, from_level: float, to_level: float
) -> None:
    source = trained(kind, kind.mollified(level=from_level, seed=8))
    model = kind.mollified(level=to_level)
    model.load_state_dict(source.state_dict(), strict=True)
    assert_same_state(model.state_dict(), source.state_dict())
    assert mollifier.levels(model) == mollifier.levels(source) == [from_level] * len(mollifier.levels(source))
    for training in (True, False):
        torch.manual_seed(3)
        want = kind.run(source.train(training), kind.input())
        torch.manual_seed(3)
        assert_equal(kind.run(model.train(training), kind.input()), want)


@by_name(CONVERTED)
def test_each_block_gets_its_own_level_from_a_checkpoint(kind: Kind) -> None:
    source, model = kind.mollified(seed=8), kind.mollified()
    count = len(mollifier.levels(source))
    levels = [number / count for number in range(count)]
    mollifier.set_level(source, levels)
    model.load_state_dict(source.state_dict(), strict=True)
    assert mollifier.levels(model) == levels
    assert_equal(kind.run(model.eval(), kind.input()), kind.run(source.eval(), kind.input()))


@by_name(RESTORED)
def test_half_a_mollified_checkpoint_is_refused(kind: Kind) -> None:
    """Strict is strict: only a checkpoint with nothing of ours is taken for a plain one."""
    state = kind.mollified().state_dict()
    gone = next(key for key in state if key.endswith(".a"))
    del state[gone]
    with pytest.raises(RuntimeError, match=f"Missing key.*{gone}"):
        kind.mollified().load_state_dict(state, strict=True)


@by_name(CONVERTED)
def test_keys_are_the_plain_ones_and_our_own(kind: Kind) -> None:
    plain, state = kind.plain().state_dict(), kind.mollified().state_dict()
    ours = [key for key in state if "_mollifier" in key.split(".")]
    assert [key for key in state if key not in ours] == list(plain)
    assert ours
