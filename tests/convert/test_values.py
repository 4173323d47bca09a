"""Activations that are no hidden units by themselves: factors of a product with their own input, and functions of parameters alone."""

import math
import time

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import mollifier

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Two layers with a hidden function; "seen": in a forward that torch.fx cannot look at."""

    def __init__(self, hidden, seen: bool) -> None:
        super().__init__()
        self.one, self.two, self.squeeze, self.head = (nn.Linear(4, width) for width in (4, 4, 4, 1))
        self.raw, self.beta = nn.Parameter(torch.randn(4)), nn.Parameter(torch.ones(4))
        for name, module in {"act": nn.Sigmoid(), "relu6": nn.ReLU6()}.items():
            if name in hidden.__code__.co_names:
                setattr(self, name, module)
        self.hidden, self.seen = hidden, seen

    def forward(self, x: Tensor) -> Tensor:
        if self.seen and x.sum() > 1e9:
            return x
        return self.head(self.hidden(self, torch.relu(self.two(x))))


def gelu(_: Net, x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


PRODUCTS = {
    "swish": lambda net, x: x * torch.sigmoid(x),
    "gelu": gelu,
    "powers": lambda net, x: 0.5 * x * (1.0 + (0.8 * (x + 0.04 * torch.pow(x, 3.0))).tanh()),
    "quick gelu": lambda net, x: torch.sigmoid(1.702 * x) * x,
    "learned": lambda net, x: torch.mul(x, torch.sigmoid(net.beta * x)),
    "in place": lambda net, x: x.sigmoid().mul_(x),
    "mish": lambda net, x: x * torch.tanh(F.softplus(x)),
    "module": lambda net, x: x * net.act(x),
    "hard swish": lambda net, x: x * (net.relu6(x + 3) / 6),
}
GATES = {
    "two": lambda net, x: torch.tanh(net.one(x)) * torch.sigmoid(net.two(x)),
    "halves": lambda net, x: torch.cat(2 * [x.chunk(2, -1)[0] * torch.sigmoid(x.chunk(2, -1)[1])], -1),
    "squeeze": lambda net, x: x * torch.sigmoid(net.squeeze(x)),
    "mean": lambda net, x: x * net.act(x.mean(0)),
    "sum": lambda net, x: torch.sigmoid(x) + x,
}
SEEN = pytest.mark.parametrize("seen", [False, True], ids=["traced", "example"])


def hidden(model: Net) -> tuple[list[str], list[str]]:
    """What is mollified beside the ReLU, and the reasons for the rest."""
    report = mollifier.plan(model, example=X if model.seen else None)
    found = [row.activations[0] for row in report.blocks if not row.activations[0].startswith("relu ")]
    return found, [row.why for row in report.skipped if "layer" not in row.why and "follows" not in row.why]


@SEEN
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_with_its_own_input_is_left_plain(name, seen):
    model = Net(PRODUCTS[name], seen)
    found, why = hidden(model)
    assert found == []
    assert any(reason.startswith("it is part of a product with its own input") for reason in why)
    want = model.eval()(X)
    mollifier.mollify(model, example=X if seen else None, blocks=None, c=1e9)
    torch.testing.assert_close(model(X), model.head(model.hidden(model, model.two(X))))  # only the ReLU is its tangent
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), want)


@SEEN
@pytest.mark.parametrize("name", GATES)
def test_gates_of_other_values_stay_activations(name, seen):
    found, why = hidden(Net(GATES[name], seen))
    assert found
    assert not any("product" in reason for reason in why)


@SEEN
def test_a_function_of_parameters_alone_is_left_plain(seen):
    for of in (lambda net, x: x * F.softplus(net.raw), lambda net, x: x * net.act(2 * net.raw.exp())):
        found, why = hidden(Net(of, seen))
        assert found == []
        assert "it is computed from parameters or constants alone, not from the data: it is no hidden unit" in why
    found, _ = hidden(Net(lambda net, x: torch.sigmoid(x + net.raw), seen))
    assert found == ["sigmoid (1 a)"]


class Scaled(Net):
    """Calls an activation on a buffer before those on the data."""

    def __init__(self, seen: bool) -> None:
        super().__init__(lambda net, x: torch.sigmoid(net.one(x) + net.scale.sigmoid()), seen)
        self.register_buffer("scale", torch.randn(4))


@SEEN
@pytest.mark.filterwarnings("error")
def test_an_activation_of_a_buffer_is_left_plain_and_the_next_one_found(seen):
    model = Scaled(seen)
    found, why = hidden(model)
    assert found == ["sigmoid (1 a)"]
    assert "it is computed from parameters or constants alone, not from the data: it is no hidden unit" in why
    mollifier.mollify(model, example=X if seen else None, c=1e9, blocks=None).eval()
    shifted = model.one(model.two(X)) + torch.sigmoid(model.scale)
    torch.testing.assert_close(model(X), model.head(0.25 * shifted + 0.5))


@SEEN
def test_it_can_still_be_excluded(seen):
    model = Net(lambda net, x: x * F.softplus(net.raw), seen)
    left = mollifier.plan(model, exclude=F.softplus, example=X if seen else None).skipped
    assert "excluded" in [row.why for row in left if row.what.startswith("softplus")]


def test_a_parametrized_parameter_is_one():
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.weight = nn.Linear(4, 4), nn.Linear(4, 1), nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.two(torch.relu(self.one(x)) @ F.softplus(self.weight))

    model = Weighted()
    parametrizations.weight_norm(model)
    for example in (None, X):
        assert [row.name for row in mollifier.plan(model, example=example).blocks] == ["forward(one, relu)"]


@SEEN
def test_a_module_that_is_a_gate_in_one_place_is_plain_only_there(seen):
    def twice(net: Net, x: Tensor) -> Tensor:
        x = net.act(net.one(x)) + x
        return x * net.act(x)

    model = Net(twice, seen)
    report = mollifier.plan(model, example=X if seen else None)
    assert [row.name for row in report.blocks] == ["forward(two, relu)", "forward(one, act)"]


@SEEN
def test_a_long_loop_is_looked_at_quickly(seen):
    def loop(net: Net, x: Tensor) -> Tensor:
        state = gate = torch.sigmoid(net.one(x))
        for _ in range(500):
            state = gate * state + torch.tanh(state) + state
        return state

    began = time.process_time()
    hidden(Net(loop, seen))
    assert time.process_time() - began < 20
