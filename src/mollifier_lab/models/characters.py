"""Map the characters of a word to a vector: a bidirectional LSTM, and an MLP on top of it."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mollifier_lab.models.language import lstm_class
from mollifier_lab.models.mlp import mlp


class CharacterEncoder(nn.Module):
    """Return one vector per word.

        >>> import torch
        >>> model = CharacterEncoder(30, 50, embedding=4, width=8, depth=2)
        >>> model(torch.tensor([[3, 1, 0], [2, 5, 7]]), torch.tensor([2, 3])).shape
        torch.Size([2, 50])

    The MLP reads the mean of the LSTM's outputs over the characters of the word. At level 1 that is the mean of the characters'
    embeddings, a bag of characters; the last states would keep no more than the first and the last character there.

    Args:
        characters: The number of characters, including 0 for padding.
        outputs: The size of a word's vector.
        embedding: The size of a character's vector.
        width: The units of the LSTM in each direction, and of the MLP's layers.
        depth: The number of layers of the MLP.
        gates: The gates of the LSTM.
        **options: Options of `mlp`, which has the architecture of the method. There is no connection around the LSTM, since widths differ.
    """

    def __init__(
        self,
        characters: int,
        outputs: int,
        *,
        embedding: int = 32,
        width: int = 200,
        depth: int = 5,
        gates: Literal["hard-sigmoid", "sigmoid"] = "hard-sigmoid",
        **options: Any,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, embedding)
        self.lstm = lstm_class(gates)(embedding, width, batch_first=True, bidirectional=True)
        self.mlp = mlp(2 * width, outputs, width=width, depth=depth, activation="tanh", **options)

    def forward(self, characters: Tensor, lengths: Tensor) -> Tensor:
        """Encode characters (batch, longest), padded at the end; the second argument is the number of characters of each word."""
        on_host = lengths.cpu()
        embedded = self.embedding(characters[:, : int(on_host.max())])
        packed = pack_padded_sequence(embedded, on_host, batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        mean = outputs.sum(1) / lengths.to(outputs.dtype)[:, None]
        out: Tensor = self.mlp(mean)
        return out
