from __future__ import annotations

import torch

import mollifier
from mollifier_lab.models import mlp
from mollifier_lab.tasks.statistics import Statistics


def test_the_mean_over_all_batches_of_the_network_in_eval() -> None:
    model = mollifier.mollify(mlp(4, 1, width=5, depth=2, architecture="batch-norm"))
    mollifier.set_level(model, 0.5)
    batches = torch.randn(3, 8, 4)
    assert Statistics().refresh(model, lambda number: model(batches[number]), 3)
    z = torch.stack([model[0](few) for few in batches])
    torch.testing.assert_close(model[1].running_mean, z.mean((0, 1)))
    torch.testing.assert_close(model[1].running_var, z.var(1).mean(0))
    # the second layer reads expected values, normalised by the batch
    model.eval()
    model[1].train()
    model[1].track_running_stats = False
    expected = torch.stack([model[3](model[:3](few)) for few in batches])
    torch.testing.assert_close(model[4].running_mean, expected.mean((0, 1)), atol=1e-4, rtol=1e-3)
    assert [norm.momentum for norm in (model[1], model[4])] == [0.1, 0.1]


def test_modes_are_put_back_and_no_gradient_is_kept() -> None:
    model = mollifier.mollify(mlp(4, 1, width=5, depth=2, architecture="batch-norm"))
    model[1].eval()
    modes = [part.training for part in model.modules()]
    outs = []
    Statistics().refresh(model, lambda number: outs.append(model(torch.randn(8, 4))), 2)
    assert [part.training for part in model.modules()] == modes
    assert not outs[0].requires_grad


def test_networks_without_batch_norm_are_not_run() -> None:
    model = mollifier.mollify(mlp(4, 1, width=5, depth=2))
    assert not Statistics().refresh(model, lambda number: model(torch.zeros(())), 2)
