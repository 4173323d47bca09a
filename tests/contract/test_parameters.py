"""Row 4: parameter objects, their names and an optimiser made before the conversion survive it, there and back."""

from __future__ import annotations

import torch
from torch import nn

import mollifier

from .helpers import loss_of, own_parameters, train
from .zoo import CONVERTED, KINDS, RESTORED, Kind, by_name


def same_objects(model: nn.Module, before: dict[str, nn.Parameter]) -> bool:
    return all(model.get_parameter(name) is parameter for name, parameter in before.items())


@by_name(RESTORED)
def test_parameters_are_the_same_objects_under_the_same_names(kind: Kind) -> None:
    model = kind.plain()
    before, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    values = {name: parameter.detach().clone() for name, parameter in before.items()}
    assert kind.convert(model) is model
    added = [name for name, _ in model.named_parameters() if name not in before]
    assert same_objects(model, before)
    assert [name for name, _ in model.named_parameters() if name not in added] == list(before)
    assert all("_mollifier" in name.split(".") for name in added)
    assert all(model.get_buffer(name) is buffer for name, buffer in buffers.items())
    mollifier.set_level(model, 0.0)
    assert mollifier.restore(model) is model
    assert list(dict(model.named_parameters())) == list(before)
    assert same_objects(model, before)
    assert all(torch.equal(parameter, values[name]) for name, parameter in before.items())


@by_name(CONVERTED)
def test_added_parameters_are_exactly_the_new_ones(kind: Kind) -> None:
    model = kind.plain()
    before = {id(parameter) for parameter in model.parameters()}
    kind.convert(model)
    added = mollifier.added_parameters(model)
    assert {id(parameter) for parameter in model.parameters()} - before == {id(parameter) for parameter in added}
    assert len({id(parameter) for parameter in added}) == len(added)
    assert all(parameter.requires_grad and isinstance(parameter, nn.Parameter) for parameter in added)


@by_name(KINDS)
def test_an_optimiser_made_before_trains_the_model_at_every_level_and_after(kind: Kind) -> None:
    model = kind.plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    own, x = list(model.parameters()), kind.input()
    model = kind.convert(model).train()
    optimizer.add_param_group({"params": mollifier.added_parameters(model)})

    def moved_by_a_step() -> list[bool]:
        before = [parameter.detach().clone() for parameter in own]
        optimizer.zero_grad()
        loss_of(kind, model, x).backward()
        optimizer.step()
        return [not torch.equal(one, two) for one, two in zip(before, own, strict=True)]

    moved_by_a_step()  # at level 1 a network that is nothing but its copy has no weight that acts
    mollifier.set_level(model, 0.5)
    assert sum(moved_by_a_step()) >= len(own) // 2
    assert any(parameter.grad is not None for parameter in mollifier.added_parameters(model))
    mollifier.set_level(model, 0.0)
    assert sum(moved_by_a_step()) >= len(own) // 2
    assert [id(parameter) for parameter in own_parameters(model)] == [id(parameter) for parameter in own]
    if kind.by_hand is None:
        mollifier.restore(model, force=kind.residual)
        assert sum(moved_by_a_step()) >= len(own) // 2


@by_name(KINDS)
def test_the_three_lines_lower_the_loss(kind: Kind) -> None:
    """Mollify, anneal to the end and restore: the plain network has learnt something."""
    model = kind.plain()
    x = kind.input(seed=100)
    model = kind.convert(model)
    mollifier.set_level(model, 0.0)
    with torch.no_grad():
        untrained = loss_of(kind, model.eval(), x).item()
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    mollifier.set_level(model, 1.0)
    annealer = mollifier.Annealer(model, horizon=20)
    assert mollifier.levels(model) == [1.0] * len(mollifier.levels(model))
    train(kind, model.train(), optimizer, annealer, [0] * 40)  # one batch
    assert annealer.finished
    assert mollifier.levels(model) == [0.0] * len(mollifier.levels(model))
    if kind.by_hand is None:
        mollifier.restore(model, force=kind.residual)
        assert not mollifier.is_mollified(model)
    if not kind.residual:  # (with residual=True the restored network is another one)
        with torch.no_grad():
            assert loss_of(kind, model.eval(), x).item() < untrained
