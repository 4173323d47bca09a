"""The modules by the eager functions: that they use them, follow the seed, resume, and leave the rest to the reference."""

import copy

import pytest
import torch
from torch import nn

import mollifier
from mollifier import kernels
from mollifier.kernels._eager_noise import noise

pytestmark = pytest.mark.usefixtures("eager")


def model() -> nn.Sequential:
    layers = [nn.Linear(6, 32), nn.Sigmoid(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 2)]
    return mollifier.mollify(nn.Sequential(*layers), level=0.8)


def test_info_says_so():
    info = kernels.info()
    assert (info.backend, info.why) == ("eager", "MOLLIFIER_KERNELS=eager")
    assert not any(line.startswith("native") for line in info.serves)


def test_a_block_is_one_function_and_follows_the_seed():
    unit, x = mollifier.nn.NoisyActivation("tanh", 6, level=0.5), torch.randn(5, 6)
    torch.manual_seed(1)
    first = unit(x)
    assert type(first.grad_fn).__name__ == "_UnitBackward"
    torch.manual_seed(1)
    assert torch.equal(first, unit(x))
    assert not torch.equal(first, unit(x))
    assert type(model()[:4](x).grad_fn).__name__ == "_UnitBackward"


def test_what_they_do_not_serve_is_the_reference():
    unit, x = mollifier.nn.NoisyActivation("tanh", 6, level=0.5), torch.randn(5, 6)
    unit.eval()
    assert "_Unit" not in str(unit(x).grad_fn)
    unit.train()
    mapped = torch.func.vmap(unit, randomness="different")(x)
    assert mapped.shape == x.shape
    assert torch.func.grad(lambda x: unit(x).sum())(x).shape == x.shape


def test_resuming_in_the_middle_is_bit_for_bit():
    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(20, 6)).square().mean().backward()
            optimizer.step()

    whole = model()
    optimizer = torch.optim.Adam(whole.parameters(), 1e-2)
    train(whole, optimizer, 3)
    kept = copy.deepcopy((whole.state_dict(), optimizer.state_dict(), torch.get_rng_state()))
    train(whole, optimizer, 3)
    resumed = model()
    again = torch.optim.Adam(resumed.parameters(), 1e-2)
    resumed.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    torch.set_rng_state(kept[2])
    train(resumed, again, 3)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_the_noise_is_half_normal_and_uniform_and_the_two_are_independent():
    normal, uniform = (each.double() for each in noise(7, 1_000_000))
    assert normal.mean().item() == pytest.approx((2 / torch.pi) ** 0.5, abs=3e-3)
    assert normal.square().mean().item() == pytest.approx(1.0, abs=6e-3)
    cells = torch.histc(torch.erf(normal / 2**0.5), 64, 0.0, 1.0), torch.histc(uniform, 64, 0.0, 1.0)
    for counts in cells:
        expected = 1_000_000 / 64
        assert (counts - expected).square().sum().item() / expected < 120  # chi-square, 63 degrees: p = 2e-5
    for lag in (0, 1, 2, 200):
        pairs = torch.stack([normal[lag:], uniform[: len(uniform) - lag]])
        assert abs(torch.corrcoef(pairs)[0, 1].item()) < 5e-3
    assert abs(torch.corrcoef(torch.stack([normal[1:], normal[:-1]]))[0, 1].item()) < 5e-3
    assert not torch.equal(noise(8, 1000)[0], noise(7, 1000)[0])
