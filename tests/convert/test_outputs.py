"""What the model returns stays plain, whatever a forward does with it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from mollifier.convert._reasons import OUTPUT
from tests.helpers import mlp

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


class View(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(-1, 1, 2, 2)


TAILS = [
    nn.Sequential(View(), nn.PixelShuffle(1), nn.Upsample(scale_factor=2)),
    nn.Softmax(-1),
    nn.AvgPool1d(2),
    nn.ConstantPad1d(1, 0.5),
]


@pytest.mark.parametrize("example", [None, X], ids=["structure", "example"])
@pytest.mark.parametrize("tail", TAILS, ids=["view", "softmax", "pool", "pad"])
def test_modules_without_parameters_may_come_after_the_output(tail, example):
    for model in (nn.Sequential(mlp(8, 8, 4), nn.Sigmoid(), *tail.children(), tail), Tailed(tail)):
        tail.eval()
        report = mollifier.plan(model, example=example)
        assert [row.name for row in report.blocks] in (["0[0:1]"], ["body[0:1]"])
        assert {row.why for row in report.skipped if row.what == "Sigmoid"} == {OUTPUT}


class Tailed(nn.Module):
    """What it computes goes through a part without parameters; it can also be told not to be traced."""

    def __init__(self, tail, untraceable: bool = False) -> None:
        super().__init__()
        self.body, self.act, self.tail, self.untraceable = mlp(8, 8, 4), nn.Sigmoid(), tail, untraceable

    def forward(self, x: Tensor):
        if self.untraceable and len(x) > 1000:
            return x
        return self.tail(self.act(self.body(x)))


ENDS = {
    "max": lambda p: p.max(1)[0],
    "masked": lambda p: p.masked_fill(p > 0.9, 0.0) * (p > 0.1),
    "chunk": lambda p: p.chunk(2, 1)[1],
    "transposed": lambda p: p.T.t().cpu(),
    "interpolated": lambda p: F.interpolate(p[:, None], scale_factor=2),
    "where": lambda p: torch.where(p > 0.5, p, p**2),
    "written": lambda p: torch.zeros(16, 8).index_copy(1, torch.arange(4), p),
    "loss": lambda p: {"loss": F.binary_cross_entropy(p, torch.ones(16, 4)) + p.abs().mean()},
    "clamped": lambda p: F.hardtanh(nn.Hardtanh(0.1, 0.9)(p), 0.2, 0.8),
    "attention": lambda p: torch.softmax(p @ p.T, -1) @ p,
}


@pytest.mark.parametrize("untraceable", [False, True], ids=["traced", "example"])
@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
def test_whatever_is_computed_from_the_output_without_a_layer_leaves_it_the_output(end, untraceable):
    report = mollifier.plan(Tailed(end, untraceable), example=X if untraceable else None)
    assert [row.name for row in report.blocks] == ["body[0:1]"]
    assert {row.name: row.why for row in report.skipped}["act"] == OUTPUT


def test_results_that_are_written_into_a_tensor_are_the_output():
    class Written(Tailed):
        def forward(self, x: Tensor) -> Tensor:
            out = torch.empty(len(x), 5)
            out[:, 0] = 1.0
            out[:, 1:] = self.act(self.body(x))
            return out

    report = mollifier.plan(Written(None), example=X)
    assert [row.name for row in report.blocks] == ["body[0:1]"]
    assert {row.name: row.why for row in report.skipped}["act"] == OUTPUT


class Ends(nn.Module):
    """Two activations that meet in several ways at the end; "seen": in a forward that torch.fx cannot look at."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.one, self.two, self.how = nn.Linear(8, 8), nn.Linear(8, 8), how
        self.drop = nn.Dropout(0.1)
        self.weight = nn.Parameter(torch.ones(8, 8))
        self.register_buffer("mask", torch.ones(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        if "seen" in self.how and len(x) > 1000:
            return x
        one = torch.tanh(self.one(x))
        if "residual" in self.how:
            return one + x
        if "gate" in self.how:
            return torch.sigmoid(self.two(x)) * one
        if "sum" in self.how:
            return F.softplus(-self.two(x)).mean(1, True) + one.pow(2)
        if "chain" in self.how:
            x = one + x
            return (x + F.dropout(torch.sigmoid(self.two(x)), 0.1, self.training)) * 0.5
        if "both" in self.how:
            return one + F.softplus(one) + torch.sigmoid(self.two(x))
        if "product" in self.how:
            return one * F.linear(one, self.weight) + 1
        if "skip" in self.how:
            return self.two(one) + one
        if "three" in self.how:
            return x + (one - self.drop(self.two(x))) + 1
        if "tied" in self.how:
            return (one @ self.weight.t()) * 2
        if "masked" in self.how:
            return F.linear(one, self.weight * self.mask)
        if "fixed" in self.how:
            return F.linear(one, self.mask)
        return F.linear(one, self.weight) + 1


@pytest.mark.parametrize("seen", ["", "seen "])
@pytest.mark.parametrize(
    ("how", "blocks"),
    [
        ("residual", []),
        ("gate", []),
        ("sum", []),
        ("chain", ["forward(one, tanh)"]),
        ("both", []),
        ("product", []),
        ("skip", ["forward(one, tanh)"]),
        ("three", ["forward(one, tanh)"]),
        ("tied", ["forward(one, tanh)"]),
        ("masked", ["forward(one, tanh)"]),
        ("fixed", []),
        ("linear", ["forward(one, tanh)"]),
    ],
)
def test_an_activation_is_hidden_only_by_a_layer(how, blocks, seen):
    """By a product with a weight as well, and by a sum with a layer, which takes all values anyway."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Ends(seen + how))
    found = [row.name for row in mollifier.plan(model, example=X if seen else None).blocks]
    assert found == ["[0:1]", *(f"2.{name}" for name in blocks)]
    model = nn.Sequential(Ends(seen + how), nn.Linear(8, 8))
    assert "0.forward(one, tanh)" in [row.name for row in mollifier.plan(model, example=X if seen else None).blocks]


def test_what_is_the_output_in_eval_only_is_the_output():
    class Feature(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.neck, self.head = mlp(8, 8, 4), nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            features = torch.sigmoid(self.neck(self.body(x)))
            return self.head(features) if self.training else features

    for mode in (True, False):
        assert [row.name for row in mollifier.plan(Feature().train(mode)).blocks] == ["body[0:1]"]


def test_a_layer_is_called_an_output_layer_only_if_no_activation_follows_it():
    class Celu(nn.Module):
        def __init__(self, last) -> None:
            super().__init__()
            self.body, self.head, self.last = mlp(8, 8, 4), nn.Linear(4, 4), last

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.head(self.body(x)))

    def why(last) -> str:
        return {row.name: row.why for row in mollifier.plan(Celu(last)).skipped}["head"]

    assert why(torch.celu).startswith("celu follows it")
    assert why(nn.CELU()).startswith("last (CELU) follows it")
    assert why(lambda x: x.logsumexp(1)).startswith("output layer: ")


@pytest.mark.parametrize("untraceable", [False, True], ids=["traced", "example"])
def test_a_part_that_returns_several_tensors_returns_the_output(untraceable):
    class Both(Tailed):
        def forward(self, x: Tensor):
            return super().forward(x), x

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.both, self.head = mlp(8, 8, 8), Both(nn.Identity(), untraceable), nn.Linear(4, 2)

        def forward(self, x: Tensor, inner: bool = False):
            y, x = self.both(self.body(x))
            return (y * 2)[0]

    report = mollifier.plan(Outer(), example=X if untraceable else None)
    assert [row.name for row in report.blocks] == ["body[0:1]", "both.body[0:1]"]
    assert {row.name: row.why for row in report.skipped}["both.act"] == OUTPUT
    hidden = mollifier.plan(nn.Sequential(Outer(), nn.Linear(4, 4)), example=X if untraceable else None)
    assert any(row.name.startswith("0.both.") and "act" in row.name for row in hidden.blocks)


def test_long_sums_are_walked_once():
    report = mollifier.plan(Tailed(lambda p: [p := p + p for _ in range(100)][-1]))
    assert [row.name for row in report.blocks] == ["body[0:1]"]


def bounded() -> nn.Sequential:
    return nn.Sequential(mlp(8, 8, 4), nn.Sigmoid())


class ActorCritic(nn.Module):
    """What is called from outside: no forward, or one that calls nothing, or not everything."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.actor, self.critic, self.last, self.how = bounded(), bounded(), torch.sigmoid, how

    def forward(self, x: Tensor) -> Tensor | None:
        if self.how == "not implemented":
            raise NotImplementedError
        if "untraceable" in self.how and len(x) > 1000:
            return x
        return self.critic(x) if "critic" in self.how else None

    def act(self, x: Tensor) -> Tensor:
        return self.last(self.actor(x))


@pytest.mark.parametrize("how", ["not implemented", "nothing", "critic", "critic, untraceable", "critic, example"])
def test_what_a_forward_does_not_call_may_be_an_output(how):
    report = mollifier.report(mollifier.mollify(ActorCritic(how), example=X if "example" in how else None))
    assert {row.name for row in report.blocks} - {"(the model)"} == {"actor.0[0:1]", "critic.0[0:1]"}
    assert [row.why for row in report.skipped if row.what == "Sigmoid"] == [OUTPUT] * 2
    asked = [row.name for row in mollifier.plan(ActorCritic(how), output=True).blocks]
    assert {"actor.1", "critic.1"} <= set(asked)


@pytest.mark.parametrize("kind", [nn.ModuleDict, nn.ModuleList])
def test_a_container_has_an_output_for_each_of_its_modules(kind):
    parts = [bounded(), bounded()]
    inner = nn.ModuleDict({"one": parts[0], "two": nn.ModuleList(parts[1:])})
    model = inner if kind is nn.ModuleDict else nn.ModuleList(inner.values())
    report = mollifier.report(mollifier.mollify(model))
    assert [row.kind for row in report.blocks] == ["run", "run"]
    assert [row.why for row in report.skipped if row.what == "Sigmoid"] == [OUTPUT] * 2
    assert ((parts[1](9 * X) >= 0) & (parts[1](9 * X) <= 1)).all()


def test_what_a_part_of_a_model_does_not_call_is_no_output_unless_the_model_returns_what_the_part_returns():
    blocks = mollifier.plan(nn.Sequential(ActorCritic("critic"), nn.Linear(4, 1))).blocks
    assert {"0.actor.1", "0.critic.1"} <= {row.name for row in blocks}
    blocks = mollifier.plan(nn.Sequential(nn.Linear(8, 8), ActorCritic("critic"))).blocks
    assert not {"1.actor.1", "1.critic.1"} & {row.name for row in blocks}
