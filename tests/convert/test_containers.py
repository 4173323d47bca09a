"""Mollified containers can be edited, iterated over and sliced as before, and the copies stay with their layers."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

import mollifier

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


EDITS = {
    "del": lambda m: m.__delitem__(-1),
    "pop": lambda m: m.pop(-1),
    "insert": lambda m: m.insert(2, nn.Linear(6, 6)),
    "insert in a run": lambda m: m.insert(1, nn.Linear(6, 6)),
    "append": lambda m: m.append(nn.Linear(3, 3)),
    "extend": lambda m: m.extend(nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    "replace the head": lambda m: m.__setitem__(-1, nn.Linear(6, 5)),
    "replace an activation": lambda m: m.__setitem__(1, nn.ReLU()),
    "delete an activation": lambda m: m.__delitem__(1),
    "add": lambda m: m.__iadd__(nn.Sequential(nn.Linear(3, 3))),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_mollified_sequential_can_be_edited(edit):
    def build() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 3))

    torch.manual_seed(1)
    plain = build()
    torch.manual_seed(1)
    model = mollifier.mollify(build())
    torch.manual_seed(2)
    EDITS[edit](plain)
    torch.manual_seed(2)
    EDITS[edit](model)
    assert len(model) == len(plain)
    assert type(model[-1]).__name__.removeprefix("Mollified") == type(plain[-1]).__name__
    assert [type(module).__name__.removeprefix("Mollified") for module in model] == [type(m).__name__ for m in plain]
    broken = (
        edit == "insert in a run"
    )  # the activation no longer follows its layer: nothing is copied there, and that is said
    with pytest.warns(RuntimeWarning, match="did not come from its layer") if broken else nullcontext():
        assert model(X).shape == plain(X).shape
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), plain(X))
    assert [type(part) for part in mollifier.restore(model).modules()] == [type(part) for part in plain.modules()]
    assert torch.equal(model(X), plain(X))


def test_an_edit_between_calls_is_followed():
    model = mollifier.mollify(
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    ).eval()
    head = model[4]
    assert torch.equal(model(X), head(X))
    model.insert(2, nn.Softmax(-1))
    assert torch.equal(model(X), head(X.softmax(-1)))
    del model[0:3]
    assert torch.equal(model(X), head(X))


class Iterated(nn.Module):
    """Goes through its own container, layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(8, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.net:
            x = layer(x)
        return x


class Sliced(Iterated):
    def forward(self, x: Tensor) -> Tensor:
        return self.net[5](self.net[3:5](self.net[:3](x)))


class ByName(Iterated):
    """Keeps its layers in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.ModuleDict(dict(self.net.named_children()))

    def forward(self, x: Tensor) -> Tensor:
        for name in self.net:
            x = self.net[name](x)
        return x


@pytest.mark.parametrize("kind", [Iterated, Sliced, ByName])
def test_the_copies_come_along_however_the_layers_are_called(kind):
    torch.manual_seed(0)
    plain = kind()
    model = mollifier.mollify(copy.deepcopy(plain)).eval()
    head = model.net["5"] if kind is ByName else model.net[5]
    assert len(mollifier.levels(model)) == 2
    assert torch.equal(model(X), head(X))
    mollifier.set_level(model, 0.5)
    one = mollifier.mollify(copy.deepcopy(plain.net)).eval() if kind is not ByName else None
    if one is not None:
        one.load_state_dict(model.net.state_dict())
        torch.testing.assert_close(model(X), one(X))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), plain.eval()(X))


def test_the_copies_come_along_in_a_slice_that_is_taken_from_outside():
    model = mollifier.mollify(
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    ).eval()
    assert torch.equal(model[:4](X), X)
    assert torch.equal(model[2:](X), model[4](X))
    assert torch.equal(nn.Sequential(*model)(X), model(X))
    assert type(model[:4]) is nn.Sequential


@pytest.mark.parametrize("hooked", [[0], [1], [2], [0, 1, 2], [0, 1, 2, 3]], ids=str)
def test_full_backward_hooks_of_the_user_are_no_hindrance(hooked):
    """They put tensors of their own in the place of those that modules take and give."""
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3)), level=1.0)
    calls = []
    for number in hooked:
        model[number].register_full_backward_hook(lambda module, *_: calls.append(type(module).__name__))
    for each in (model, Iterating(model)):
        calls.clear()
        x = X.clone().requires_grad_()
        out = each.train()(x)
        torch.testing.assert_close(out, model[3](x))
        out.sum().backward()
        assert len(calls) == len(hooked)


class Iterating(nn.Module):
    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.net:
            x = layer(x)
        return x
