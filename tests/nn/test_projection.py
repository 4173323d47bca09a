"""The fixed projection: the same map wherever it goes, without a parameter and without a key."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import nn

import mollifier
from mollifier.nn import Copy, FixedProjection
from tests.helpers import mlp


def test_the_signs_are_those_of_every_process_and_version():
    # a checkpoint does not bring them, so they may never change
    third, half = 1 / math.sqrt(3), 1 / math.sqrt(2)
    signs, turned = (-1, 1, -1, 1, -1, -1, -1, -1), (1, 1, 1, -1, -1, -1, 1, 1)
    scales = (third, third, half, third, third, half, third, third)
    assert FixedProjection(8, 3).weights() == pytest.approx([a * b for a, b in zip(signs, scales, strict=True)])
    odd = [a * b * c for a, b, c in zip(signs, turned, scales, strict=True)]
    assert FixedProjection(8, 3, seed=1).weights() == pytest.approx(odd)


def test_signs_are_as_often_plus_as_minus_and_differ_between_seeds():
    signs = torch.stack([FixedProjection(4096, 200, seed=seed).weight.sign() for seed in range(0, 16, 2)])
    correlations = signs @ signs.T / 4096
    assert signs.mean(1).abs().max() < 4 / 64
    assert (correlations - torch.eye(8)).abs().max() < 4 / 64


def test_a_unit_keeps_its_variance_whatever_is_below():
    narrow = FixedProjection(1000, 30)
    centred = narrow(torch.randn(4000, 1000))
    torch.testing.assert_close(centred.var(0), torch.ones(30), rtol=0, atol=0.15)
    positive = narrow(1.0 + 0.1 * torch.randn(50, 1000))  # sums without signs would be 5.8
    assert 0.5 < positive.square().mean().sqrt() < 1.7


def test_a_pair_of_seeds_loses_nothing_of_two_units():
    both = [FixedProjection(12, 6, seed=seed, dtype=torch.float64) for seed in (0, 1)]
    matrix = torch.cat([narrow(torch.eye(12, dtype=torch.float64)) for narrow in both], 1)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(12, dtype=torch.float64))
    layer = mollifier.nn.MollifiedGRU(
        4, 3, 2, bidirectional=True, options=mollifier.nn.RecurrentOptions(projection="fixed")
    )
    seeds = [
        [part.seed for part in child.modules() if isinstance(part, FixedProjection)]
        for child in layer._mollifier.layers
    ]
    assert seeds == [[0, 1], [0, 1]]


MOVES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "half and back": lambda net: net.bfloat16().double(),
    "to_empty": lambda net: net.to_empty(device="cpu"),
    "meta and back": lambda net: net.to("meta").to_empty(device="cpu"),
    "shared memory": lambda net: net.share_memory(),
}


@pytest.mark.parametrize("move", MOVES)
def test_it_is_the_same_map_wherever_it_went(move, monkeypatch):
    net = mollifier.mollify(mlp(7, 5, 3, 1).double(), projection="fixed")
    before = [part.weight.clone() for part in net.modules() if isinstance(part, FixedProjection)]
    monkeypatch.setattr(
        torch, "empty_like", lambda t, **o: torch.full_like(t, 77, **o)
    )  # new memory is full of rubbish
    net = MOVES[move](net)
    after = [part.weight for part in net.modules() if isinstance(part, FixedProjection)]
    assert len(before) == len(after) == 2
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_torch_save_of_a_model_and_of_its_state():
    net = mollifier.mollify(mlp(7, 5, 3, 1), projection="fixed").eval()
    x = torch.randn(4, 7)
    for saved, load in ((net, lambda found: found), (net.state_dict(), _into_another)):
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        assert torch.equal(load(torch.load(file, weights_only=False))(x), net(x))
    assert not any("projection" in key for key in net.state_dict())


def _into_another(state):
    torch.manual_seed(5)
    other = mollifier.mollify(mlp(7, 5, 3, 1), projection="fixed").eval()
    other.load_state_dict(state)
    return other


def test_its_own_checkpoint_assigned_to_a_model_on_the_meta_device():
    net = mollifier.mollify(mlp(7, 5, 3, 1), projection="fixed").eval()
    with torch.device("meta"):
        other = mollifier.mollify(mlp(7, 5, 3, 1), projection="fixed").eval()
    other.load_state_dict(net.state_dict(), assign=True)
    x = torch.randn(4, 7)
    assert torch.equal(other(x), net(x))


def test_it_draws_no_random_numbers():
    before = torch.get_rng_state()
    Copy(9, 4, projection="fixed")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_with_a_learned_projection_is_not_taken_for_it():
    learned, fixed = (mollifier.mollify(mlp(7, 5, 1), projection=each) for each in ("learned", "fixed"))
    with pytest.raises(RuntimeError, match=r"Unexpected key.*projection\.weight"):
        fixed.load_state_dict(learned.state_dict())


def test_several_models_at_once():
    nets = [mollifier.mollify(mlp(7, 5, 3, 1), projection="fixed").eval() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(nets)
    x = torch.randn(4, 7)

    def run(*state):
        return torch.func.functional_call(nets[0], state, (x,))

    out = torch.func.vmap(run)(parameters, buffers)
    torch.testing.assert_close(out, torch.stack([net(x) for net in nets]))


def test_bfloat16_sums_have_the_digits_of_bfloat16():
    x = torch.randn(64, 4096)
    narrow = FixedProjection(4096, 200)
    exact = narrow(x)
    torch.testing.assert_close(narrow.bfloat16()(x.bfloat16()).float(), exact, rtol=0.02, atol=0.05)


def test_export():
    net = mollifier.mollify(
        nn.Sequential(nn.Conv2d(5, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1)), projection="fixed", level=0.5
    ).eval()
    x = torch.randn(2, 5, 4, 4)
    torch.testing.assert_close(torch.export.export(net, (x,)).module()(x), net(x))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"FixedProjection\(3, 5, seed=0\): expected 1 <= out_units <= in_units"):
        FixedProjection(3, 5)
    with pytest.raises(ValueError, match=r"expected 5 units on dimension -1, got a tensor of shape \(2, 4\)"):
        FixedProjection(5, 3)(torch.zeros(2, 4))
