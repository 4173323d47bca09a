"""Layers, blocks and inputs of kinds that a stranger's model may have: single numbers, whole numbers, sparse inputs, masks, in-place activations."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune

import mollifier
from mollifier.activations import activation
from mollifier.nn import Copy, NoisyActivation

X = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))


def reasons(model: nn.Module) -> dict[str, str]:
    return {row.name: row.why for row in mollifier.report(model).skipped}


def blocks(model: nn.Module) -> list[str]:
    return [row.name for row in mollifier.report(model).blocks]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_activation_of_a_single_number(dtype: torch.dtype) -> None:
    x = torch.tensor(-3.0, dtype=dtype, requires_grad=True)
    noise = NoisyActivation("sigmoid", level=0.5, dtype=dtype)
    out = noise(x)
    out.backward()
    assert out.shape == x.grad.shape == ()
    assert noise.a.grad.shape == (1,)
    wide = NoisyActivation("sigmoid", level=0.5, dtype=dtype)
    wide.load_state_dict(noise.state_dict())
    torch.testing.assert_close(noise.eval()(x), wide.eval()(x.view(1))[0])


def test_a_copy_of_a_single_number() -> None:
    below, above = torch.tensor(1.0), torch.tensor(0.0)
    assert Copy(level=0.25).eval()(below, above) == 0.25


def test_the_operator_itself_refuses_a_single_number() -> None:
    x, level = torch.tensor(1.0), torch.tensor(0.5, dtype=torch.float64)
    if mollifier.ops.info().backend == "native":
        with pytest.raises(RuntimeError, match="without a dimension for units"):
            torch.ops.mollifier.unit(
                x, None, None, level, level, torch.zeros(1, dtype=torch.int64), [], 1.0, False, -1, False, False, False
            )


def test_units_that_the_tensor_has_no_dimension_for() -> None:
    with pytest.raises(ValueError, match=r"shape \(\) has no dimension for units"):
        mollifier.ops.unit(torch.tensor(1.0), None, torch.ones(3), activation("tanh"), level=torch.tensor(0.5))


class Lengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e, self.o = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.o(torch.tanh(self.e(x))) / (F.relu(lengths - 1) + 1)[:, None]


def test_the_relu_of_whole_numbers_is_what_it_was() -> None:
    model = mollifier.mollify(Lengths())
    assert model(X, torch.tensor([0, 1, 2, 3])).isfinite().all()
    assert torch.equal(NoisyActivation("relu", level=0.5)(torch.tensor([-1, 2])), torch.tensor([0, 2]))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_sparse_inputs_are_those_of_the_dense_ones(kind: str, narrow: bool) -> None:
    torch.manual_seed(0)
    x = X.relu()
    model = mollifier.mollify(
        nn.Sequential(nn.Linear(8, 4 if narrow else 12), nn.Tanh(), nn.Linear(4 if narrow else 12, 2)), level=0.5
    )
    sparse = x.to_sparse() if kind == "coo" else x.to_sparse_csr()
    torch.testing.assert_close(model.eval()(sparse), model(x))
    model.train()(sparse).sum().backward()
    assert all(each.grad.isfinite().all() for each in model.parameters())


def test_nested_inputs_say_what_to_do() -> None:
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)))
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)], layout=torch.jagged)
    with pytest.raises(ValueError, match="a nested tensor cannot be mollified: pad it"):
        model(nested)
    mollifier.set_level(model, 0)
    assert model(nested).is_nested


class Image(nn.Module):
    """Takes and returns rows of numbers, with a convolution inside."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x.view(-1, 2, 2, 2))).flatten(1)


@pytest.mark.parametrize("example", [None, X])
def test_a_named_block_whose_units_are_not_on_the_dimension_of_its_layers(example: Tensor | None) -> None:
    model = mollifier.mollify(nn.Sequential(Image(), Image(), nn.Linear(8, 1)), blocks=["0", "1"], example=example)
    model(X).sum().backward()
    torch.testing.assert_close(model.eval()(X), model[2](X))  # level 1


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.tanh(self.f(x)) * mask


