"""Register functions, modules and blocks of your own."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.activations import activation

pytestmark = pytest.mark.usefixtures("clean_tables")


def squareplus(x: Tensor) -> Tensor:
    return (x + torch.sqrt(x * x + 4)) / 2


class Squareplus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return squareplus(x)


class Kept(nn.Module):
    """Calls a function of the user's in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return squareplus(self.layer(x))


class Odd(nn.Module):
    """Two layers and the sum: a residual block by no name that we know."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.two(self.act(self.one(x))))


def test_a_function_with_its_tangent_by_autograd(monkeypatch):
    registered = mollifier.register(squareplus)
    x = torch.randn(5, 3)
    assert torch.equal(registered(x), squareplus(x))
    assert registered.__name__ == "squareplus"
    act = activation("squareplus")
    assert (act.slope, act.offset) == (0.5, 1.0)
    assert activation(registered) == activation(squareplus) == act
    monkeypatch.setitem(globals(), "squareplus", registered)  # as the decorator does
    model = mollifier.mollify(Kept(), output=True)
    assert mollifier.report(model).blocks[0].activations == ["squareplus (3 a)"]
    assert torch.equal(model.eval()(x), x)
    mollifier.set_level(model, 0)
    assert torch.equal(model(x), registered(model.layer(x)))


def test_a_function_that_was_registered_and_is_called_by_its_old_name_is_named():
    """Nobody sees these calls, so that nothing must be promised of them."""
    mollifier.register(squareplus)
    model = nn.Sequential(Kept(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    report = mollifier.plan(model)
    assert [row.name for row in report.blocks] == ["[1:2]"]
    (why,) = [row.why for row in report.skipped if row.what == "squareplus"]
    assert why == "its calls cannot be seen: call what mollifier.register returned, or use it as a decorator"


def test_a_tangent_of_ones_own():
    mollifier.register(torch.abs, name="abs", tangent=(1.0, 0.0))
    assert activation(torch.abs).u(torch.tensor(-2.0)).item() == -2.0


def test_a_module_type_with_its_function():
    assert mollifier.register(Squareplus, squareplus) is squareplus
    model = mollifier.mollify(nn.Sequential(nn.Linear(3, 4), Squareplus(), nn.Linear(4, 1)))
    assert mollifier.report(model).blocks[0].activations == ["Squareplus (4 a)"]
    x = torch.randn(5, 3)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again.eval()(x), model.eval()(x))
    mollifier.set_level(model, 0)
    assert torch.equal(model(x), mollifier.restore(model)(x))


def test_as_a_decorator():
    @mollifier.register
    def twice_tanh(x: Tensor) -> Tensor:
        return 2 * torch.tanh(x)

    @mollifier.register(Squareplus, name="plus")
    def plus(x: Tensor) -> Tensor:
        return squareplus(x)

    assert twice_tanh(torch.zeros(1)).item() == 0
    assert activation("twice_tanh").slope == 2.0
    assert activation(Squareplus()).name == "plus"
    assert plus(torch.zeros(1)).item() == 1.0


def test_a_class_of_residual_blocks():
    def plan() -> list[tuple[str, str]]:
        return [(row.name, row.kind) for row in mollifier.plan(nn.Sequential(Odd(), nn.Linear(4, 1))).blocks]

    assert plan() == [("0.forward(one, act)", "run"), ("0.act", "activation")]
    assert mollifier.register(Odd, kind="block") is Odd
    assert plan() == [("0", "residual")]
    model = mollifier.mollify(nn.Sequential(Odd(), nn.Linear(4, 1))).eval()
    x = torch.randn(5, 4)
    assert torch.equal(model(x), model[1](x))


def running_max(x: Tensor) -> Tensor:
    return x.cummax(-1).values


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.exp,), {"name": "tanh"}, r"the name 'tanh' is taken; give another with name="),
        ((Squareplus, torch.exp), {"name": "relu"}, r"the name 'relu' is taken"),
        ((running_max,), {}, r"running_max is not elementwise: each output must depend only on its own input"),
        ((lambda x: x.softmax(-1),), {"name": "softmax"}, r"softmax is not elementwise"),
        ((lambda x: x.cumsum(0),), {"name": "cumsum"}, r"cumsum is not elementwise"),
        ((torch.sum,), {}, r"sum is not elementwise"),
        ((lambda x: 3,), {"name": "three"}, r"three is not elementwise"),
        ((torch.square,), {}, r"the tangent of square at 0 is 0 x \+ 0, which transmits no signal; give tangent="),
        ((torch.abs,), {"tangent": (0.0, 1.0)}, r"the tangent of abs at 0 is 0 x \+ 1"),
        ((lambda x: x + x.abs().sqrt(),), {"name": "steep"}, r"the tangent of steep at 0 is nan"),
        ((torch.exp,), {"kind": "layer"}, r"kind='layer': expected 'activation' or 'block'"),
        ((torch.exp,), {"kind": "block"}, r"kind='block' expects a subclass of nn.Module, got <built-in method exp"),
    ],
)
def test_what_cannot_be_registered_is_refused_and_leaves_no_trace(arguments, options, message):
    before = mollifier.activations.names()
    with pytest.raises(ValueError, match=message):
        mollifier.register(*arguments, **options)
    assert mollifier.activations.names() == before
    assert mollifier.activations.of_module(Squareplus()) is None
    assert mollifier.activations.of_function(arguments[0]) is None


EVERY = (
    "Sigmoid Hardsigmoid Tanh Hardtanh ReLU ReLU6 LeakyReLU ELU SELU SiLU GELU Softplus Softsign Mish".split()  # noqa: SIM905
)


def test_importing_mollifier_is_all_that_the_table_needs():
    code = f"""
import mollifier
from torch import nn
for name in {EVERY}:
    model = mollifier.mollify(nn.Sequential(nn.Linear(2, 2), getattr(nn, name)(), nn.Linear(2, 1)))
    assert mollifier.report(model).blocks[0].kind == "run", name
mollifier.mollify(nn.Sequential(nn.Linear(2, 2), mollifier.nn.HardSigmoid(), nn.Linear(2, 1)))
print("all known")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "all known\n", done.stderr
