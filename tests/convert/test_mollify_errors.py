"""Bad input gets one clear error, and changes nothing."""

import math
import warnings
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import mollifier
from tests.helpers import mlp, snapshot


class Layers(nn.Module):
    """Blocks in a list, as transformers keep theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([mlp(4, 4, 4), mlp(4, 4, 4)])
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Widening(nn.Module):
    """A block that nothing can be copied past: it adds a dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Unflatten(-1, (2, 2)))

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x)


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(torch.tanh(self.one(x)))


def with_forward(model: nn.Module, name: str = "") -> nn.Module:
    """Replace the forward of a module as wrappers do, without changing its class."""
    module = model.get_submodule(name)
    module.forward = partial(type(module).forward, module)
    return model


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.block(x))


def shared_block() -> nn.Module:
    block = mlp(4, 4, 4)
    return nn.Sequential(block, block)


REFUSED = [
    ("nothing in it", lambda: nn.Linear(2, 2), {}, r"found nothing to mollify in Linear"),
    (
        "only an output layer",
        lambda: nn.Sequential(nn.Linear(2, 2)),
        {},
        r"found nothing to mollify in Sequential.\n  0 \(Linear\): output layer: no activation follows it",
    ),
    (
        "activations and copies off",
        lambda: mlp(2, 2, 1),
        {"activations": False, "blocks": None},
        r"found nothing to mollify",
    ),
    ("a misspelt pattern", Layers, {"blocks": ["layer.0"]}, r"pattern 'layer.0' matches no module. Close: layers.0"),
    ("a pattern like nothing", Layers, {"blocks": ["q*q"]}, r"the pattern 'q\*q' matches no module\.$"),
    ("a predicate", Layers, {"blocks": lambda name, module: False}, r"the pattern <function .* matches no module"),
    (
        "two wrong patterns in one error",
        Layers,
        {"blocks": ["one", "two", "layers.*"]},
        r"'one' matches no module.; the pattern 'two' matches no module",
    ),
    (
        "nested blocks",
        Layers,
        {"blocks": ["layers.0", "layers.0.1"]},
        r"the block 'layers.0.1' is inside the block 'layers.0': name only one of them",
    ),
    (
        "a container that is never called",
        Layers,
        {"blocks": ["layers"]},
        r"'layers' is a ModuleList, which is never called: name the modules inside it, 'layers.\*'",
    ),
    ("a level", Layers, {"level": 1.5}, r"level 1.5: expected a number in \[0, 1\]"),
    ("no level", Layers, {"level": math.nan}, r"level nan: expected a number in \[0, 1\]"),
    ("a projection", Layers, {"projection": "never"}, r"projection='never': expected .*'auto'.*'always'"),
    ("a noise", Layers, {"eval_noise": "mean"}, r"noise 'mean': expected one of sample, expected, exact"),
    ("bounds of a", Layers, {"a": (1.0, -1.0)}, r"expected a = \(low, high\)"),
    ("c", Layers, {"c": -1.0}, r"expected .* c >= 0"),
    (
        "a shared block",
        shared_block,
        {},
        r"one module is used in several places: '0.0' = '1.0'. Each place needs its own level",
    ),
    (
        "a shared block by name",
        shared_block,
        {"blocks": "0"},
        r"one module is used in several places: '0' = '1'; '0.1' = '1.1'. Each place needs its own level",
    ),
    (
        "only an output activation",
        lambda: nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()),
        {},
        r"\n  0 \(Linear\): output: .*\n  1 \(Sigmoid\): output: .*; output=True mollifies it as well",
    ),
    (
        "all excluded",
        lambda: mlp(2, 2, 1),
        {"exclude": [nn.Sigmoid]},
        r"found nothing .*\n  .*\n  1 \(Sigmoid\): excluded",
    ),
    (
        "a misspelt name to exclude",
        Layers,
        {"exclude": ["layer.0"]},
        r"exclude='layer.0' matches nothing. Close: layers.0",
    ),
    ("a type to exclude", Layers, {"exclude": nn.ReLU}, r"exclude=<class '.*ReLU'> matches nothing"),
    ("a function to exclude", Layers, {"exclude": torch.tanh}, r"exclude=<built-in method tanh .* matches nothing"),
    (
        "two wrong things to exclude in one error",
        Layers,
        {"exclude": ["one", "layers.0", lambda name, module: False]},
        r"exclude='one' matches nothing.; exclude=<function .* matches nothing",
    ),
    (
        "an activation whose forward was replaced",
        lambda: with_forward(mlp(4, 4, 1), "1"),
        {},
        r"the forward of 1 was replaced on the module itself .*: mollify first and replace it afterwards",
    ),
    (
        "a named block whose forward was replaced",
        lambda: with_forward(Layers(), "layers.0"),
        {"blocks": "layers.*"},
        r"the forward of layers.0 was replaced",
    ),
    (
        "a model whose forward was replaced, with functions in it",
        lambda: with_forward(Functional()),
        {},
        r"the forward of \(the model\) was replaced",
    ),
    (
        "shapes without a copy path",
        Widening,
        {"blocks": ["block"], "example": torch.zeros(3, 4)},
        r"block 'block' takes \(3, 4\) to \(3, 2, 2\): there is no copy path between these shapes",
    ),
    (
        "a block that is called twice",
        Twice,
        {"blocks": ["block"], "example": torch.zeros(3, 4)},
        r"block 'block' was called 2 times in one forward: name modules that are called once",
    ),
]


