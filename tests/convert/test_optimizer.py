"""The optimiser: mollify adds its parameters, restore removes them, and no gradient is missing in between."""

import copy
import gc
import weakref
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mollifier
from tests.helpers import mlp

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def groups(model: nn.Module) -> list[dict]:
    """Weights with decay and a rate of their own, biases without."""
    return [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1, "lr": 0.02},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]


OPTIMIZERS = {
    "sgd": lambda model: SGD(model.parameters()),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.01),
    "adamw-groups": lambda model: torch.optim.AdamW(groups(model), lr=0.01),
    "named": lambda model: SGD(model.named_parameters()),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return mlp(8, 16, 6, 1)  # the second layer is narrower: its copy has a projection


def train(model: nn.Module, optimizer: torch.optim.Optimizer, updates: int = 3) -> None:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(updates):
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def same(one, two) -> bool:
    """Are two state_dicts equal, tensors included?"""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_there_and_back(make):
    model = network()
    optimizer = make(model)
    train(model, optimizer)
    before = copy.deepcopy(optimizer.state_dict())

    mollifier.mollify(model, level=0.5, optimizer=optimizer, projection="learned")
    added = mollifier.added_parameters(model)
    group = optimizer.param_groups[-1]
    assert len(group["params"]) == len(added) == 3
    assert all(one is two for one, two in zip(group["params"], added, strict=True))
    assert group["weight_decay"] == 0.0
    assert {key: value for key, value in group.items() if key not in ("params", "weight_decay", "param_names")} == {
        key: value
        for key, value in optimizer.param_groups[0].items()
        if key not in ("params", "weight_decay", "param_names")
    }
    values = [parameter.detach().clone() for parameter in added]
    train(model, optimizer)
    assert not any(torch.equal(one, two) for one, two in zip(values, added, strict=True))  # they are trained
    middle = {p: copy.deepcopy(optimizer.state[p]) for p in model.parameters() if p not in set(added)}

    mollifier.restore(model, force=True, optimizer=optimizer)
    assert not any(parameter in optimizer.state for parameter in added)
    assert all(same(optimizer.state[parameter], state) for parameter, state in middle.items())
    after = optimizer.state_dict()
    assert same(after["param_groups"], before["param_groups"])
    assert after["state"].keys() == before["state"].keys()

    other = network()
    plain = make(other)
    plain.load_state_dict(copy.deepcopy(after))
    other.load_state_dict(model.state_dict())
    train(model, optimizer)
    train(other, plain)
    assert same(model.state_dict(), other.state_dict())


def test_an_optimizer_made_after_mollify_is_made_plain_too():
    model = mollifier.mollify(network())
    optimizer = SGD(model.parameters())
    train(model, optimizer)
    mollifier.restore(model, force=True, optimizer=optimizer)
    SGD(network().parameters()).load_state_dict(optimizer.state_dict())
    assert len(optimizer.state_dict()["param_groups"][0]["params"]) == 6


def test_at_level_0_the_plain_parameters_and_their_state_go_as_in_the_plain_model():
    model, twin = network(), network()
    optimizer, other = SGD(model.parameters()), SGD(twin.parameters())
    mollifier.mollify(model, level=0.0, optimizer=optimizer)
    train(model, optimizer)
    train(twin, other)
    mollifier.restore(model, optimizer=optimizer)
    assert same(model.state_dict(), twin.state_dict())
    assert same(optimizer.state_dict(), other.state_dict())


def test_the_annealer_takes_them_out_when_it_restores():
    model = network()
    optimizer = SGD(model.parameters())
    mollifier.mollify(model, optimizer=optimizer)
    annealer = mollifier.Annealer(model, horizon=3, then="restore", optimizer=optimizer)
    for _ in range(5):
        train(model, optimizer, 1)
        annealer.step(0.7)
    assert not mollifier.is_mollified(model)
    SGD(network().parameters()).load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(
    "make",
    [lambda o: torch.optim.lr_scheduler.StepLR(o, 2), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 9)],
)
def test_a_scheduler_made_before_goes_on(make):
    model = network()
    optimizer = SGD(model.parameters())
    scheduler = make(optimizer)
    mollifier.mollify(model, optimizer=optimizer)
    rates = []
    for _ in range(4):
        train(model, optimizer, 1)
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[-1] < rates[0]
    mollifier.restore(model, force=True, optimizer=optimizer)
    scheduler.step()


def wrong_optimizers() -> list[tuple[object, type[Exception], str]]:
    return [
        (SGD(network().parameters()), ValueError, "the optimizer has none of the model's parameters"),
        ("sgd", TypeError, "optimizer is a str; expected a torch.optim.Optimizer"),
    ]


