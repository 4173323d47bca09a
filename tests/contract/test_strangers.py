"""What other people do with such models apart from a forward: two networks in one loop, a separate decoder, graphs of any size."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mollifier

from .helpers import assert_equal, seeded
from .strangers import GCN, VAE, Alive, DeepGCN, Discriminator, Generator, Siamese
from .zoo import KINDS

BY_NAME = {kind.name: kind for kind in KINDS}


def test_a_gan_is_trained_from_level_one_to_the_plain_pair() -> None:
    """DCGAN's loop: BCELoss takes nothing outside 0 to 1, and images stay between -1 and 1."""
    torch.manual_seed(0)
    generator, discriminator = (mollifier.mollify(model) for model in (Generator(), Discriminator()))
    criterion, batch = nn.BCELoss(), 8
    parts = [(model, torch.optim.Adam(model.parameters(), lr=0.01)) for model in (generator, discriminator)]
    annealers = [mollifier.Annealer(model, schedule="linear", horizon=6) for model, _ in parts]
    (_, for_generator), (_, for_discriminator) = parts
    for _ in range(7):
        real, noise = torch.rand(batch, 2, 16, 16), torch.randn(batch, 6, 1, 1)
        fake = generator(noise)
        assert 0 < fake.abs().max() <= 1
        loss = criterion(discriminator(real), torch.ones(batch))
        loss = loss + criterion(discriminator(fake.detach()), torch.zeros(batch))
        for_discriminator.zero_grad()
        loss.backward()
        for_discriminator.step()
        annealers[1].step(loss)
        fooled = criterion(discriminator(fake), torch.ones(batch))
        for_generator.zero_grad()
        fooled.backward()
        for_generator.step()
        annealers[0].step(fooled)
    assert [annealer.finished for annealer in annealers] == [True, True]
    judged = [discriminator.eval()(images).mean() for images in (real, fake)]
    assert judged[0] > judged[1]  # it has learnt something
    for model, plain in ((generator, Generator()), (discriminator, Discriminator())):
        mollifier.restore(model)
        assert [type(part) for part in model.modules()] == [type(part) for part in plain.modules()]


@pytest.mark.parametrize("level", [1.0, 0.5, 0.0])
def test_a_decoder_that_is_called_from_outside_is_the_one_of_the_forward(level: float) -> None:
    torch.manual_seed(0)
    model: Any = mollifier.mollify(VAE(), level=level).eval()
    x = torch.randn(4, 6)
    mean, _ = model.encode(x)
    assert_equal(model.decode(mean), model(x)[0])
    assert ((model.decode(100 * mean) >= 0) & (model.decode(100 * mean) <= 1)).all()
    if level == 1.0:
        assert_equal(model.decode(mean), torch.sigmoid(model.fc4(F.pad(mean, (0, 6)))))


def test_a_decoder_has_noise_of_its_own_at_every_call() -> None:
    torch.manual_seed(0)
    model: Any = mollifier.mollify(VAE(), level=0.5).train()
    z = torch.randn(4, 2)
    assert not torch.equal(model.decode(z), model.decode(z))
    assert ((model.decode(100 * z) >= 0) & (model.decode(100 * z) <= 1)).all()  # the output is not mollified


@pytest.mark.parametrize("kind", [GCN, DeepGCN], ids=["graph", "graph-named"])
def test_graphs_of_any_size(kind: type[nn.Module]) -> None:
    row = BY_NAME["graph" if kind is GCN else "graph-named"]
    for level in (1.0, 0.5, 0.0):
        model, plain = row.mollified(level=level), row.plain()
        for nodes in (9, 4, 17, 1, 9):
            x = torch.randn(nodes, 6)
            out = seeded(row, model.train(), x)
            assert out.shape == (nodes, 3)
            if level == 0.5:
                assert not torch.equal(out, row.run(model, x))  # new noise
            if level == 1.0:
                torch.testing.assert_close(row.run(model.eval(), x), row.limit(model, x))
            if level == 0.0:
                assert_equal(out, seeded(row, plain.train(), x))


def test_twins_share_their_layers_and_levels_and_not_their_noise() -> None:
    torch.manual_seed(0)
    model: Any = mollifier.mollify(Siamese(), level=0.5).train()
    assert [row.name for row in mollifier.report(model).blocks] == ["body[0:1]", "body[2:3]", "forward(fc, tanh)"]
    x = torch.randn(64, 3)
    assert not torch.equal(model.once(x), model.once(x))
    mollifier.set_level(model.eval(), 1.0)
    same, other = model(torch.cat([x, x], 1)), model(torch.cat([x, -x], 1))
    assert ((same > 0) & (same < 1)).all()
    assert not torch.equal(same, other)


def test_attributes_and_mode_are_those_of_the_moment() -> None:
    torch.manual_seed(0)
    model: Any = mollifier.mollify(Alive().eval())
    x = torch.randn(4, 6)
    halved = model(x)
    model.tau = 1.0
    torch.testing.assert_close(model(x), 2 * halved)
    model.train()
    twin = copy.deepcopy(model)
    twin.rate = 0.0
    for part in (*model.modules(), *twin.modules()):
        if isinstance(part, mollifier.nn.Annealed):
            part.train_noise = "expected"
    assert not torch.equal(model(x), model(x)), "dropout and noise of the user's own are on in train"
    assert_equal(twin(x), twin(x))


def test_edited_containers_go_on() -> None:
    """A head is taken off and another is put on, in the middle of annealing."""
    kind = BY_NAME["mlp"]
    model: Any = kind.mollified(level=0.5).eval()
    x = kind.input()
    features = model[:-1](x)
    model.pop(-1)
    torch.testing.assert_close(model(x), features)
    model.append(nn.Linear(8, 2))
    torch.testing.assert_close(model(x), model[-1](features))
    annealer = mollifier.Annealer(model, k=1.0)
    annealer.finish()
    restored = mollifier.restore(model)
    assert type(restored[-1]) is nn.Linear
    assert restored(x).shape == (4, 2)
