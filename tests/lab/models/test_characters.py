from __future__ import annotations

import pytest
import torch
from torch import nn

import mollifier
from mollifier_lab.models import CharacterEncoder
from mollifier_lab.models.branches import Highway

CHARACTERS = torch.tensor([[3, 1, 4, 0, 0], [1, 5, 9, 2, 6], [5, 0, 0, 0, 0]])
LENGTHS = torch.tensor([3, 5, 1])


def small(**changes: object) -> CharacterEncoder:
    return CharacterEncoder(10, 7, **{"embedding": 4, "width": 6, "depth": 2} | changes)


@pytest.mark.parametrize("gates", ["hard-sigmoid", "sigmoid"])
def test_a_word_is_the_same_alone_and_among_others(gates: str) -> None:
    model = small(gates=gates)
    together = model(CHARACTERS, LENGTHS)
    for row, length, out in zip(CHARACTERS, LENGTHS, together, strict=True):
        alone = model(row[None, :length], length[None])
        torch.testing.assert_close(alone[0], out)
        mean = model.lstm(model.embedding(row[None, :length]))[0].mean(1)
        torch.testing.assert_close(model.mlp(mean)[0], out)


def test_order_matters_until_the_network_is_mollified() -> None:
    model = small().eval()
    back = CHARACTERS.clone()
    back[1] = back[1].flip(0)
    assert not torch.allclose(model(CHARACTERS, LENGTHS)[1], model(back, LENGTHS)[1], atol=1e-5)
    mollifier.mollify(model)
    assert mollifier.levels(model) == [1.0] * 3
    bag = model(CHARACTERS, LENGTHS)
    torch.testing.assert_close(bag, model(back, LENGTHS))
    # both directions hold the mean of the embeddings, padded; the narrower layer above projects it
    mean = model.embedding(CHARACTERS[1]).mean(0)
    padded = torch.cat([mean, torch.zeros(2)]).repeat(2)
    torch.testing.assert_close(model.mlp(padded[None])[0], bag[1])


def test_the_architecture_is_that_of_the_mlp() -> None:
    model = small(architecture="highway", depth=3)
    assert sum(isinstance(part, Highway) for part in model.mlp) == 2
    assert isinstance(model.lstm, nn.LSTM)
    assert all(isinstance(part[1], nn.Tanh) for part in (model.mlp[0], model.mlp[1].body))