@pytest.mark.parametrize(("make", "options", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_mollify_refuses_it_leaves_alone(make, options, message):
    model = make()
    before = snapshot(model)
    random = torch.get_rng_state()
    with pytest.raises(ValueError, match=message):
        mollifier.mollify(model, **options)
    assert snapshot(model) == before
    assert not mollifier.is_mollified(model)
    assert torch.equal(torch.get_rng_state(), random)


def test_an_example_that_the_model_does_not_take_leaves_no_hooks():
    model = mlp(4, 4, 1)
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        mollifier.mollify(model, example=torch.zeros(3, 5))
    assert snapshot(model) == before


@pytest.mark.parametrize("thing", [None, "model", torch.zeros(2), nn.ReLU, lambda x: x])
def test_what_is_not_a_module_is_named(thing):
    with pytest.raises(TypeError, match=rf"mollify: expected an nn.Module, got {type(thing).__name__}"):
        mollifier.mollify(thing)


def scripted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(model)


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (
            nn.parallel.DistributedDataParallel,
            r"wrapped in DistributedDataParallel: mollify the model first and wrap it",
        ),
        (nn.DataParallel, r"wrapped in DataParallel: mollify the model first and wrap it after"),
        (lambda m: torch.compile(m, backend="eager"), r"OptimizedModule: mollify the model first and compile it after"),
        (scripted, r"RecursiveScriptModule: mollify the Python model, train and restore it, and script it after"),
    ],
    ids=["DDP", "DataParallel", "compiled", "scripted"],
)
def test_a_wrapped_model_is_told_what_to_do_instead(wrap, message):
    model = mlp(4, 4, 1)
    wrapped = wrap(model)
    before = snapshot(model)
    with pytest.raises(ValueError, match=message):
        mollifier.mollify(wrapped)
    assert snapshot(model) == before


def test_converting_twice_is_refused():
    model = mollifier.mollify(mlp(4, 4, 1))
    outer = nn.Sequential(model, nn.Linear(1, 1), nn.ReLU())
    for again in (model, outer):
        before = snapshot(again)
        with pytest.raises(ValueError, match=r"mollified already. Use set_level .*, or restore it first"):
            mollifier.mollify(again)
        assert snapshot(again) == before


def test_mismatched_shapes_without_an_example_fail_at_the_forward():
    model = mollifier.mollify(Widening(), blocks=["block"])
    with pytest.raises(
        ValueError, match=r"the copy path cannot bring .* shape \(3, 4\), the output \(3, 2, 2\).*example="
    ):
        model(torch.zeros(3, 4))


def test_a_block_without_a_tensor_is_named():
    class Source(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Constant()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.block(size=3)

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, size: int) -> Tensor:
            return self.inner(torch.ones(size))

    model = mollifier.mollify(Source(), blocks="block")
    with pytest.raises(TypeError, match=r"the mollified block MollifiedConstant was called without a tensor"):
        model(torch.ones(3))


RESTORE = [
    ("a plain model", lambda: mlp(4, 4, 1), r"restore: Sequential was not mollified by mollify\(\)"),
    (
        "built by hand",
        lambda: mollifier.nn.MollifiedBlock(nn.Linear(2, 2), level=0.0),
        r"restore: MollifiedBlock was not mollified by mollify\(\)",
    ),
    (
        "at a level",
        lambda: mollifier.mollify(mlp(4, 4, 4, 1), level=0.25),
        r"restore: levels are \[0.25, 0.25\].* Anneal to 0 .*, or call restore\(model, force=True\)",
    ),
    (
        "with residuals",
        lambda: mollifier.mollify(mlp(4, 4, 1), level=0.0, residual=True),
        r"restore: the model was mollified with residual=True .* restore\(model, force=True\)",
    ),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in RESTORE], ids=[row[0] for row in RESTORE])
def test_what_restore_refuses_it_leaves_alone(make, message):
    model = make()
    before = snapshot(model)
    with pytest.raises(ValueError, match=message):
        mollifier.restore(model)
    assert snapshot(model) == before


@pytest.mark.parametrize("options", [{}, {"residual": True}])
def test_force_restores_all_the_same(options):
    model = mlp(4, 4, 1)
    before = snapshot(model)
    assert mollifier.restore(mollifier.mollify(model, **options), force=True) is model
    assert snapshot(model) == before


def test_a_container_may_have_a_forward_of_its_own_if_nothing_is_added_to_it():
    model = mollifier.mollify(with_forward(Layers()), example=torch.randn(3, 4), level=0.5)
    assert len(mollifier.levels(model)) == 2
    model(torch.randn(3, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in mollifier.added_parameters(model))
