"""Calls of a forward that does different things in train and in eval mode."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from mollifier.activations import activation
from mollifier.convert import _calls, _reasons as reasons
from mollifier.convert._calls import Call, ForwardSummary, merged
from tests.convert.test_live import X, rows


class Auxiliary(nn.Module):
    """Computes an activation for a helper loss in training only, before the others."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.body, self.aux, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.how, self.extra = how, None

    def helper(self, h: Tensor) -> None:
        self.extra = torch.sigmoid(h + 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.body(x))
        if self.training == ("eval" not in self.how):
            self.extra = torch.sigmoid(self.aux(h) + x)
        if "output" in self.how:
            return torch.sigmoid(self.head(h))
        for part in (h, h + 1):
            x = x + torch.sigmoid(2 * part)
        return self.head(x)


def called(model: nn.Module, mode: bool) -> list[str]:
    """Return which noise a forward calls, in order."""
    found: list[str] = []
    loose = model._mollifier.loose
    handles = [noise.register_forward_hook(lambda *_, name=name: found.append(name)) for name, noise in loose.items()]
    model.train(mode)(X)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("start", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_call_that_only_training_makes_shifts_no_noise(start, again):
    model = again(mollifier.mollify(Auxiliary().train(start)))
    assert [row[0] for row in rows(model)] == ["forward(body, relu)", *["forward(sigmoid)"] * 3]
    assert called(model, True) == ["forward_1", "forward_2", "forward_3"]
    assert called(model, False) == ["forward_2", "forward_3"]
    model = again(mollifier.mollify(Auxiliary("eval").train(start)))
    assert called(model, True) == ["forward_1", "forward_2"]
    assert called(model, False) == ["forward_1_eval", "forward_1", "forward_2"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("how", ["output", "output eval"])
def test_an_output_stays_plain_in_both_modes(how):
    model = mollifier.mollify(Auxiliary(how))
    assert [row[0] for row in rows(model)] == ["forward(body, relu)", "forward(sigmoid)"]
    for mode in (True, False):
        out = model.train(mode)(9 * X)
        assert (out > 0).all()
        assert (out < 1).all()
        if model.extra is not None:
            assert (model.extra > 1).any()  # the helper loss is mollified


@pytest.mark.parametrize("how", ["", "eval"])
@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
def test_a_compiled_forward_agrees(how, mode):
    torch._dynamo.reset()
    model = mollifier.mollify(Auxiliary(how), train_noise="expected").train(mode)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), model(X))


def test_what_an_example_did_not_see_in_training_is_plain_and_says_so():
    class Unseen(Auxiliary):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 1e9 else super().forward(x)

    model = mollifier.mollify(Unseen(), example=X)
    assert called(model, False) == ["forward_1", "forward_2"]
    with pytest.warns(RuntimeWarning, match=r"Unseen\.forward calls sigmoid, but mollify saw no such call there"):
        assert "forward_1" not in called(model, True)
    assert (model.extra < 1).all()
    output = mollifier.mollify(Unseen("output"), example=X)
    with pytest.warns(RuntimeWarning, match="mollify saw no such call there"):
        out = output(9 * X)
    assert (out < 1).all()
    assert (output.extra < 1).all()


def test_places_hold_for_one_python_only():
    model = mollifier.mollify(Auxiliary()).eval()
    want = model(X)
    model._mollifier.places = {key: [(1,)] for key in model._mollifier.places}
    with pytest.warns(RuntimeWarning, match="mollify saw no such call there"):
        assert not torch.equal(model(X), want)
    model._mollifier.python = "another one"
    assert torch.equal(model(X), want)


@pytest.mark.filterwarnings("error")
def test_the_same_calls_in_two_branches_share_their_noise():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head, self.other = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                x = torch.tanh(x + self.fc(x))
            else:
                self.seen = x
                x = torch.tanh(x + self.fc(x).detach())
            layer = self.fc if self.training else self.other
            return self.head(F.leaky_relu(layer(x) + x, 0.1 if self.training else 0.2))

    model = mollifier.mollify(Branches())
    assert called(model, True) == called(model, False)
    assert model._mollifier.in_eval is not None  # the options differ
    assert len(model._mollifier.loose) == 2


def test_an_activation_that_is_the_output_in_one_mode_is_plain_in_both():
    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.sigmoid(self.head(torch.tanh(self.fc(x))))
            return h if not self.training else self.fc(h)

    for start in (True, False):
        model = mollifier.mollify(Once().train(start))
        assert [row[0] for row in rows(model)] == ["forward(fc, tanh)"]


@pytest.mark.filterwarnings("error")
def test_a_call_that_ends_a_run_in_one_mode_is_plain_in_the_other():
    class Shaken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            h = self.fc(x)
            if self.training:
                h += 1
            return self.head(torch.relu(h))

    model = mollifier.mollify(Shaken())
    assert [row[0] for row in rows(model)] == ["forward(fc, relu)"]
    assert reasons.ENDS_A_RUN in [left.why for left in mollifier.report(model).skipped]
    torch.testing.assert_close(model(X), model.head(torch.relu(model.fc(X) + 1)))
    torch.testing.assert_close(model.eval()(X), model.head(X))


def test_what_holds_in_one_mode_holds_in_both():
    call = Call(activation("relu"), key="forward_0")
    (both,) = merged(ForwardSummary([call]), ForwardSummary([replace(call, returned=True, refused="why")])).steps
    assert both == replace(call, returned=True, refused="why")


def test_calls_that_cannot_be_told_apart_are_refused():
    one, two = (Call(activation("relu"), key=f"help_{number}", place=(number,)) for number in (0, 1))
    train = ForwardSummary([one, two])
    # a method that makes either call as its first, in two calls of the method
    evaluated = ForwardSummary([one, Call(activation("relu"), key="help_0", place=(1,))])
    found = merged(train, evaluated)
    assert [(call.key, call.module, call.refused) for call in found.steps] == [
        ("help_0", "relu", _calls.MODES),
        ("help_1", "relu", _calls.MODES),
    ]
