"""Models as strangers write them, and what they do to a model after it was mollified."""

import copy
import dataclasses
import pickle
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.utils import parametrizations, parametrize

import mollifier
from tests.helpers import mlp, snapshot

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))


def classifier() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1), nn.Sigmoid())


@pytest.mark.parametrize("level", [1.0, 0.5])
def test_an_output_in_0_to_1_stays_there(level):
    model = mollifier.mollify(classifier(), level=level)
    out = model(X)
    assert ((out > 0) & (out < 1)).all()
    torch.testing.assert_close(nn.BCELoss()(out, torch.ones(16, 1)), -out.log().mean())
    assert [row.name for row in mollifier.report(model).blocks] == ["[0:1]"]
    left = {row.name: row.why for row in mollifier.report(model).skipped}
    assert set(left) == {"2", "3"}
    assert all(why.startswith("output: ") for why in left.values())


def test_the_output_can_be_asked_for():
    model = mollifier.mollify(classifier(), output=True, projection="learned").eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["[0:1]", "[2:3]"]
    assert model(X).abs().max() > 1


class Pair(NamedTuple):
    probability: Tensor
    logits: Tensor


@dataclasses.dataclass
class Prediction:
    probability: Tensor
    logits: Tensor


class Ending(nn.Module):
    """An output activation behind shapes, dropout, tuples, dicts and dataclasses."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.drop, self.how = mlp(8, 4, 4), nn.Dropout(0.1), how
        if how in ("view", "dropout", "tuple"):
            self.act = nn.Sigmoid()

    def forward(self, x: Tensor):
        x = self.body(x)
        if self.how == "view":
            return self.act(x).view(-1)
        if self.how == "dropout":
            return self.drop(self.act(x))
        if self.how == "tuple":
            return self.act(x), x
        if self.how == "dict":
            return {"probability": torch.sigmoid(x), "logits": x}
        if self.how == "named tuple":
            return Pair(torch.sigmoid(x), x)
        if self.how == "dataclass":
            return Prediction(torch.sigmoid(x), logits=x)
        return F.dropout(torch.flatten(torch.sigmoid(x), 1), 0.1, self.training).squeeze(-1)


@pytest.mark.parametrize("example", [None, X], ids=["traced", "example"])
@pytest.mark.parametrize("how", ["view", "dropout", "tuple", "named tuple", "dict", "dataclass", "function"])
def test_the_output_is_recognised_in_whatever_shape(how, example):
    model = mollifier.mollify(Ending(how), example=example).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["body[0:1]"]
    out = model(X)
    out = out["probability"] if how == "dict" else getattr(out, "probability", out[0] if how == "tuple" else out)
    assert ((out > 0) & (out < 1)).all()


class Policy(nn.Module):
    """A mean and a deviation on scales of their own, as policies have them; "seen": in a forward that torch.fx cannot look at."""

    scale: Tensor

    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.mean, self.deviation = mlp(8, 4, 4), nn.Linear(4, 2), nn.Linear(4, 2)
        self.register_buffer("scale", torch.tensor([2.0, 3.0]))
        self.how, self.most = how, 5.0

    def forward(self, x: Tensor):
        if "seen" in self.how and x.sum() > 1e9:
            return x
        hidden = torch.relu(self.body(x))
        if "joined" in self.how:
            return None, torch.cat([torch.sigmoid(self.mean(hidden)), F.softplus(self.deviation(hidden))], -1)
        if "mean" in self.how:
            return None, torch.sigmoid(self.mean(hidden)).mean(1)
        if "index" in self.how:
            return None, torch.sigmoid(self.mean(hidden))[:, 0]
        mean = self.most * torch.tanh(self.mean(hidden)) * self.scale - 1
        deviation = F.softplus(self.deviation(hidden)) + 1e-3
        if "clamp" in self.how:
            deviation = deviation.clamp(max=10.0).div_(2)
        if "distribution" in self.how:
            return torch.distributions.Normal(mean, deviation)
        return mean, deviation


HOW = ("scaled", "clamp", "joined", "mean", "index")


@pytest.mark.parametrize("how", [*HOW, *(f"seen {how}" for how in HOW), "seen distribution"])
def test_an_output_on_another_scale_is_the_output_still(how):
    model = mollifier.mollify(Policy(how), example=X if "seen" in how else None)
    first, second = (row.name for row in mollifier.report(model).blocks)
    assert first == "body[0:1]"
    assert second.endswith("relu)")
    left = {
        row.name: row.why for row in mollifier.report(model).skipped if "tanh" in row.what or "softplus" in row.what
    }
    assert all(why.startswith("output: ") for why in left.values())
    out = model(X)
    deviation = out.scale if "distribution" in how else out[1]
    assert (deviation > 0).all()


class Options(nn.Module):
    """Forwards with arguments that torch.fx passes to a copy of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 4), nn.Linear(4, 2)

    def encode(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return torch.tanh(self.one(x)) * scale


class Keywords(Options):
    def forward(self, x: Tensor, **options: float) -> Tensor:
        return self.two(torch.sigmoid(self.encode(x)))


class KeywordOnly(Options):
    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return self.two(torch.sigmoid(self.encode(x, scale=scale)))


class Positional(Options):
    def forward(self, *inputs: Tensor) -> Tensor:
        return self.two(torch.sigmoid(self.encode(inputs[0])))


class Generating(Options):
    def layers(self, x: Tensor) -> Iterator[Tensor]:
        for layer in (self.one, self.two):
            x = torch.tanh(layer(x))
            yield x

    def forward(self, x: Tensor) -> Tensor:
        return list(self.layers(x))[-1] + 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("example", [None, X], ids=["traced", "example"])
def test_activations_in_a_generator_belong_to_the_forward_that_runs_through_it(example):
    model = mollifier.mollify(Generating(), output=True, example=example).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(one, tanh)", "forward(two, tanh)"]
    torch.testing.assert_close(model(X) + model(-X), 2 * model(torch.zeros_like(X)))


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


ELSEWHERE = Swish()


class Borrowing(Options):
    """Calls an activation module that is not part of it, of the same class as one that is."""

    def __init__(self) -> None:
        super().__init__()
        self.act = Swish()

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:  # torch.fx cannot trace this
            return x
        return self.two(torch.tanh(ELSEWHERE(self.act(self.one(x)))))


@pytest.mark.filterwarnings("error")
def test_a_module_of_a_class_of_the_model_may_be_called_that_is_no_part_of_it():
    model = mollifier.mollify(Borrowing(), example=X)
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(silu)", "forward(tanh)"]
    model(X)  # finds both calls where the example had them


@pytest.mark.parametrize("kind", [Keywords, KeywordOnly, Positional])
def test_a_forward_may_have_any_arguments(kind):
    model = mollifier.mollify(kind())
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(one, tanh)", "forward(sigmoid)"]
    model.eval()  # at level 1 it is affine
    torch.testing.assert_close(model(X) + model(-X), 2 * model(torch.zeros_like(X)))


def test_a_sum_with_something_else_is_not_the_output_of_its_activation():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.one(x)) + self.two(x)

    model = mollifier.mollify(Gated())
    assert [row.name for row in mollifier.report(model).blocks] == ["forward(one, tanh)"]


