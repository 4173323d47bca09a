"""Row 9: after restore, types, keys, hooks and __dict__ are those of a model never mollified, and torch.export works."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import mollifier

from .helpers import assert_equal, loss_of, train
from .zoo import CONVERTED, RESTORED, Kind, by_name


def portrait(model: nn.Module) -> dict[str, tuple[type, list[str], dict[str, Any]]]:
    """Of every module: its type, the keys of its __dict__ in order, and the values; of dicts and sets, their contents.

    Values are the objects themselves, so that a parameter or hook that was replaced by an equal one is noticed.
    """

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return [(key, value[key]) for key in value]
        return list(value) if isinstance(value, (set, list)) else value

    return {
        name: (type(module), list(vars(module)), {key: copied(value) for key, value in vars(module).items()})
        for name, module in model.named_modules(remove_duplicate=False)
    }


def same(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(same(x, y) for x, y in zip(one, two, strict=True))
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(same(x, y) for x, y in zip(one, two, strict=True))
    return one is two or (not isinstance(one, (torch.Tensor, nn.Module)) and type(one) is type(two) and one == two)


def assert_same_portrait(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert list(got) == list(want)
    for name in want:
        assert got[name][0] is want[name][0], name
        assert got[name][1] == want[name][1], name
        for key, value in want[name][2].items():
            assert same(got[name][2][key], value), f"{name or 'the model'}.{key}"


def counting(calls: list[str], name: str) -> Any:
    def hook(module: nn.Module, *args: Any) -> None:
        calls.append(name)

    return hook


@by_name(CONVERTED)
@pytest.mark.parametrize("used", [False, True], ids=["at-once", "after-training"])
def test_nothing_is_left_behind(kind: Kind, used: bool) -> None:
    model = kind.plain().train()
    before, keys, shown = portrait(model), list(model.state_dict()), repr(model)
    kind.convert(model)
    assert repr(model) != shown
    if used:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        annealer = mollifier.Annealer(model, schedule="linear", horizon=2)
        train(kind, model, optimizer, annealer, range(3))
        kind.run(model.eval(), kind.input())
        model.train()
        optimizer.zero_grad()
    mollifier.set_level(model, 0.0)
    assert mollifier.restore(model, force=kind.residual) is model
    assert_same_portrait(portrait(model), before)
    assert list(model.state_dict()) == keys
    assert repr(model) == shown
    assert not mollifier.is_mollified(model)


@by_name(RESTORED)
def test_hooks_of_the_user_work_throughout(kind: Kind) -> None:
    """On every module, before, during and after; and none of ours is left among them."""
    model, calls = kind.plain().eval(), []
    for name, module in model.named_modules():
        module.register_forward_pre_hook(counting(calls, f"before {name}"))
        module.register_forward_hook(counting(calls, f"after {name}"))

    def order() -> list[str]:
        calls.clear()
        kind.run(model, kind.input())
        return list(calls)

    plain, before = order(), portrait(model)
    kind.convert(model)
    for level in (1.0, 0.5, 0.0):
        mollifier.set_level(model, level)
        assert order() == plain, level
    mollifier.restore(model)
    assert order() == plain
    assert_same_portrait(portrait(model), before)


@by_name(RESTORED)
def test_restored_computes_what_level_zero_did_and_what_was_trained(kind: Kind) -> None:
    model, x = kind.mollified(level=0.5).train(), kind.input()
    loss_of(kind, model, x).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad if parameter.grad is not None else 0.0)
    mollifier.set_level(model, 0.0)
    want = kind.run(model.eval(), x)
    assert_equal(kind.run(mollifier.restore(model), x), want)
    assert not torch.equal(want, kind.run(kind.plain().eval(), x))


@by_name(RESTORED)
def test_mollify_restore_and_mollify_again(kind: Kind) -> None:
    model, x = kind.plain(), kind.input()
    kind.convert(model)
    mollifier.restore(model, force=True)
    kind.convert(model)
    assert set(mollifier.levels(model)) == {1.0}
    torch.testing.assert_close(kind.run(model.eval(), x), kind.limit(model, x), rtol=1e-5, atol=1e-6)


@by_name(CONVERTED)
def test_restore_refuses_what_was_not_trained(kind: Kind) -> None:
    model = kind.mollified(level=0.5)
    before = portrait(model)
    with pytest.raises(ValueError, match="levels are"):
        mollifier.restore(model)
    assert_same_portrait(portrait(model), before)
    if kind.residual:
        mollifier.set_level(model, 0.0)
        with pytest.raises(ValueError, match="residual=True"):
            mollifier.restore(model)


@by_name(RESTORED)
def test_restored_model_exports(kind: Kind) -> None:
    model, x = kind.mollified().eval(), kind.input()
    kind.run(model, x)
    mollifier.set_level(model, 0.0)
    mollifier.restore(model)
    with torch.no_grad():
        if isinstance(model, nn.RNNBase):
            try:
                torch.export.export(kind.plain().eval(), kind.arguments(x))
            except ValueError as error:  # torch 2.8
                pytest.skip(f"this torch does not export the plain module: {str(error)[:60]}")
        exported = torch.export.export(model, kind.arguments(x))
        targets = {str(node.target) for node in exported.graph.nodes}
        assert not any("mollifier" in target for target in targets)
        torch.testing.assert_close(kind.run(exported.module(), x), kind.run(model, x))
