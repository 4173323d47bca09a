"""The callback for skorch: the same as a bare loop, resumable, with plain checkpoints and levels in the history."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import mollifier
from tests.integrations.loops import bare, batches, network, same

skorch = pytest.importorskip("skorch", reason="pip install 'mollifier[skorch]'")
from skorch.callbacks import Checkpoint, LoadInitState  # noqa: E402


def data() -> tuple[np.ndarray, np.ndarray]:
    pairs = batches()
    return torch.cat([x for x, _ in pairs]).numpy(), torch.cat([y for _, y in pairs]).numpy()


def build(epochs: int, *others: Any, module: nn.Module | None = None, **settings: Any) -> tuple[Any, Any]:
    from mollifier.integrations.skorch import MollifierCallback

    callback = MollifierCallback(**settings)
    net = skorch.NeuralNet(
        module or network(), nn.BCEWithLogitsLoss, max_epochs=epochs, batch_size=8, lr=0.5, train_split=None, verbose=0,
        callbacks=[("mollifier", callback), *others],
    )  # fmt: skip
    return net.initialize(), callback


def test_it_does_what_a_bare_loop_does() -> None:
    # on expected values: skorch's loader draws a random number of its own, so that sampled noise would be another
    options = {"train_noise": "expected"}
    model, annealer = bare(2, options, k=2.0)
    net, callback = build(2, module=mollifier.mollify(network(), **options), k=2.0, restore=False)
    net.partial_fit(*data())
    assert callback.annealer.levels == annealer.levels
    assert same(net.module_, model)


def test_fit_begins_anew_and_partial_fit_goes_on() -> None:
    net, callback = build(1, k=2.0, restore=False)
    net.partial_fit(*data())
    net.partial_fit(*data())
    assert callback.annealer.updates == 16
    net.set_params(module=network())
    net.fit(*data())
    assert callback.annealer.updates == 8


def test_resumed_it_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    checkpoint = Checkpoint(dirname=tmp_path, monitor=None)
    part, callback = build(1, ("save", checkpoint), module=mollifier.mollify(network()), k=2.0, restore=False)
    torch.manual_seed(1)
    part.partial_fit(*data())
    resumed, second = build(
        1, ("load", LoadInitState(checkpoint)), module=mollifier.mollify(network()), k=2.0, restore=False
    )
    second.load_state_dict(callback.state_dict())
    torch.manual_seed(2)
    resumed.partial_fit(*data())
    torch.manual_seed(2)
    part.partial_fit(*data())
    assert second.annealer.updates == 16
    assert same(resumed.module_, part.module_)


def test_its_checkpoints_load_into_the_plain_network(tmp_path: Path) -> None:
    net, callback = build(1, ("save", Checkpoint(dirname=tmp_path, monitor=None)), k=100.0, restore=False)
    net.partial_fit(*data())
    assert any(callback.annealer.levels)
    plain = network()
    plain.load_state_dict(torch.load(tmp_path / "params.pt", weights_only=True), strict=True)
    assert torch.equal(plain[0].weight, net.module_[0].weight)


def test_it_ends_with_the_plain_network_and_the_plain_optimiser() -> None:
    net, _ = build(1, horizon=4)
    net.partial_fit(*data())
    assert list(net.module_.state_dict()) == list(network().state_dict())
    own = {parameter for group in net.optimizer_.param_groups for parameter in group["params"]}
    assert own == set(net.module_.parameters())


def test_it_warns_when_annealing_has_not_ended() -> None:
    net, _ = build(1, horizon=1000)
    with pytest.warns(RuntimeWarning, match="the model stays mollified"):
        net.partial_fit(*data())
    assert mollifier.is_mollified(net.module_)


def test_levels_are_in_the_history() -> None:
    net, _ = build(2, horizon=12)
    net.partial_fit(*data())
    assert net.history[:, "mollifier/level_2"][-1] == 0.0
    assert 0.0 < net.history[:, "mollifier/level_2"][0] < 1.0


def test_it_works_in_a_grid_search() -> None:
    from sklearn.model_selection import GridSearchCV

    net, _ = build(1, horizon=4)
    x, y = data()
    search = GridSearchCV(
        net, {"callbacks__mollifier__horizon": [2, 4]}, cv=2, scoring=lambda net, x, y: -abs(net.predict(x).mean())
    ).fit(x, y)
    assert not mollifier.is_mollified(search.best_estimator_.module_)
