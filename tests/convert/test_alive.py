"""The user's own forward runs as written, at every level: its mode, attributes, control flow and random numbers are alive."""

import copy
import pickle
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import mollifier

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


class Dropping(nn.Module):
    """Functional dropout by the module's own mode, before and after the activation."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(F.dropout(self.fc1(x), 0.5, training=self.training))
        return self.fc2(F.dropout(x, 0.5, training=self.training))


class Tempered(nn.Module):
    """An attribute that the user anneals, and options that it gives to an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.tau, self.slope = nn.Linear(6, 6), nn.Linear(6, 2), 1.0, 0.1

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.leaky_relu(self.fc1(x), self.slope)) / self.tau


class Random(nn.Module):
    """Noise of the user's own: torch's, and Python's for a coin."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.fc1(x)) + torch.randn(x.shape)
        return self.fc2(x) if random.random() < 0.5 else self.fc2(-x)


class Remembering(nn.Module):
    """Keeps what it computed last, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.calls = nn.Linear(6, 6), nn.Linear(6, 2), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = torch.tanh(self.fc1(x))
        return self.fc2(self.last)


class Looping(nn.Module):
    """A number of layers that is an attribute, and methods that the forward calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head, self.depth = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)]), nn.Linear(6, 2), 3

    def body(self, x: Tensor) -> Tensor:
        for layer in self.layers[: self.depth]:
            x = torch.sigmoid(layer(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.mark.parametrize("training", [True, False], ids=["converted-in-train", "converted-in-eval"])
@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_dropout_follows_the_mode_whenever_it_was_converted(training, level):
    model = mollifier.mollify(Dropping().train(training), train_noise="expected")
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(fc1, tanh)"]
    mollifier.set_level(model, level)
    model.eval()
    assert torch.equal(model(X), model(X))
    model.train()
    assert not torch.equal(model(X), model(X))


def test_the_copy_goes_past_the_dropout_before_the_activation():
    model = mollifier.mollify(Dropping(), train_noise="expected")
    torch.manual_seed(0)
    out = model(X)
    torch.manual_seed(0)
    F.dropout(X, 0.5)  # what the first one drew
    assert torch.equal(out, model.fc2(F.dropout(X, 0.5)))


@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_attributes_that_change_later_are_seen(level):
    model = mollifier.mollify(Tempered()).eval()
    mollifier.set_level(model, level)
    before = model(X)
    model.tau = 2.0
    torch.testing.assert_close(model(X), before / 2)


def test_options_of_an_activation_that_change_later_are_seen():
    model, other = Tempered(), Tempered()
    model.slope, other.slope = 0.1, 0.7
    for each in (model, other):
        mollifier.mollify(each, blocks=None).eval()
    other.load_state_dict(model.state_dict())
    assert mollifier.report(model).blocks[0].activations == ["leaky_relu(negative_slope=0.1) (6 a)"]
    assert not torch.equal(model(X), other(X))
    model.slope = 0.7
    assert torch.equal(model(X), other(X))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), model.fc2(F.leaky_relu(model.fc1(X), 0.7)))


@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_random_numbers_of_the_forward_are_drawn_at_every_call(level):
    model = mollifier.mollify(Random()).eval()
    mollifier.set_level(model, level)
    random.seed(3)
    torch.manual_seed(0)
    one, two = model(X), model(X)
    assert not torch.equal(one, two)
    torch.manual_seed(0)
    same = set()
    for _ in range(20):
        torch.manual_seed(0)
        same.add(torch.equal(one, model(X)))
    assert same == {True, False}, "the coin of Python's random is thrown at every call, too"


def test_looking_at_a_forward_draws_nothing_and_leaves_nothing():
    model = Random()
    random.seed(3)
    before = random.getstate(), torch.get_rng_state()
    mollifier.plan(model)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    other = Remembering()
    mollifier.mollify(other)
    assert "last" not in vars(other)
    assert other.calls == 0


def test_what_a_forward_keeps_is_a_tensor_while_mollified_and_after():
    model = mollifier.mollify(Remembering()).eval()
    assert torch.equal(model(X), model.fc2(X))
    assert torch.equal(model.last, X)
    assert model.calls == 1
    mollifier.set_level(model, 0)
    model(X)
    mollifier.restore(model)
    assert torch.equal(model.last, torch.tanh(model.fc1(X)))
    assert not any(isinstance(value, fx.Proxy) for value in vars(model).values())
    assert model.calls == 2


def test_control_flow_is_alive():
    model = mollifier.mollify(Looping()).eval()
    assert [row.name for row in mollifier.report(model).blocks] == [f"forward(layers.{i}, sigmoid)" for i in range(3)]
    assert torch.equal(model(X), model.head(X))
    mollifier.set_level(model, [1.0, 1.0, 0.0])
    torch.testing.assert_close(model(X), model.head(torch.sigmoid(model.layers[2](X))))
    model.depth = 2
    assert torch.equal(model(X), model.head(X))


def test_a_method_that_is_called_from_outside_is_mollified_too():
    model = mollifier.mollify(Looping()).eval()
    assert torch.equal(model.body(X), X)
    mollifier.set_level(model, 0)
    assert torch.equal(model.body(X), mollifier.restore(model).body(X))


def test_named_blocks_inside_a_functional_forward_have_their_copy():
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block, self.head = nn.Linear(6, 6), Dropping(), nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.block(torch.relu(self.first(x))))

    model = mollifier.mollify(Named(), blocks="block", example=X).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(first, relu)", "block"]
    mollifier.set_level(model, [0.0, 1.0])
    below = torch.relu(model.first(X))
    torch.testing.assert_close(model(X), model.head(model.block._mollifier.copy.projection(below)))


def test_an_activation_that_is_registered_once_and_called_at_several_places_has_a_level_at_each():
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.act, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.act(self.fc2(self.act(self.fc1(x)))))

    model = mollifier.mollify(Shared()).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(fc1, act)", "forward(fc2, act)"]
    assert len(mollifier.levels(model)) == 2
    assert torch.equal(model(X), model.head(X))


@pytest.mark.parametrize("kind", [Dropping, Tempered, Random, Remembering, Looping])
@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_it_is_alive_in_a_copy_of_the_model(kind, way):
    model = way(mollifier.mollify(kind(), level=0.5))
    plain = kind()
    plain.load_state_dict(mollifier.plain_state_dict(model))
    mollifier.set_level(model, 0)
    for each in (model, plain):
        random.seed(0)
        torch.manual_seed(0)
        each.out = each(X)
    assert torch.equal(model.out, plain.out)
