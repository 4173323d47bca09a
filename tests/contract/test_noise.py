"""Row 3: eval is deterministic, train is reproducible from the torch seed, and noise can be frozen."""

from __future__ import annotations

import pytest
import torch

import mollifier

from .helpers import assert_equal, loss_of, seeded
from .zoo import KINDS, Kind, by_name


@by_name(KINDS)
@pytest.mark.parametrize("level", [1.0, 0.5])
def test_eval_is_deterministic_and_draws_nothing(kind: Kind, level: float) -> None:
    model, x = kind.mollified(level=level).eval(), kind.input()
    before = torch.get_rng_state()
    first = kind.run(model, x)
    assert_equal(torch.get_rng_state(), before, "random state")
    assert_equal(seeded(kind, model, x, seed=99), first)


@by_name(KINDS)
def test_train_is_reproducible_and_fresh(kind: Kind) -> None:
    model, x = kind.mollified(level=0.5).train(), kind.input()
    first = seeded(kind, model, x)
    second = kind.run(model, x)  # the generator goes on
    assert not torch.equal(first, second)
    assert_equal(seeded(kind, model, x), first)
    assert_equal(kind.run(model, x), second)


@by_name(KINDS)
def test_examples_have_noise_of_their_own(kind: Kind) -> None:
    """Drawn per example, not once for the batch (READING: shared over the batch diverges)."""
    model, x = kind.mollified(level=0.5).eval(), kind.input()
    for part in model.modules():
        if isinstance(part, mollifier.nn.Annealed):
            part.train()  # noise alone: dropout and batch statistics would tell examples apart as well
    twice = x[:1].expand_as(x).contiguous()
    out = seeded(kind, model, twice)
    assert not torch.equal(out[0], out[1])


@by_name(KINDS)
def test_frozen_noise_makes_training_a_function(kind: Kind) -> None:
    model, x = kind.mollified(torch.float64, level=0.5).train(), kind.input(torch.float64)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0  # dropout's own noise is not ours to freeze
    kind.quiet(model)
    expected = kind.run(model.eval(), x)
    model.train()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with mollifier.frozen(model, seed=1):
        first, loss = kind.run(model, x), loss_of(kind, model, x)
        assert_equal(kind.run(model, x), first)
        assert_equal(loss_of(kind, model, x), loss)
    assert_equal(torch.get_rng_state(), before, "random state")
    assert not torch.equal(first, expected), "frozen samples, not expected values"
    with mollifier.frozen(model, seed=2):
        assert not torch.equal(kind.run(model, x), first)
    with mollifier.frozen(model, seed=1):
        assert_equal(kind.run(model, x), first)
    assert not torch.equal(kind.run(model, x), kind.run(model, x)), "the noise is fresh again"
