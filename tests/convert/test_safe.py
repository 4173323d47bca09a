"""Whole mollified models load with weights_only=True, and nothing else becomes loadable."""

import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import mollifier
from mollifier.convert._classes import rebuild
from mollifier.convert._patches import ActivationPatch
from tests.helpers import mlp

MODELS = {
    "mlp": (lambda: mlp(4, 6, 3, 1), {}, (3, 4)),
    "conv": (
        lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)),
        {},
        (3, 2, 4),
    ),
    "lstm": (lambda: nn.LSTM(4, 5, num_layers=2), {}, (3, 2, 4)),
    "gru-cell": (lambda: nn.GRUCell(4, 5), {}, (3, 4)),
    "transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu"), 2, enable_nested_tensor=False
        ),
        {"blocks": ["layers.*"]},
        (2, 3, 4),
    ),
    "leaky": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.3), nn.Linear(4, 1)), {}, (3, 4)),
}


def first(out: Any) -> torch.Tensor:
    return out[0] if isinstance(out, tuple) else out


def saved(model: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize(("build", "options", "shape"), MODELS.values(), ids=MODELS)
def test_a_whole_model_loads_with_weights_only(build, options, shape):
    model = mollifier.mollify(build(), level=0.5, **options).eval()
    loaded = torch.load(saved(model), weights_only=True)
    assert mollifier.levels(loaded) == mollifier.levels(model)
    assert str(mollifier.report(loaded)) == str(mollifier.report(model))
    x = torch.randn(shape)
    assert torch.equal(first(loaded(x)), first(model(x)))
    plain = mollifier.restore(loaded, force=True)
    assert type(plain) is type(build())
    torch.load(saved(plain), weights_only=True)


class Own(nn.Module):
    """A class of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(4, 4, 1)
        self.act = OwnActivation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self.act(x))


class OwnActivation(nn.Tanh):
    """A class of the user's that is mollified itself."""


def test_classes_of_the_users_own_stay_for_the_user_to_allow():
    file = saved(mollifier.mollify(Own(), blocks=None))
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        torch.load(file, weights_only=True)
    file.seek(0)
    torch.load(file, weights_only=False)  # which makes our class of theirs, and must not allow it
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="add_safe_globals"):
        torch.load(file, weights_only=True)
    file.seek(0)
    with torch.serialization.safe_globals([Own, OwnActivation]):
        loaded = torch.load(file, weights_only=True)
    assert mollifier.is_mollified(loaded)


@pytest.mark.parametrize(("mixins", "plain"), [((ActivationPatch,), dict), ((nn.Tanh,), nn.ReLU)])
def test_only_modules_are_rebuilt(mixins, plain):
    with pytest.raises(TypeError, match="not a mollified module"):
        rebuild(mixins, plain)


def test_two_swapped_classes_of_one_plain_class_are_both_allowed():
    def layers() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    runs = mollifier.mollify(layers())
    blocks = mollifier.mollify(nn.Sequential(layers(), nn.Linear(4, 1)), blocks="0")
    assert type(runs) is not type(blocks[0])
    for model in (runs, blocks, runs):
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        assert mollifier.levels(torch.load(file, weights_only=True)) == mollifier.levels(model)
