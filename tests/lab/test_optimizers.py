"""Weight decay, and what it leaves alone."""

import torch

from mollifier_lab.apply_method import apply_method
from mollifier_lab.models import mlp
from mollifier_lab.optimizers import make_optimizer
from mollifier_lab.settings import RunConfig


def updated(method: str, decay: float, optimizer: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Each parameter before and after an update whose gradients are 0."""
    config = RunConfig.make("parity", method, weight_decay=decay, lr=0.5, optimizer=optimizer)
    model = mlp(9, 1, width=6, depth=3)  # the first layer narrows: its copy is projected
    apply_method(model, config)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    make_optimizer(config.settings, model).step()
    return {name: (before[name], each.detach()) for name, each in model.named_parameters()}


def test_weight_decay_leaves_alone_what_mollification_adds() -> None:
    for optimizer in ("nesterov", "rmsprop", "adam"):
        found = updated("mollified", 0.1, optimizer)
        added = {name for name in found if "_mollifier" in name}
        assert sum(name.endswith(".a") for name in added) == 3
        assert sum("projection" in name for name in added) == 1
        for name, (before, after) in found.items():
            if name in added:
                assert torch.equal(before, after), name
            elif before.any():
                assert not torch.equal(before, after), name


def test_every_weight_of_other_methods_decays() -> None:
    for method in ("plain", "weight-noise"):
        moved = [
            name for name, (before, after) in updated(method, 0.1, "sgd").items() if not torch.equal(before, after)
        ]
        assert len(moved) == 4, method  # the biases are 0
