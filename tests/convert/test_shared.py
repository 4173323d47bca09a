"""Modules that are called in several places, by several threads, or in distributed training."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import mollifier
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
