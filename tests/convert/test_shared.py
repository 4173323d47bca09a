"""Modules that are called in several places, by several threads, or in distributed training."""

import copy
import gc
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint

import mollifier
from mollifier.convert import _reasons as reasons
from mollifier.convert._runs import HELD, RUNS
from tests.convert.test_live import Net, Twice, X, rows


def test_a_module_called_twice_has_a_level_and_a_copy_at_each_place():
    model = mollifier.mollify(Twice()).eval()
    assert rows(model) == [
        ("forward(one, act)", "3 → 5", "pad", "relu (5 a)"),
        ("forward(two, act)", "5 → 4", "fixed", "relu (4 a)"),
    ]
    projection = model.act._mollifier.ends[1].copy.projection
    torch.testing.assert_close(model(X), model.head(projection(F.pad(X, (0, 2)))))
    mollifier.set_level(model, [1.0, 0.0])
    torch.testing.assert_close(model(X), model.head(F.relu(model.two(F.pad(X, (0, 2))))))
    mollifier.set_level(model, [0.0, 1.0])
    torch.testing.assert_close(model(X), model.head(projection(F.relu(model.one(X)))))


def test_a_module_that_is_called_before_the_output_and_as_the_output_is_plain_there():
    class Last(Twice):
        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.two(self.act(self.one(x))))

    model = mollifier.mollify(Last()).eval()
    assert rows(model) == [("forward(one, act)", "3 → 5", "pad", "relu (5 a)")]
    torch.testing.assert_close(model(X), F.relu(model.two(F.pad(X, (0, 2)))))
    act = nn.Sigmoid()
    sequential = mollifier.mollify(nn.Sequential(nn.Linear(3, 3), act, nn.Linear(3, 3), act)).eval()
    torch.testing.assert_close(sequential(X), torch.sigmoid(sequential[2](X)))


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("kind", [Net, Twice])
def test_under_distributed_training_every_parameter_has_a_gradient_at_level_0(kind):
    plain = kind()
    plain.unused = nn.Identity()
    model = mollifier.mollify(copy.deepcopy(plain), level=0.0)
    out = model(X)
    assert torch.equal(out, plain(X))
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_threads_do_not_meet():
    """Two forwards of one model at once: the trail of a run belongs to its thread."""
    model = mollifier.mollify(Net(), level=0.5).eval()
    inputs = [torch.randn(6, 3) for _ in range(4)]
    want = [model(x) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with torch.no_grad():
                if not torch.equal(model(inputs[number]), want[number]):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class Checkpointed(nn.Module):
    """Recomputes its body in the backward pass, if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1)
        self.reentrant: bool | None = None

    def body(self, x: Tensor) -> Tensor:
        return torch.tanh(self.two(F.relu(self.one(x))))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x) if self.reentrant is None else checkpoint(self.body, x, use_reentrant=self.reentrant)
        return self.head(hidden)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_forward_that_is_recomputed_has_the_same_gradients(reentrant):
    torch.manual_seed(0)
    model, found = mollifier.mollify(Checkpointed(), level=0.5), []
    assert len(mollifier.levels(model)) == 2
    for way in (None, reentrant):
        model.reentrant, x = way, X.clone().requires_grad_()
        torch.manual_seed(3)
        out = model(x)
        model.zero_grad()
        out.sum().backward()
        found.append([out, x.grad, *(parameter.grad for parameter in model.parameters())])
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


class Twins(nn.Module):
    """Calls one layer for both inputs before it calls the activation for either."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.drop, self.act, self.head = nn.Linear(3, 4), nn.Dropout(0.0), nn.Tanh(), nn.Linear(4, 1)
        self.how = how
        if "function" in how:
            del self.act

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        act = self.act if "module" in self.how else torch.tanh
        if y is None:
            return self.head(act(self.body(x)))
        one, two = self.drop(self.body(x)), self.drop(self.body(y))
        if "unused" in self.how:
            self.body(x + y)
        if "backwards" in self.how:
            second = self.head(act(two))
            return self.head(act(one)) - second
        return self.head(act(one)) - self.head(act(two))


HOW = [f"{what}{order}" for what in ("function", "module") for order in ("", " backwards", " unused")]


def trails(model: nn.Module) -> list[object]:
    (run,) = model.body.__dict__[RUNS]
    return [trail for each in run._trails.values() for trail in each]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", HOW)
def test_each_output_of_a_layer_has_its_own_copy(how):
    model = mollifier.mollify(Twins(how), example=(X, X)).eval()
    assert [row[2] for row in rows(model)] == ["pad"]
    assert torch.equal(model(X, X), torch.zeros(6, 1))
    torch.testing.assert_close(model(X, -X), model(X) - model(-X))
    # the tensor that the layer then returns is not the one that it computed
    model.body.register_full_backward_hook(lambda *_: None)
    assert torch.equal(model(X.clone().requires_grad_(), X), torch.zeros(6, 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", HOW)
def test_each_output_of_a_layer_has_its_own_copy_in_a_compiled_forward(how):
    torch._dynamo.reset()
    model = mollifier.mollify(Twins(how), example=(X, X)).eval()
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    found = [compiled(X, -X) for _ in range(3)]
    assert counter.frame_count == 1  # nothing was remembered that the next call would have to look at
    torch.testing.assert_close(found, [model(X, -X)] * 3)
    (run,) = model.body.__dict__[RUNS]
    assert 0 not in run._trails


@pytest.mark.parametrize("hooked", [False, True])
def test_many_outputs_may_wait_for_their_activations(hooked):
    class Many(Twins):
        def forward(self, x: Tensor) -> Tensor:
            hidden = [self.body(x) for _ in range(HELD + 2)]
            return torch.stack([self.head(self.act(h)) for h in hidden])

    torch._dynamo.reset()
    model = mollifier.mollify(Many("module")).eval()
    want = model(X)
    assert torch.equal(want, want[:1].expand_as(want))
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    torch.testing.assert_close([compiled(X), compiled(X)], [want, want])
    assert counter.frame_count == 1
    if hooked:  # outputs that are kept alive may not be many, but that is said
        model.body.register_full_backward_hook(lambda *_: None)
        with pytest.warns(RuntimeWarning, match="did not come from its layer"):
            model(X.clone().requires_grad_())


def test_a_layer_that_is_compiled_alone_remembers_one_output():
    torch._dynamo.reset()
    model = mollifier.mollify(Twins("module"), example=(X, X)).eval()
    counter = CompileCounter()
    layer = torch.compile(model.body, backend=counter, fullgraph=True)
    with torch.no_grad():
        for _ in range(12):
            layer(X)
    assert counter.frame_count <= 2


def test_outputs_that_never_reach_the_activation_are_not_kept():
    model = mollifier.mollify(Twins("module"), example=(X, X)).eval()
    with torch.no_grad():
        for _ in range(10):
            model.body(X)
        assert len(trails(model)) == 1
        kept = [model.body(X) for _ in range(10)]
        assert len(trails(model)) == len(kept)  # each of these may still get there
        del kept
        gc.collect()
        model(X)
    assert len(trails(model)) <= 1
    model.body.register_full_backward_hook(lambda *_: None)
    for _ in range(10):
        model.body(X)
    assert len(trails(model)) <= HELD


def test_an_output_that_was_changed_in_place_is_not_that_of_its_layer():
    class Shifted(Twins):
        shift = 0.0

        def forward(self, x: Tensor) -> Tensor:
            h = self.body(x)
            if self.shift:
                h += self.shift
            return self.head(torch.tanh(h))

    model = mollifier.mollify(Shifted("function")).eval()
    assert [row[2] for row in rows(model)] == ["pad"]
    model.shift = 1.0
    with pytest.warns(RuntimeWarning, match="its layer was not called just before it: it stays plain"):
        torch.testing.assert_close(model(X), model.head(torch.tanh(model.body(X) + 1)))
    model.shift = 0.0
    torch.testing.assert_close(model(X), model.head(F.pad(X, (0, 1))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("drop", [nn.Dropout(0.0, inplace=True), nn.Identity()])
def test_a_module_between_layer_and_activation_may_work_in_place(drop):
    model = Twins("function")
    model.drop = drop
    model = mollifier.mollify(model).eval()
    assert torch.equal(model(X, X), torch.zeros(6, 1))
    torch.testing.assert_close(model(X, -X), model(X) - model(-X))


class Helped(nn.Module):
    """Calls all its activations in one helper method."""

    def __init__(self, width: int = 3, how: str = "") -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(3, 3), nn.Linear(3, width), nn.Linear(width, 1)
        self.how = how

    def block(self, layer: nn.Module, x: Tensor, other: bool = False) -> Tensor:
        h = layer(x)
        h = h + 1 if "sum" in self.how and layer is self.two else h
        return torch.sigmoid(h) if other else F.silu(h)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.one, x)
        x = self.block(self.two, x, "other" in self.how)
        return x if "output" in self.how else self.head(x)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("example", [None, X], ids=["traced", "example"])
def test_a_helper_method_for_several_layers_has_a_level_for_each(example):
    model = mollifier.mollify(Helped(4), example=example).eval()
    assert [row[0] for row in rows(model)] == ["forward(one, silu)", "forward(two, silu)"]
    torch.testing.assert_close(model(X), model.head(F.pad(X, (0, 1))))
    mollifier.set_level(model, [0.0, 1.0])
    torch.testing.assert_close(model(X), model.head(F.pad(F.silu(model.one(X)), (0, 1))))
    mollifier.set_level(model, [1.0, 0.0])
    torch.testing.assert_close(model(X), model.head(F.silu(model.two(X))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("width", [3, 4])
def test_the_calls_of_a_helper_method_share_one_noise(width):
    model = mollifier.mollify(Helped(width), blocks=None, c=1e9).eval()
    (row,) = rows(model)
    assert row[3] == ("silu (3 a)" if width == 3 else "silu (1 a)")
    torch.testing.assert_close(model(X), model.head(model.two(model.one(X) / 2) / 2))
    assert len(mollifier.levels(model)) == len(mollifier.plan(Helped(width), blocks=None).blocks) == 1


@pytest.mark.filterwarnings("error")
def test_a_call_that_ends_a_run_only_sometimes_is_plain_where_it_does_not():
    model = mollifier.mollify(Helped(how="sum")).eval()
    assert [row[0] for row in rows(model)] == ["forward(one, silu)"]
    assert reasons.ENDS_A_RUN in [left.why for left in mollifier.report(model).skipped]
    torch.testing.assert_close(model(X), model.head(F.silu(model.two(X) + 1)))


@pytest.mark.filterwarnings("error")
def test_a_call_in_a_helper_method_that_is_left_alone_is_left_alone_whoever_calls_it():
    for how, options in (("output", {}), ("", {"exclude": "forward(two, silu)"})):
        with pytest.raises(ValueError, match="found nothing to mollify"):
            mollifier.mollify(Helped(how=how), blocks=None, **options)
    model = mollifier.mollify(Helped(how="other"), blocks=None, c=1e9).eval()
    assert [row[0] for row in rows(model)] == ["forward(one, silu)"]
    assert reasons.ANOTHER_THERE in [left.why for left in mollifier.report(model).skipped]
    torch.testing.assert_close(model(X), model.head(torch.sigmoid(model.two(model.one(X) / 2))))


def test_an_activation_after_a_layer_that_is_the_output_once_is_plain():
    class Refined(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.fc, self.other, self.how = nn.Linear(3, 3), nn.Linear(3, 3), how
            if how == "module":
                self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            act = self.act if self.how == "module" else torch.relu
            return act(self.fc(torch.sigmoid(self.other(act(self.fc(x))))))

    for how in ("module", "function"):
        model = mollifier.mollify(Refined(how)).eval()
        assert [row[0] for row in rows(model)] == ["forward(other, sigmoid)"]
        assert (model(X) >= 0).all()
        assert reasons.OUTPUT in [left.why for left in mollifier.report(model).skipped]


def test_a_module_without_a_layer_that_is_the_output_once_is_plain():
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.act = nn.Linear(3, 3), nn.Linear(3, 3), nn.Sigmoid()

        def forward(self, x: Tensor) -> Tensor:
            h = self.act(self.one(self.act(x)) + x)
            return self.act(self.two(torch.tanh(self.one(h))))

    model = mollifier.mollify(Summed()).eval()
    assert [row[0] for row in rows(model)] == ["forward(one, tanh)"]
    out = model(9 * X)
    assert ((out > 0) & (out < 1)).all()
    assert torch.equal(model.act(X), torch.sigmoid(X))
