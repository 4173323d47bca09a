"""Looking at a model changes nothing in it, whatever its forward writes to."""

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.convert._unchanged import copied, unchanged
from tests.helpers import mlp, snapshot

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


@dataclass
class Meter:
    total: float = 0.0
    values: list[Tensor] = field(default_factory=list)


class Keeping(nn.Module):
    """Keeps what it computes, in containers of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(4, 4), nn.Linear(4, 1)
        self.recent, self.plain, self.nested = deque([1.0], maxlen=2), [], {"mean": [], "all": ({"x": []}, 3)}
        self.kinds = {"calls": Counter(a=1), "by": defaultdict(list), "ordered": OrderedDict(first=[]), "ids": {0}}
        self.meter, self.space, self.child = Meter(), SimpleNamespace(last=None), nn.Identity()
        self.child.log = []

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x))
        kept = h.detach().mean()
        kinds = self.kinds
        lists = (self.recent, self.plain, self.nested["mean"], self.nested["all"][0]["x"], self.child.log)
        for each in (*lists, self.meter.values, kinds["by"]["key"], kinds["ordered"]["first"]):
            each.append(kept)
        kinds["calls"]["a"] += 1
        kinds["ids"].add(len(kinds["ids"]))
        kinds["ordered"]["second"] = kinds["ordered"].pop("first")
        self.meter.total, self.space.last = kept, kept
        return self.head(h)


def contents(model: Keeping) -> list[object]:
    attributes = (model.recent, model.plain, model.nested, model.kinds, model.meter, model.space, model.child.log)
    return [*(str(each) for each in attributes), *map(id, attributes), model.recent.maxlen, id(model.nested["mean"])]


@pytest.mark.parametrize("example", [None, X], ids=["traced", "example"])
def test_containers_hold_what_they_held(example):
    model = Keeping()
    before, all_of_it = snapshot(model), contents(model)
    mollifier.plan(model, example=example)
    assert snapshot(model) == before
    assert contents(model) == all_of_it
    mollifier.mollify(model, example=example)
    assert contents(model) == all_of_it
    model(X)
    assert torch.stack(list(model.recent)[1:] + model.plain).isfinite().all()  # what it keeps are tensors


class Locked(list):
    """May only be appended to."""

    def __setitem__(self, *args) -> None:
        raise AssertionError

    __delitem__ = __iter__ = extend = clear = __setitem__


class Ordered(OrderedDict):
    def copy(self) -> None:
        raise AssertionError

    items = update = clear = copy


def test_large_and_strange_containers():
    model = mlp(4, 4, 1)
    model.many, model.locked, model.own, model.ordered = list(range(5000)), Locked([1]), [], Ordered(a=1, b=2)
    model.ordered.move_to_end("a")
    model.own.append(model.own)  # contains itself
    many = model.many
    with unchanged(model):
        model(X)
    assert model.many is many
    with unchanged(model):
        model.many.append(1)
        model.locked.append(2)
        model.ordered["c"] = 3
    assert model.many is many == list(range(5000))
    assert model.own[0] is model.own
    assert len(model.locked) == model.locked[0] == 1
    assert list(model.ordered) == ["b", "a"]


def test_a_copy_shares_no_container():
    inside, tensor = [torch.zeros(1)], torch.ones(1)
    value = {"a": [inside, {"b": deque([inside, tensor], maxlen=3)}], "c": (inside, 1), "d": inside}
    value["self"] = value
    twin = copied(value)
    assert twin["a"][0] is twin["d"] is twin["c"][0] is twin["a"][1]["b"][0] is not inside
    assert twin["a"][1]["b"][1] is tensor
    assert twin["a"][1]["b"].maxlen == 3
    assert twin["self"] is twin
    assert inside[0] is twin["d"][0]


def lazy(dimensions: int) -> nn.Sequential:
    if dimensions == 1:
        return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(2))
    return nn.Sequential(nn.LazyConv2d(4, 1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.LazyConv2d(2, 1))


@pytest.mark.parametrize(("dimensions", "x"), [(1, torch.randn(3, 8)), (2, torch.randn(3, 8, 2, 2))])
def test_an_example_initialises_lazy_layers_for_good(dimensions, x):
    model, want = lazy(dimensions), lazy(dimensions)
    want(x)
    random = torch.get_rng_state()
    report = mollifier.plan(model, example=x)
    assert torch.equal(torch.get_rng_state(), random)
    assert repr(model) == repr(want)
    assert [type(module) for module in model] == [type(module) for module in want]
    assert all(module.training for module in model)
    assert {name: sorted(vars(module)) for name, module in model.named_modules()} == {
        name: sorted(vars(module)) for name, module in want.named_modules()
    }
    assert [(row.name, row.units, row.copy, row.activations) for row in report.blocks] == [
        ("[0:2]", "8 → 4", "fixed", ["relu (4 a)"])
    ]
    mollifier.mollify(model).eval()
    shown = model(x)
    mollifier.set_level(model, 0)
    assert not torch.equal(shown, mollifier.restore(model)(x))
    assert repr(model) == repr(want.eval())


def test_without_an_example_lazy_layers_stay_lazy():
    model = lazy(1)
    mollifier.plan(model)
    assert model[0].has_uninitialized_params()
    assert model(torch.randn(3, 8)).shape == (3, 2)
