"""Functional activations, mollified while the user's own forward runs."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from tests.helpers import snapshot

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """Activations as functions, methods and modules, with and without a layer before them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        self.act, self.fc3 = nn.Tanh(), nn.Linear(4, 2)
        self.unused = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm(self.fc1(x)), inplace=True)
        h = self.act(self.fc2(h))
        h = F.leaky_relu(h + h.sigmoid(), 0.3)
        return self.fc3(h)


class Branching(nn.Module):
    """A forward that depends on its data."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.body = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.ELU(), nn.Linear(3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(F.relu(self.fc(x)) if x.sum() < 1e9 else x)


class Twice(nn.Module):
    """One activation module, called at two places."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(3, 5), nn.Linear(5, 4), nn.ReLU(inplace=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.two(self.act(self.one(x)))))


class Left(nn.Module):
    """Activations that cannot be mollified: one whose input is read again after it changed it, one with a computed option."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.pool, self.head = nn.Linear(3, 3), nn.AvgPool1d(1), nn.Linear(3, 3)

    def forward(self, x: Tensor, slope: float = 0.1) -> Tensor:
        h = self.fc(x)
        y = F.relu(h, inplace=True)
        return self.head(torch.tanh(self.pool(h + y)) + F.leaky_relu(x, slope) + F.hardtanh(x, 1.0, 2.0))


class Outer(nn.Module):
    """A module that calls functions, inside another one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.net, self.parts = nn.Linear(3, 3), Net(), nn.ModuleDict({"last": nn.Linear(2, 2)})

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.parts["last"](self.net(F.elu(self.first(x)))))


def rows(model: nn.Module) -> list[tuple[str, ...]]:
    return [(row.name, row.units, row.copy, *row.activations) for row in mollifier.report(model).blocks]


def test_every_call_is_found_in_forward_order():
    model = mollifier.mollify(Net())
    assert rows(model) == [
        ("forward(fc1, relu)", "3 → 4", "pad", "relu (4 a)"),
        ("forward(fc2, act)", "4 → 4", "copy", "tanh (4 a)"),
        ("forward(sigmoid)", "", "none", "sigmoid (1 a)"),
        ("forward(leaky_relu(negative_slope=0.3))", "", "none", "leaky_relu(negative_slope=0.3) (1 a)"),
        ("unused[0:1]", "2 → 2", "copy", "relu (2 a)"),
    ]
    assert [row.name for row in mollifier.report(model).skipped] == ["fc3"]
    kinds = [row.kind for row in mollifier.report(model).blocks]
    assert kinds == ["run", "run", "activation", "activation", "run"]


def test_level_1_is_the_copies_and_the_tangents():
    model = mollifier.mollify(Net(), c=1e9).eval()
    h = F.pad(X, (0, 1))
    h = h + 0.25 * h + 0.5
    torch.testing.assert_close(model(X), model.fc3(h))


@pytest.mark.parametrize("kind", [Net, Twice, Left, Outer])
def test_level_0_and_restore_are_the_plain_network(kind):
    plain = kind()
    model = copy.deepcopy(plain)
    before = snapshot(model)
    mollifier.mollify(model)
    assert not torch.equal(model(X), plain(X))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), plain(X))
    assert snapshot(mollifier.restore(model)) == before
    assert torch.equal(model(X), plain(X))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("kind", [Net, Twice, Outer])
def test_a_copy_stands_alone(kind, again):
    model = mollifier.mollify(kind()).eval()
    mollifier.set_level(model, 0.5)
    model(X)
    other = again(model)
    assert torch.equal(other(X), model(X))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not torch.equal(other(X), model(X))  # it computes with its own parameters


def test_a_copy_compiles_as_a_whole_before_it_is_called():
    torch._dynamo.reset()
    model = mollifier.mollify(Net()).eval()
    compiled = torch.compile(copy.deepcopy(model), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), model(X))


def test_modules_that_call_functions_inside_one_another():
    inside = [
        "forward(first, elu(alpha=1.0))",
        "net.forward(fc1, relu)",
        "net.forward(fc2, act)",
        "net.forward(sigmoid)",
        "net.forward(leaky_relu(negative_slope=0.3))",
        "net.unused[0:1]",
    ]
    assert [row.name for row in mollifier.plan(Outer()).blocks] == inside
    with_output = mollifier.plan(Outer(), output=True).blocks
    assert [row.name for row in with_output] == [*inside, "forward(parts.last, sigmoid)"]