class Reversed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.o = nn.ModuleList([Masked(), Masked()]), nn.Linear(8, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(mask=mask, x=x)
        return self.o(x)


@pytest.mark.parametrize("example", [None, (X, torch.ones(4, 8))])
def test_a_block_copies_the_first_argument_of_its_forward_not_of_the_call(
    example: tuple[Tensor, Tensor] | None,
) -> None:
    model = mollifier.mollify(Reversed(), blocks=["layers.*"], example=example).eval()
    torch.testing.assert_close(model(X, torch.ones(4, 8)), model.o(X))


class ByChildren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.children():
            x = torch.tanh(layer(x)) + x
        return x.sum(1)


def test_children_are_the_users_own() -> None:
    model = mollifier.mollify(ByChildren(), output=True)
    assert [name for name, _ in model.named_children()] == ["a", "b", "head"]
    assert len(nn.Sequential(*list(model.children())[:-1])) == 2  # the usual way to take a head off
    model(X).sum().backward()
    assert all(not part.training for part in model.eval().modules())
    assert all(each.dtype == torch.float64 for each in model.double().parameters())
    seen: list[nn.Module] = []
    model.apply(seen.append)
    assert set(model.modules()) == set(seen)
    assert len(list(mollifier.restore(model, force=True).children())) == 3


class Shortcut(nn.Module):
    """The residual unit of MiDaS: its shortcut is relu(x), since the first ReLU works in place."""

    def __init__(self, statement: bool = False) -> None:
        super().__init__()
        self.relu, self.c1, self.c2 = nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Linear(8, 8)
        self.statement = statement

    def forward(self, x: Tensor) -> Tensor:
        if self.statement:
            self.relu(x)
            return self.c2(self.relu(self.c1(x))) + x
        return self.c2(self.relu(self.c1(self.relu(x)))) + x


class InSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x


@pytest.mark.parametrize("unit", [Shortcut(), Shortcut(statement=True), InSequence()])
def test_an_activation_in_place_whose_input_is_read_again_stays_plain(unit: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), copy.deepcopy(unit), nn.Linear(8, 1)).eval()
    wanted = model(X)
    mollifier.mollify(model)
    assert any(why.startswith("it changes its input in place") for why in reasons(model).values())
    assert blocks(model)  # the second ReLU is mollified
    mollifier.set_level(model, 1e-9)
    torch.testing.assert_close(model(X), wanted)


class MaskedLinear(nn.Linear):
    """Of an autoregressive network: unit i sees inputs before i alone."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)
        self.register_buffer("mask", torch.ones(size, size).tril(-1))

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight * self.mask, self.bias)


@pytest.mark.parametrize("level", [1.0, 0.5])
def test_nothing_is_copied_past_a_layer_that_masks_its_weights(level: float) -> None:
    model = nn.Sequential(MaskedLinear(8), nn.Tanh(), MaskedLinear(8), nn.Tanh(), nn.Linear(8, 8))
    mollifier.mollify(model, level=level).eval()
    assert {name for name, why in reasons(model).items() if "masks its weights" in why} == {"0", "2"}
    x = X[:1].clone().requires_grad_()
    hidden = model[:4](x)
    for unit in range(8):
        (by_x,) = torch.autograd.grad(hidden[0, unit], x, retain_graph=True)
        assert (by_x[0, unit:] == 0).all()


def test_a_pruned_layer_of_a_users_class_has_its_copy() -> None:
    class Own(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input)

    model = nn.Sequential(Own(8, 8), nn.Tanh(), nn.Linear(8, 1))
    prune.random_unstructured(model[0], "weight", amount=0.5)
    assert blocks(mollifier.mollify(model)) == ["[0:1]"]


def test_relu6_as_a_function_is_relu6_as_a_module() -> None:
    assert str(activation(F.relu6)) == str(activation(nn.ReLU6()))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.o = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(F.relu6(self.a(x), inplace=True))

    model = mollifier.mollify(Net())
    assert blocks(model) == ["forward(a, hardtanh(min_val=0.0, max_val=6.0))"]
    assert model(X).isfinite().all()
