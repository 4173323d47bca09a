"""The children that compute the output, read from the source of forwards that cannot be traced."""
# ruff: noqa: F841, RET504 (the forwards are written as strangers write them)

import functools
import inspect
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import mollifier
from mollifier.convert._reasons import OUTPUT
from mollifier.convert._returned import returned_children
from tests.helpers import mlp

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


class Record(NamedTuple):
    first: Tensor
    second: Tensor


@dataclass
class Result:
    first: Tensor


class Base(nn.Module):
    """Children and helpers for many forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec, self.extra = (nn.Sequential(mlp(8, 8, 8), nn.Sigmoid()) for _ in range(3))
        self.heads = nn.ModuleList([nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid()])
        self.parts = nn.ModuleDict({"a": mlp(8, 8, 8), "b": nn.Sigmoid()})
        self.drop, self.act, self.listed = nn.Dropout(0.1), torch.tanh, [self.enc]
        self.size = 8

    def decode(self, z: Tensor, scale: float = 1.0) -> Tensor:
        return self.dec(z) * scale

    def through(self, *values: Tensor, depth: int = 3) -> Tensor:
        return self.through(*values, depth=depth - 1) if depth else values[0]

    @staticmethod
    def half(value: Tensor) -> Tensor:
        return value / 2

    @property
    def decoder(self) -> nn.Module:
        return self.dec

    @functools.cached_property
    def cached(self) -> nn.Module:
        return self.dec

    def forward(self, z: Tensor) -> Tensor:
        return self.decode(self.enc(z))


def helper(value: Tensor) -> Tensor:
    return value


class Forwards:
    """Each returns dec, and no other child, by a way of its own. What they do not use is expected with it."""

    def method(self, z):
        y = self.decode(self.enc(z), scale=2.0)
        return y

    def dictionary(self, z):
        return {"p": self.dec(z), "shape": z.shape}

    def index(self, z):
        return self.dec(self.enc(z))[:, 0]

    def arithmetic(self, z):
        return 2 * self.dec(z) - 1

    def joined(self, z):
        return torch.cat([self.dec(z), z], dim=1)

    def function(self, z):
        return helper(torch.squeeze(self.dec(z), -1))

    def comparison(self, z):
        return self.dec(z) > 0.5, len(self.enc(z))

    def record(self, z):
        return Record(z, second=self.dec(z))

    def dataclass(self, z):
        out = Result(z)
        out.first = self.dec(z)
        return out

    def unpacked(self, z):
        (a, b), *rest = (self.dec(z), z), self.enc(z)
        return a

    def pairs(self, z):
        a, b = self.dec(z), self.enc(z)
        return a

    def again(self, z):
        x: Tensor = self.enc(z)
        x = self.dec(x)
        return x

    def augmented(self, z):
        y = z
        y += self.dec(z)
        return y

    def walrus(self, z):
        if (y := self.dec(z)) is not None:
            return y
        return z

    def branches(self, z):
        if z.sum() > 0:
            y = self.enc(z)
            y = self.dec(y)
        elif len(z):
            raise ValueError(self.enc(z))
        else:
            y = z
        return y

    def written(self, z):
        out = torch.zeros(4)
        out[:, 1:] = self.dec(z)
        return out

    def appended(self, z):
        found, other = [], []
        for _ in range(3):
            found.append(self.dec(z))
            other.append(self.enc(z))
        return torch.stack(found)

    def repeated(self, z):
        x = y = z
        while x.sum() < 3:
            if x.sum() < 2:
                x = y
                continue
            x, y = self.enc(z), self.dec(z)
            x = helper(z)
        return x

    def early(self, z):
        for _ in range(3):
            y = self.dec(z)
            if y.sum() > 1:
                break
            y = z
        else:
            y = z
        return y

    def tried(self, z):
        try:
            y = self.dec(z)
        except ValueError:
            y = z
        else:
            self.enc(z)
        finally:
            z = None
        return y

    def within(self, z):
        with torch.autocast("cpu") as context, torch.no_grad():
            y = self.dec(z)
        return y

    def matched(self, z):
        match [self.dec(z)]:
            case [one]:
                return one
        return z

    def nested(self, z):
        def run(x):
            return self.dec(x)

        return run(z)

    def checkpointed(self, z):
        return checkpoint(lambda x: self.decode(x), z, use_reentrant=False)

    def referred(self, z):
        step = self.decode if len(z) else self.half
        return step(z)

    def recursive(self, z):
        return self.through(self.dec(z), self.half(z))

    def static(self, z):
        return self.half(self.dec(z))

    def properties(self, z):
        return self.decoder(z), self.cached(z)

    def kept(self, z):
        y = self.last
        self.last = self.dec(z)
        return y

    def inner(self, z):
        return self.dec.forward(z), self.dec[-1](z)

    def dropped(self, z):
        return self.drop(self.dec(self.enc(z)))

    def generated(self, z):
        yield self.dec(z)


@pytest.mark.parametrize("name", [name for name in vars(Forwards) if not name.startswith("_")])
def test_the_child_that_computes_the_output_is_found(name):
    model = type("Model", (Base,), {"forward": vars(Forwards)[name]})()
    del model.heads, model.parts, model.extra, model.act
    model.listed = []
    found = returned_children(model)
    assert "dec" in found
    used = {word for word in ("enc", "drop") if word in vars(Forwards)[name].__code__.co_names}
    assert not found & (used - {"drop"}) or name == "unpacked"
    assert {"enc", "drop"} - used <= found


class Loops:
    """These return children of containers, as written beside them."""

    def last(self, x):  # heads.3
        for layer in self.heads:
            x = layer(x)
        return x

    def counted(self, x):  # heads.3
        for number, layer in enumerate(self.heads):
            x = layer(x) if number else helper(x)
            x = layer(x)
        return x

    def all(self, x):  # heads
        return [head(x) for head in self.heads]

    def summed(self, x):  # heads heads.3
        y = 0
        for head in self.heads:
            y = y + head(x)
        return y

    def reversed(self, x):  # heads
        for layer in reversed(self.heads):
            x = layer(x)
        return x

    def item(self, x):  # heads.2 parts.b
        return self.parts["b"](x), self.heads[2](x)

    def chosen(self, x):  # heads
        return self.heads[x.argmax()](x)

    def values(self, x):  # parts
        return {name: part(x) for name, part in self.parts.items()}

    def sequence(self, x):  # heads
        return nn.Sequential(*self.heads)(x)

    def attribute(self, x):  # act
        return self.act(self.heads[0](x))

    def activated(self, x):  #
        return torch.sigmoid(self.heads[0](x)), F.relu(self.parts["a"](x)), self.parts["a"](x).tanh()


@pytest.mark.parametrize("name", [name for name in vars(Loops) if not name.startswith("_")])
def test_children_of_containers(name):
    model = type("Model", (Base,), {"forward": vars(Loops)[name]})()
    del model.enc, model.dec, model.extra, model.drop
    if name != "attribute":
        del model.act
    want = set(inspect.getsource(vars(Loops)[name]).splitlines()[0].split("#")[1].split())
    unused = {"heads", "parts"} - set(vars(Loops)[name].__code__.co_names)
    assert returned_children(model) == want | unused


def everything(model: nn.Module) -> set[str]:
    return {"act", *(name for name, _ in model.named_children())}


class Unknown:
    """These may return anything."""

    def children_of_mine(self, x):
        for child in self.children():
            x = child(x)
        return x

    def by_name(self, x):
        return getattr(self, "de" + "c")(x)

    def given_away(self, x):
        return helper(self)(x)

    def from_a_list(self, x):
        return self.listed[0](x)

    def a_function(self, x):
        return self.function(x)


@pytest.mark.parametrize("name", [name for name in vars(Unknown) if not name.startswith("_")])
def test_what_cannot_be_understood_may_be_any_child(name):
    model = type("Model", (Base,), {"forward": vars(Unknown)[name], "used": Base.forward})()
    model.function = lambda x: helper(x)
    assert returned_children(model) == everything(model)


def test_without_source_any_child_may_be_returned():
    space = {"nn": nn, "Base": Base}
    exec("class Lost(Base):\n    def forward(self, x):\n        return x if len(x) else self.dec(x)\n", space)
    model = space["Lost"]()
    assert returned_children(model) == everything(model)
    assert {row.why for row in mollifier.plan(model).skipped if row.what == "Sigmoid"} == {OUTPUT}


def test_what_a_parent_class_returns():
    class Heir(Base):
        def forward(self, x):
            self.heads, self.parts, self.extra, self.drop, self.act  # noqa: B018
            return super().forward(x) if len(x) else super(Base, self).forward(x)

    class Checked(nn.Sequential):
        def forward(self, x):
            assert x.dim() == 2
            return super().forward(x)

    assert returned_children(Heir()) == {"dec"}
    model = Checked(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid(), nn.Flatten())
    assert returned_children(model) == {"3", "4"}
    assert [row.name for row in mollifier.plan(model).blocks] == ["1"]


class Autoencoder(Base):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        assert x.dim() == 2
        for layer in self.heads:
            x = layer(x)
        return {"y": self.decode(self.enc(x))}


def test_the_output_of_a_forward_that_cannot_be_traced_stays_plain():
    report = mollifier.report(mollifier.mollify(Autoencoder()))
    assert [row.name for row in report.blocks if row.name.startswith(("enc", "dec", "heads"))] == [
        *("enc.0[0:1]", "enc.1", "dec.0[0:1]", "heads.1", "heads.3"),
    ]
    assert {row.name: row.why for row in report.skipped}["dec.1"] == OUTPUT

    class Stack(Base):
        def forward(self, x: Tensor) -> Tensor:
            assert x.dim() == 2
            for layer in self.heads:
                x = layer(x)
            return self.drop(x)

    model = Stack()
    del model.enc, model.dec, model.extra, model.parts
    report = mollifier.report(mollifier.mollify(model))
    assert [row.name for row in report.blocks] == ["heads.1"]
    assert {row.name: row.why for row in report.skipped}["heads.3"] == OUTPUT


def test_a_function_attribute_that_is_the_output_stays_plain():
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.act, self.end = mlp(8, 8, 8), nn.Linear(8, 1), torch.relu, torch.sigmoid

        def forward(self, x: Tensor) -> Tensor:
            return self.end(self.head(self.act(self.body(x)))) if len(x) else x

    model = mollifier.mollify(Ends())
    report = mollifier.report(model)
    assert [row.activations[0].split()[0] for row in report.blocks] == ["relu", "sigmoid"]
    assert [row.why for row in report.skipped if row.what == "sigmoid"] == [OUTPUT]
    assert ((model(9 * X) >= 0) & (model(9 * X) <= 1)).all()


def test_a_child_with_two_names_is_returned_under_both():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enc = self.dec = nn.Sequential(mlp(8, 8, 8), nn.Sigmoid())

        def forward(self, x: Tensor) -> Tensor:
            assert x.dim() == 2
            return self.dec(self.enc(x))

    assert returned_children(Tied()) == {"enc", "dec"}
    assert [row.name for row in mollifier.plan(Tied()).blocks] == ["enc.0[0:1]"]
