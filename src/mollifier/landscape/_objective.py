"""A loss over data as a function of the parameters, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import vmap

from mollifier.smoothing import loss_of
from mollifier.smoothing._vectorise import LossFunction, one_number

Vector = dict[str, Tensor]


@dataclass(frozen=True)
class Objective:
    """A loss, as the mean of the losses of its parts, with the parameters at which it is computed. Created by `objective`.

    Attributes:
        parameters: The tensors, by name, without a graph.
        parts: The loss of each chunk of the data, and the chunk's fraction of the data.
    """

    parameters: Vector
    parts: Sequence[tuple[LossFunction, float]]

    def __call__(self, parameters: Vector | None = None) -> Tensor:
        """Compute the loss at the current or at other parameters, without a gradient."""
        values = self.parameters if parameters is None else parameters
        with torch.no_grad():
            return torch.stack([share * one_number(part(values)) for part, share in self.parts]).sum()

    def at(self, moved: Vector) -> Tensor:
        """Compute the loss at many stacked parameters at once; a single one is computed without vmap."""
        if len(next(iter(moved.values()))) == 1:
            return self({name: value[0] for name, value in moved.items()})[None]
        with torch.no_grad():
            found = [share * vmap(lambda p, part=part: one_number(part(p)))(moved) for part, share in self.parts]
            return torch.stack(found).sum(0)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(tensor.numel() for tensor in self.parameters.values())


def objective(model: nn.Module, criterion: Callable[..., Tensor], *data: Tensor, chunk: int | None = None) -> Objective:
    """Create the loss of a model over data, for `surface`, `extremes` and `trace`.

        >>> import torch
        >>> from mollifier.landscape import objective
        >>> model, x, y = torch.nn.Linear(4, 1), torch.randn(10, 4), torch.randn(10, 1)
        >>> whole = objective(model, torch.nn.functional.mse_loss, x, y)
        >>> torch.allclose(whole(), objective(model, torch.nn.functional.mse_loss, x, y, chunk=3)())
        True

    Args:
        model: Any module that gives the same result each time: in eval() (expected noise), or inside `mollifier.frozen`.
        criterion: ``(output, target) -> loss``, the mean over the examples.
        *data: The inputs and, last, the target: tensors whose first dimension is the example.
        chunk: The number of examples at once, which bounds the memory; by default all. Frozen noise is drawn for one chunk and used for each.
    """
    if len(data) < 2 or any(len(part) != len(data[0]) for part in data):
        shapes = [tuple(part.shape) for part in data]
        raise ValueError(
            f"objective: data of shapes {shapes}; expected inputs and target, each with the examples as its first dimension"
        )
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk={chunk}: expected at least 1")
    count = len(data[0])
    chunks = list(zip(*(torch.split(part, chunk or count) for part in data), strict=True))
    parts = [(loss_of(model, criterion, *batch)[0], len(batch[0]) / count) for batch in chunks]
    parameters = {name: tensor.detach() for name, tensor in loss_of(model, criterion, *chunks[0])[1].items()}
    made = Objective(parameters, parts)
    # twice, before any vmap: this draws frozen noise, and detects any other noise
    first, second = made(), made()
    if not torch.equal(first, second) and not bool(first.isnan()):
        raise ValueError(
            f"objective: the model gave {float(first):g} and then {float(second):g} for the same data. Call model.eval(), or use "
            "mollifier.frozen(model): a landscape needs a function."
        )
    if not bool(first.isfinite()):
        raise ValueError(f"objective: the loss is {float(first):g}")
    return made