def test_what_cannot_be_one_unit_s_function_is_left_as_it_is():
    model = mollifier.mollify(Left())
    assert rows(model) == [("forward(tanh)", "", "none", "tanh (1 a)")]
    why = {row.what: row.why for row in mollifier.report(model).skipped}
    assert "in place" in why["relu"]
    assert "computed" in why["leaky_relu"]
    assert "no tangent" in why["hardtanh"]


def test_a_forward_that_cannot_be_traced_is_named_and_its_children_walked():
    model = mollifier.mollify(Branching())
    assert rows(model) == [("body[0:1]", "3 → 3", "copy", "elu(alpha=1.0) (3 a)")]
    why = {row.what: row.why for row in mollifier.report(model).skipped}
    assert "the forward cannot be traced (TraceError: symbolically traced variables cannot" in why["F.relu"]
    assert why["F.relu"].endswith("give an example= input, or make it a module")
    assert model(X).shape == (6, 3)


def test_with_an_example_a_forward_that_depends_on_its_data_is_mollified_too():
    model = mollifier.mollify(Branching(), example=X).eval()
    assert [row[0] for row in rows(model)] == ["forward(fc, relu)", "body[0:1]"]
    assert torch.equal(model(X), model.body[2](X))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), mollifier.restore(model)(X))


def test_a_call_that_mollify_did_not_see_is_plain_and_says_so():
    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.head, self.other = nn.Linear(3, 3), nn.Linear(3, 1), False

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.sigmoid(self.one(x)) if self.other else torch.tanh(self.one(x)))

    model = mollifier.mollify(Switch()).eval()
    assert torch.equal(model(X), model.head(X))
    model.other = True
    with pytest.warns(RuntimeWarning, match=r"Switch.forward calls sigmoid, but mollify saw no such call there"):
        out = model(X)
    torch.testing.assert_close(out, model.head(torch.sigmoid(model.one(X))))
    model(X)  # and once is enough


def test_without_activations_only_the_copies():
    model = mollifier.mollify(Net(), activations=False).eval()
    assert rows(model)[:2] == [("forward(fc1, relu)", "3 → 4", "pad"), ("forward(fc2, act)", "4 → 4", "copy")]
    h = F.pad(X, (0, 1))
    torch.testing.assert_close(model(X), model.fc3(F.leaky_relu(h + h.sigmoid(), 0.3)))


def test_without_blocks_only_the_noise():
    model = mollifier.mollify(Net(), blocks=None)
    assert {row[2] for row in rows(model)} == {"none"}
    named = mollifier.mollify(Outer(), blocks="net", example=X)
    assert rows(named)[1] == (
        "net",
        "3 → 2",
        "fixed",
        "relu (4 a)",
        "tanh (4 a)",
        "sigmoid (1 a)",
        "leaky_relu(negative_slope=0.3) (1 a)",
        "relu (2 a)",
    )
    assert torch.equal(named.net.eval()(X), named.net._mollifier.copy.projection(X))


def test_a_plain_checkpoint_loads_and_the_other_way_round():
    plain, model = Outer(), mollifier.mollify(Outer())
    model.load_state_dict(plain.state_dict())
    assert all(torch.equal(model.state_dict()[key], value) for key, value in plain.state_dict().items())
    plain.load_state_dict(mollifier.plain_state_dict(model))


class Chosen(nn.Module):
    """Keeps one of its own methods as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head, self.act, self.scale = nn.Linear(3, 3), nn.Linear(3, 1), self.swish, self.half

    def swish(self, x: Tensor) -> Tensor:
        return F.silu(x)

    def half(self, x: Tensor) -> Tensor:
        return x / 2

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.scale(self.fc(x))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("example", [None, X], ids=["traced", "example"])
@pytest.mark.parametrize("again", [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_method_that_is_kept_as_an_attribute_is_intercepted(again, example):
    plain = Chosen()
    want = plain(X)
    model = again(mollifier.mollify(copy.deepcopy(plain), example=example, c=1e9).eval())
    assert rows(model) == [("forward(silu)", "", "none", "silu (1 a)")]
    torch.testing.assert_close(model(X), model.head(model.fc(X) / 4))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), want)
    assert torch.equal(mollifier.restore(model)(X), want)
    assert model.act == model.swish
    assert model.act.__func__ is Chosen.swish
    assert list(vars(model)) == list(vars(plain))
