"""Models as strangers write them, and what they do to a model after it was mollified."""

import copy
import pickle
from contextlib import nullcontext

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
    loss = nn.BCELoss()(model(X), torch.ones(16, 1))
    assert loss.isfinite()
    assert [row.name for row in mollifier.report(model).blocks] == ["[0:1]"]
    left = {row.name: row.why for row in mollifier.report(model).skipped}
    assert set(left) == {"2", "3"}
    assert all(why.startswith("output: ") for why in left.values())


def test_the_output_can_be_asked_for():
    model = mollifier.mollify(classifier(), output=True).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["[0:1]", "[2:3]"]
    assert model(X).abs().max() > 1


class Ending(nn.Module):
    """An output activation behind shapes, dropout, tuples and dicts."""

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
        return F.dropout(torch.flatten(torch.sigmoid(x), 1), 0.1, self.training).squeeze(-1)


@pytest.mark.parametrize("how", ["view", "dropout", "tuple", "dict", "function"])
def test_the_output_is_recognised_in_whatever_shape(how):
    model = mollifier.mollify(Ending(how)).eval()
    assert [row.name for row in mollifier.report(model).blocks] == ["body[0:1]"]
    out = model(X)
    out = out["probability"] if how == "dict" else out[0] if how == "tuple" else out
    assert ((out > 0) & (out < 1)).all()


@pytest.mark.parametrize(
    "what", ["1", nn.Tanh, lambda name, module: name == "1", ["1"], [nn.Tanh, "3"]], ids=range(5)
)
def test_one_activation_can_be_left_out(what):
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), mlp(8, 4, 1), nn.ReLU(), nn.Linear(1, 1)), exclude=what)
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


EDITS = {
    "del": lambda m: m.__delitem__(-1),
    "pop": lambda m: m.pop(-1),
    "insert": lambda m: m.insert(2, nn.Linear(6, 6)),
    "insert in a run": lambda m: m.insert(1, nn.Linear(6, 6)),
    "append": lambda m: m.append(nn.Linear(3, 3)),
    "extend": lambda m: m.extend(nn.Sequential(nn.Linear(3, 3), nn.ReLU())),
    "replace the head": lambda m: m.__setitem__(-1, nn.Linear(6, 5)),
    "replace an activation": lambda m: m.__setitem__(1, nn.ReLU()),
    "delete an activation": lambda m: m.__delitem__(1),
    "add": lambda m: m.__iadd__(nn.Sequential(nn.Linear(3, 3))),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_mollified_sequential_can_be_edited(edit):
    def build() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 3))

    torch.manual_seed(1)
    plain = build()
    torch.manual_seed(1)
    model = mollifier.mollify(build())
    torch.manual_seed(2)
    EDITS[edit](plain)
    torch.manual_seed(2)
    EDITS[edit](model)
    assert len(model) == len(plain)
    assert [type(module).__name__.removeprefix("Mollified") for module in model] == [type(m).__name__ for m in plain]
    broken = edit == "insert in a run"  # the activation no longer follows its layer: nothing is copied there, and that is said
    with pytest.warns(RuntimeWarning, match="did not come from its layer") if broken else nullcontext():
        assert model(X).shape == plain(X).shape
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), plain(X))
    assert [type(part) for part in mollifier.restore(model).modules()] == [type(part) for part in plain.modules()]
    assert torch.equal(model(X), plain(X))


def test_an_edit_between_calls_is_followed():
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))).eval()
    head = model[4]
    assert torch.equal(model(X), head(X))
    model.insert(2, nn.Softmax(-1))
    assert torch.equal(model(X), head(X.softmax(-1)))
    del model[0:3]
    assert torch.equal(model(X), head(X))


class Iterated(nn.Module):
    """Goes through its own container, layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.net:
            x = layer(x)
        return x


class Sliced(Iterated):
    def forward(self, x: Tensor) -> Tensor:
        return self.net[5](self.net[3:5](self.net[:3](x)))


class ByName(Iterated):
    """Keeps its layers in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.ModuleDict({name: part for name, part in self.net.named_children()})

    def forward(self, x: Tensor) -> Tensor:
        for name in self.net:
            x = self.net[name](x)
        return x


@pytest.mark.parametrize("kind", [Iterated, Sliced, ByName])
def test_the_copies_come_along_however_the_layers_are_called(kind):
    torch.manual_seed(0)
    plain = kind()
    model = mollifier.mollify(copy.deepcopy(plain)).eval()
    head = model.net["5"] if kind is ByName else model.net[5]
    assert len(mollifier.levels(model)) == 2
    assert torch.equal(model(X), head(X))
    mollifier.set_level(model, 0.5)
    one = mollifier.mollify(copy.deepcopy(plain.net)).eval() if kind is not ByName else None
    if one is not None:
        one.load_state_dict(model.net.state_dict())
        torch.testing.assert_close(model(X), one(X))
    mollifier.set_level(model, 0)
    assert torch.equal(model(X), plain.eval()(X))


def test_the_copies_come_along_in_a_slice_that_is_taken_from_outside():
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))).eval()
    assert torch.equal(model[:4](X), X)
    assert torch.equal(model[2:](X), model[4](X))
    assert torch.equal(nn.Sequential(*model)(X), model(X))
    assert type(model[:4]) is nn.Sequential


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
