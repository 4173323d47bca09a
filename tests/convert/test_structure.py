"""What a module is judged to be: a class of the user or of torch, also where torch has derived a class from it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import mollifier
from tests.helpers import snapshot

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))
        self.one, self.two, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))) @ self.w)


class Untraceable(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() < 1e9 else x


class Bounded(nn.Module):
    """Weights in (-1, 1)."""

    def forward(self, weight: Tensor) -> Tensor:
        return torch.tanh(weight)


BOTH = ["forward(one, tanh)", "forward(two, tanh)"]


@pytest.mark.parametrize(("kind", "example"), [(Net, None), (Net, X), (Untraceable, X)])
@pytest.mark.parametrize("part", [nn.Softplus, Bounded])
def test_a_parametrized_module_is_still_the_users_and_its_weights_stay_as_they_are(kind, example, part):
    model = kind()
    parametrize.register_parametrization(model, "w", part())
    before, weight, want = snapshot(model), model.w, model(X)
    mollifier.mollify(model, example=example).eval()
    assert [row.name for row in mollifier.report(model).blocks] == BOTH
    assert torch.equal(model.w, weight)
    torch.testing.assert_close(model(X), model.head(X @ weight))  # level 1 copies past both layers
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), want)
    assert snapshot(mollifier.restore(model).train()) == before


def test_the_forward_of_a_class_that_torch_derives_is_looked_at_with_the_true_reasons():
    model = Net()
    parametrizations.orthogonal(model, "w")
    assert [row.name for row in mollifier.plan(model).blocks] == BOTH
    model = Untraceable()
    parametrizations.orthogonal(model, "w")
    with pytest.raises(ValueError, match=r"\(torch.tanh\): its place is not known, since the forward cannot be traced"):
        mollifier.plan(model)


@pytest.mark.parametrize("kind", [Net, Untraceable])
def test_an_activation_that_computes_a_weight_is_named(kind):
    model = nn.Sequential(kind(), nn.ReLU(), nn.Linear(1, 1))
    parametrize.register_parametrization(model[0], "w", nn.Softplus())
    left = {row.name: row.why for row in mollifier.plan(model).skipped}
    assert left["0.parametrizations.w.0"] == "it computes a weight, not a unit"


def test_a_parametrized_layer_is_the_layer_that_it_was():
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x @ self.weight)

    for plain in (Dense(), nn.Embedding(4, 4)):
        model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), plain, nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
        rows = [(row.name, row.why) for row in mollifier.plan(model).skipped]
        parametrizations.weight_norm(plain)
        assert [(row.name, row.why) for row in mollifier.plan(model).skipped] == rows
