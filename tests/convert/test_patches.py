"""Modules whose class was replaced: they behave like the plain ones."""

import copy
from types import MethodType

import pytest
import torch
from torch import Tensor, nn

import mollifier
from mollifier.convert._classes import KEY, Patch
from tests.helpers import mlp


class Stack(nn.Module):
    """Goes through a ModuleList of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Layers([mlp(3, 3, 3), mlp(3, 3, 3), mlp(3, 3, 3)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Layers(nn.ModuleList):
    """A list that can be called, and so can be a block."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


def test_a_mollified_sequential_has_the_items_that_it_had():
    model = mollifier.mollify(mlp(3, 4, 5, 1))
    assert len(model) == 5
    assert [type(module).__name__ for module in model][::2] == ["MollifiedLinear", "MollifiedLinear", "Linear"]
    assert model[-1] is model[4] is list(model)[4]
    assert isinstance(model[0], nn.Linear)
    part = model[1:3]
    assert type(part) is nn.Sequential
    assert len(part) == 2
    assert part[1] is model[2]
    assert KEY not in part._modules


def test_a_mollified_list_has_the_items_that_it_had():
    model = mollifier.mollify(Stack(), blocks="layers")
    assert len(model.layers) == 3
    assert len(list(model.layers)) == 3
    assert type(model.layers[:2]) is Layers
    assert len(model.layers[:2]) == 2
    assert model.layers[-1] is list(model.layers)[2]
    x = torch.randn(4, 3)
    assert torch.equal(model.eval()(x), x)
    assert torch.equal(model.layers[:2](x), model.layers[1](model.layers[0](x)))


def test_it_is_still_an_instance_of_its_class():
    plain = mlp(3, 4, 1)
    model = mollifier.mollify(copy.deepcopy(plain))
    assert isinstance(model, nn.Sequential)
    assert isinstance(model[1], nn.Sigmoid)
    assert type(model[1]).__name__ == "MollifiedSigmoid"
    assert type(model[0]).__name__ == "MollifiedLinear"
    assert type(model[2]) is nn.Linear
    names = [name for name, _ in model.named_parameters() if KEY not in name]
    assert names == [name for name, _ in plain.named_parameters()]


def test_train_and_eval_reach_what_was_added():
    model = mollifier.mollify(mlp(3, 4, 1))
    model.eval()
    assert not any(module.training for module in model.modules())
    assert torch.equal(model(torch.ones(2, 3)), model(torch.ones(2, 3)))
    model.train()
    assert all(module.training for module in model.modules())


def test_the_fused_transformer_kernel_is_used_at_level_0_only():
    """It knows nothing of us: with it, eval at level 1 would be the plain layer."""
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True).eval()
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
    model = mollifier.mollify(copy.deepcopy(plain), blocks="layers.*").eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad():
        assert torch.equal(model(x, src_key_padding_mask=padding), x)
        assert not model.use_nested_tensor
        assert model.layers[0].activation_relu_or_gelu == 0
        mollifier.set_level(model, 0)
        assert model.use_nested_tensor == plain.use_nested_tensor
        assert model.layers[0].activation_relu_or_gelu == 1
        assert torch.equal(model(x), plain.eval()(x))


class Named(nn.Module):
    """Calls an activation as a function, in a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 1)

    def encode(self, x: Tensor) -> Tensor:
        return torch.tanh(self.one(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.encode(x))


KEPT = [
    ("a run's layer, norm and activation", lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1)), {}),
    ("a named block", lambda: nn.Sequential(mlp(4, 4, 4), nn.Linear(4, 1)), {"blocks": "0"}),
    ("a module with functions", Named, {}),
    ("a recurrent layer", lambda: nn.LSTM(4, 4), {}),
    ("a cell", lambda: nn.GRUCell(4, 4), {}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "options"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT])
def test_a_method_that_was_kept_is_the_plain_one_after_restore(make, options):
    x = torch.randn(3, 4)
    model = make()
    plain = copy.deepcopy(model)
    mollifier.mollify(model, **options)
    kept = {name: module.forward for name, module in model.named_modules() if isinstance(module, Patch)}
    assert kept
    encode = getattr(model, "encode", None)
    mollifier.restore(model, force=True)
    seen = []  # what each module of the plain network is called with
    hooks = [
        module.register_forward_hook(lambda _, args, out, name=name: seen.append((name, args, out)))
        for name, module in plain.named_modules()
        if name in kept
    ]
    plain(x)
    assert len(hooks) == len(kept) == len(seen)
    for name, args, out in seen:
        torch.testing.assert_close(kept[name](*args), out, rtol=0, atol=0)
    if encode is not None:
        assert torch.equal(encode(x), plain.encode(x))


def test_mixed_precision_that_was_wrapped_around_a_mollified_forward_outlives_restore():
    model = mollifier.mollify(Named(), level=0.0)
    model.forward = MethodType(torch.autocast("cpu", torch.bfloat16)(model.forward.__func__), model)
    assert mollifier.restore(model)(torch.randn(3, 4)).dtype == torch.bfloat16
