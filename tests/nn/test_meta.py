"""Models made on the meta device: nothing that a plain checkpoint does not bring is left without a value."""

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier.nn import FixedProjection, RecurrentOptions
from tests.helpers import mlp

CARRIED = RecurrentOptions(carry_time=True, projection="always")
CLOCKED = RecurrentOptions(time="annealing")
MODELS = {
    "mlp": (lambda: mlp(6, 5, 3, 1), {}),
    "lstm": (lambda: nn.LSTM(6, 3, num_layers=2), {"recurrent": CARRIED}),
    "gru": (lambda: nn.GRU(6, 3, bidirectional=True), {"recurrent": CLOCKED}),
    "mlp-learned": (lambda: mlp(6, 5, 3, 1), {"projection": "learned"}),
    "gru-learned": (lambda: nn.GRU(6, 3, bidirectional=True), {"projection": "learned"}),
    "cell": (lambda: nn.LSTMCell(6, 3), {"recurrent": CARRIED}),
}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_plain_checkpoint_into_a_model_from_the_meta_device(name, assign, monkeypatch):
    make, options = MODELS[name]
    plain = make()
    with torch.device("meta"):
        model = mollifier.mollify(make(), **options)
    # new memory is full of rubbish
    monkeypatch.setattr(torch, "empty_like", lambda t, **o: torch.full_like(t, 77, **o))
    if not assign:
        model.to_empty(device="cpu")
    model.load_state_dict(plain.state_dict(), strict=True, assign=assign)
    monkeypatch.undo()
    fresh = mollifier.mollify(copy.deepcopy(plain), **options)
    added = {key for key in model.state_dict() if "_mollifier" in key}
    assert added == {key for key in fresh.state_dict() if "_mollifier" in key}
    for key in sorted(added):
        mine, theirs = model.state_dict()[key], fresh.state_dict()[key]
        assert mine.dtype == theirs.dtype
        if key.endswith((".a", "projection.weight")):
            assert mine.abs().max() <= 2.0
            assert mine.unique().numel() == mine.numel()
        else:
            assert torch.equal(mine, theirs), key
    x = torch.randn(2, 6)
    for mine, theirs in zip(model.modules(), fresh.modules(), strict=True):
        if isinstance(theirs, FixedProjection):
            assert torch.equal(mine.weight, theirs.weight)
    mollifier.set_level(model, 0.0)
    torch.testing.assert_close(model.eval()(x), plain.eval()(x))
