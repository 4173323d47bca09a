"""Functional activations found by reading the source of a forward."""

import pytest
import torch
import torch.nn.functional
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import gelu

import mollifier
from mollifier.convert._source import function_attributes, functional_calls


class Calls(nn.Module):
    """Activations in every spelling, and things that only look like them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.relu = nn.ReLU()
        self.table, self.parts = [F.relu], [self]

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.layer(x))
        x = torch.tanh(x) + torch.nn.functional.elu(x)
        x = gelu(x) + self.layer(x).sigmoid()
        x = self.relu(x) + F.relu(x)
        x = self.table[0](x) + self.parts[0].relu(x) + torch.exp(x) + F.hardtanh(x, 1.0, 2.0)
        return self.helper(x).view(-1) + len(x)

    def helper(self, x: Tensor) -> Tensor:
        return x.relu_()


class Quiet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def test_all_spellings_are_found_and_each_once():
    # (that hardtanh on these bounds is flat at 0 is seen only where it is traced)
    spelt = "F.relu", "torch.tanh", "torch.nn.functional.elu", "gelu", "self.layer(x).sigmoid", "F.hardtanh", "x.relu_"
    assert functional_calls(Calls) == spelt


def test_nothing_where_there_is_nothing():
    assert functional_calls(Quiet) == ()
    assert functional_calls(nn.TransformerEncoderLayer) == ()


def test_what_is_inherited_is_called_as_well():
    class Heir(Calls):
        def forward(self, x: Tensor) -> Tensor:
            return torch.selu(super().forward(x))

    assert functional_calls(Heir) == ("torch.selu", *functional_calls(Calls))


def test_without_source_there_is_nothing_to_read():
    space = {"nn": nn, "F": F}
    exec("class Lost(nn.Module):\n    def forward(self, x):\n        return F.relu(x)\n", space)
    assert functional_calls(space["Lost"]) == ()


def test_functions_kept_as_attributes():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.also, self.other, self.number = F.relu, torch.tanh, torch.exp, 3
            self.module = nn.ReLU()

    assert function_attributes(Keeps()) == {"act": F.relu, "also": torch.tanh}
    layer = nn.TransformerEncoderLayer(4, 1, 8)
    assert function_attributes(layer) == {"activation": F.relu}


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act, self.head = nn.Linear(3, 3), torch.tanh, nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.layer(x)))


class Depends(Keeps):
    """The same, in a forward that depends on its data."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() < 1e9 else x


@pytest.mark.parametrize("kind", [Keeps, Depends])
def test_a_function_attribute_is_made_noisy_and_put_back(kind):
    model = kind()
    x = torch.randn(5, 3)
    plain = model(x)
    mollifier.mollify(model, c=1e9, blocks=None).eval()
    assert [row.activations for row in mollifier.report(model).blocks][0][0].startswith("tanh")
    torch.testing.assert_close(model(x), model.head(model.layer(x)))  # the tangent
    mollifier.set_level(model, 0)
    assert torch.equal(model(x), plain)
    mollifier.restore(model)
    assert model.act is torch.tanh


def test_a_function_attribute_has_its_copy_where_the_forward_is_known():
    model = mollifier.mollify(Keeps()).eval()
    x = torch.randn(5, 3)
    assert torch.equal(model(x), model.head(x))


def test_what_is_called_in_a_forward_that_cannot_be_traced_is_named_with_what_to_do():
    why = {row.what: row.why for row in mollifier.plan(Calls()).skipped}
    assert why["F.relu"].startswith("its place is not known, since the forward cannot be traced (RuntimeError: 'len' is")
    assert why["F.relu"].endswith("give an example= input, or make it a module")
    assert "x.relu_" in why