@pytest.mark.parametrize("what", ["1", nn.Tanh, lambda name, module: name == "1", ["1"], [nn.Tanh, "3"]], ids=range(5))
def test_one_activation_can_be_left_out(what):
    model = mollifier.mollify(
        nn.Sequential(nn.Linear(8, 8), nn.Tanh(), mlp(8, 4, 1), nn.ReLU(), nn.Linear(1, 1)), exclude=what
    )
    left = {row.name: row.why for row in mollifier.report(model).skipped}
    assert left["1"] == "excluded"
    assert "[0:1]" not in [row.name for row in mollifier.report(model).blocks]


def test_a_function_can_be_left_out_by_itself_or_by_its_name_in_the_report():
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc3(torch.sigmoid(self.fc2(torch.tanh(self.fc1(x)))))

    for what in (torch.sigmoid, "forward(fc2, sigmoid)", "forward(fc2, *)"):
        model = mollifier.mollify(Two(), exclude=what).eval()
        assert [row.name for row in mollifier.report(model).blocks] == ["forward(fc1, tanh)"]
        torch.testing.assert_close(model(X), model.fc3(torch.sigmoid(model.fc2(X))))


def test_restore_after_a_parametrization_undoes_its_own_part_only():
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0])

    model = mollifier.mollify(Tagger())
    parametrizations.weight_norm(model.rnn, "weight_hh_l0")
    x = torch.randn(2, 3, 4)
    mollifier.set_level(model, 0)
    want = model(x)
    mollifier.restore(model)
    assert parametrize.is_parametrized(model.rnn, "weight_hh_l0")
    torch.testing.assert_close(model(x), want)
    parametrize.remove_parametrizations(model.rnn, "weight_hh_l0")
    assert type(model.rnn) is nn.LSTM
    torch.testing.assert_close(model(x), want)


def test_a_parametrization_of_a_layer_of_a_run_survives_too():
    model = mollifier.mollify(mlp(8, 8, 1))
    parametrizations.weight_norm(model[0])
    assert torch.equal(model.eval()(X), model[2](X))
    mollifier.set_level(model, 0)
    want = model(X)
    mollifier.restore(model)
    assert parametrize.is_parametrized(model[0])
    assert torch.equal(model(X), want)
    parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Linear


@pytest.mark.usefixtures("process_group")
def test_restore_under_fully_sharded_data_parallel_leaves_it_sharded():
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.manual_seed(0)
    model = mollifier.mollify(mlp(8, 8, 1))
    fully_shard(model, mesh=mesh)
    model(X).sum().backward()
    mollifier.set_level(model, 0)
    mollifier.restore(model)
    assert isinstance(model, FSDPModule)
    assert isinstance(model, nn.Sequential)
    assert type(model).__name__ == "FSDPSequential"
    assert not any("_mollifier" in name for name, _ in model.named_modules())
    model(X).sum().backward()