@pytest.mark.parametrize(("optimizer", "error", "message"), wrong_optimizers())
def test_an_optimizer_of_another_model_is_refused_and_changes_nothing(optimizer, error, message):
    model = network()
    with pytest.raises(error, match=f"mollify: {message}"):
        mollifier.mollify(model, optimizer=optimizer)
    assert not mollifier.is_mollified(model)
    mollifier.mollify(model, level=0.0)
    with pytest.raises(error, match=f"restore: {message}"):
        mollifier.restore(model, optimizer=optimizer)
    with pytest.raises(error, match=f"Annealer: {message}"):
        mollifier.Annealer(model, then="restore", optimizer=optimizer)
    assert mollifier.is_mollified(model)


def test_lbfgs_is_refused_with_what_to_do():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(ValueError, match=r"LBFGS has one group .*Create a new one after mollify: LBFGS\(model.param"):
        mollifier.mollify(model, optimizer=optimizer)
    assert not mollifier.is_mollified(model)


def by_hand(model: nn.Module, x: torch.Tensor) -> None:
    """The loop that many write, with no thought of missing gradients."""
    model.zero_grad()
    model(x).square().mean().backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)


def hand_made() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 4), mollifier.nn.NoisyActivation("tanh", 4), nn.Linear(4, 1))


MODELS = {
    "mlp": lambda: mollifier.mollify(network()),
    "conv": lambda: mollifier.mollify(
        nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1))
    ),
    "by hand": hand_made,
}


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
def test_no_gradient_is_missing_when_annealing_has_ended(build):
    model = build()
    annealer = mollifier.Annealer(model, horizon=3)
    x = torch.randn(16, 8)
    for _ in range(6):
        by_hand(model, x)
        annealer.step(0.7)
    assert annealer.finished
    added = [parameter.clone() for parameter in mollifier.added_parameters(model)]
    by_hand(model, x)
    for before, parameter in zip(added, mollifier.added_parameters(model), strict=True):
        assert torch.equal(before, parameter)  # its gradient is 0
        assert torch.equal(parameter.grad, torch.zeros_like(parameter))


def test_no_gradient_is_missing_under_torch_compile():
    model = mollifier.mollify(network(), level=0.0)
    by_hand(torch.compile(model, backend="aot_eager"), torch.randn(16, 8))


def test_no_gradient_is_missing_in_a_copy_that_is_annealed():
    model = copy.deepcopy(mollifier.mollify(network(), level=0.0))
    mollifier.Annealer(model)
    by_hand(model, torch.randn(16, 8))


def test_accumulated_gradients_are_left_alone():
    model = mollifier.mollify(network())
    x = torch.randn(16, 8)
    mollifier.set_level(model, 0.5)
    model(x).sum().backward()
    before = [parameter.grad.clone() for parameter in mollifier.added_parameters(model)]
    mollifier.set_level(model, 0.0)
    model(x).sum().backward()
    after = [parameter.grad for parameter in mollifier.added_parameters(model)]
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_restore_leaves_no_hook():
    model = mollifier.mollify(network(), level=0.0)
    added = mollifier.added_parameters(model)
    by_hand(model, torch.randn(16, 8))
    mollifier.restore(model)
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    for parameter in added:
        parameter.grad = None
    by_hand(model, torch.randn(16, 8))
    assert all(parameter.grad is None for parameter in added)


def test_the_hook_keeps_no_model_alive():
    model = mollifier.mollify(network())
    part = weakref.ref(next(part for part in model.modules() if isinstance(part, mollifier.nn.Annealed)))
    del model
    gc.collect()
    assert part() is None


@pytest.mark.parametrize("backwards", [1, 3])
def test_an_optimizer_spends_no_time_on_what_level_0_does_not_use_and_the_gradients_are_there_again_after_it(backwards):
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)), level=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(backwards):  # more than one: gradients are accumulated
        model(torch.randn(3, 8)).sum().backward()
    optimizer.step()
    added = mollifier.added_parameters(model)
    assert added
    assert not any(parameter in optimizer.state for parameter in added)
    assert not any(parameter.grad.any() for parameter in added)
    added[0].grad.add_(1.0)  # somebody writes to it: then it is theirs
    optimizer.step()
    assert "momentum_buffer" in optimizer.state[added[0]]
    optimizer.zero_grad()
    model(torch.randn(3, 8)).sum().backward()
    assert not any(parameter.grad.any() for parameter in added)


def test_the_zeros_follow_a_model_that_changes_its_type():
    model = mollifier.mollify(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1)), level=0.0)
    for dtype in (torch.float32, torch.float64, torch.float32):
        model.to(dtype).zero_grad()
        model(torch.randn(3, 8, dtype=dtype)).sum().backward()
        assert {parameter.grad.dtype for parameter in model.parameters()} == {dtype}
        assert not any(parameter.grad.any() for parameter in mollifier.added_parameters(model))