def rebuilt(width: int, state: dict[str, Tensor]) -> "OwnReduce":
    block = OwnReduce(width)
    block.load_state_dict(state)
    return block


class OwnReduce(nn.Module):
    """Says itself how it is pickled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.fc, self.out = width, nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.fc(x)))

    def __reduce__(self):
        state = {key: value for key, value in self.state_dict().items() if "_mollifier" not in key}
        return rebuilt, (self.width, state)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_named_block_with_a_reduce_of_its_own_is_pickled(way):
    plain = nn.Sequential(OwnReduce(8), nn.Linear(8, 1))
    model = mollifier.mollify(copy.deepcopy(plain), blocks="0", level=0.5).eval()
    twin = way(model)
    assert mollifier.levels(twin) == [0.5]
    assert torch.equal(twin(X), model(X))
    mollifier.set_level(twin, 0)
    assert torch.equal(twin(X), plain(X))
    assert [type(part) for part in mollifier.restore(twin).modules()] == [type(part) for part in plain.modules()]


def test_the_report_of_a_model_of_which_a_part_was_restored():
    model = mollifier.mollify(nn.Sequential(mlp(8, 8, 8), mlp(8, 6, 6), mlp(6, 4, 1)))
    mollifier.set_level(model, [0.0, 0.25, 0.75])
    mollifier.restore(model[0])
    report = mollifier.report(model)
    assert [(row.name, row.level) for row in report.blocks] == [("1[0:1]", 0.25), ("2[0:1]", 0.75)]
    assert mollifier.levels(model) == [0.25, 0.75]


class Counting(nn.Module):
    """Writes into its buffers, and replaces one, whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp(8, 4, 1)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(1))
        self.seen = ()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = x.mean().reshape(1)
        self.seen = (*self.seen, len(x))
        return self.body(x)


def test_an_example_leaves_buffers_and_attributes_as_they_were():
    model = Counting()
    before, last = snapshot(model), model.last
    mollifier.plan(model, example=X)
    assert snapshot(model) == before
    mollifier.mollify(model, example=X)
    assert model.calls.item() == 0
    assert model.last is last
    assert model.seen == ()


def test_a_physics_informed_network_trains_on_its_own_derivatives():
    torch.manual_seed(0)
    model = mollifier.mollify(
        nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    )
    annealer = mollifier.Annealer(model, horizon=300)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 64).unsqueeze(1).requires_grad_()
    losses = []
    for _ in range(600):  # y' = cos 3x, y(0) = 0
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (slope - torch.cos(3 * x.detach())).square().mean() + model(torch.zeros(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
    assert annealer.finished
    assert losses[-1] < 0.02 < 0.3 < losses[0]


def test_a_gradient_penalty_that_the_units_cannot_give_says_what_to_do():
    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(torch.tanh(self.first(x)))

    model, x = mollifier.mollify(Critic(), level=0.5), torch.randn(4, 2, requires_grad=True)
    with mollifier.frozen(model, seed=3):
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        grad.square().sum().backward()
    assert model.first.weight.grad.any()
    if mollifier.ops.info().backend == "native":
        with pytest.raises(RuntimeError, match=r"mollifier\.frozen\(model, seed=update\)"):
            torch.autograd.grad(model(x).sum(), x, create_graph=True)


class Conditioned(nn.Module):
    """Adds an embedding to the output of a layer, in place, in a forward that torch.fx cannot look at."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.time, self.head = nn.Linear(8, 4), nn.Linear(1, 4), nn.Linear(4, 1)
        self.drop, self.how = nn.Dropout(0.0, inplace=True), how
        if "module" in how:
            self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        hidden = self.drop(self.body(x))
        if "part" in self.how:
            hidden[:, 0] = t[:, 0]
        elif "view" in self.how:
            hidden.view(-1).add_(1)
        elif "plain" not in self.how:
            hidden += self.time(t)
        if x.sum() > 1e9:
            return x
        return self.head(self.act(hidden) if "module" in self.how else torch.relu(hidden))


T = torch.rand(16, 1, generator=torch.Generator().manual_seed(2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["function", "module", "part", "part module", "view", "plain", "plain module"])
def test_a_layer_whose_output_was_changed_in_place_has_no_copy(how):
    torch.manual_seed(0)
    plain = Conditioned(how).eval()
    model = mollifier.mollify(copy.deepcopy(plain), example=(X, T))
    (block,) = mollifier.report(model).blocks
    if "plain" in how:
        assert (block.kind, block.copy) == ("run", "fixed")
        return
    assert (block.kind, block.copy) == ("activation", "none")
    model.head = nn.Identity()
    hidden = (mollifier.set_level(model, 0), model(X, T))[1]
    mollifier.set_level(model, 1)
    level_1 = model(X, T)
    assert (level_1 < 0).any()  # the tangent of the activation
    torch.testing.assert_close(level_1.relu(), hidden)
