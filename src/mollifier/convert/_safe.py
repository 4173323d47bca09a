"""Whole mollified models from files, with ``torch.load(..., weights_only=True)``.

torch calls nothing from such a file but what is on a list. On it we put what a mollified model of torch's own layers is made of: our modules,
the report, and the layers of ``torch.nn``. Making one of these runs no code that the file brings along. Classes of
the user's own are not ours to trust: ``torch.serialization.add_safe_globals([TheirClass])`` is for their owner to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import nn
from torch.serialization import add_safe_globals, get_safe_globals


def register_safe_globals(*others: Callable[..., Any]) -> None:
    """Put our own classes, the layers of torch.nn and these others on the list.

    >>> import io, torch, mollifier
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
    >>> file = io.BytesIO()
    >>> torch.save(model, file)
    >>> _ = file.seek(0)
    >>> mollifier.levels(torch.load(file, weights_only=True))
    [1.0]
    """
    # nn.TransformerEncoderLayer keeps its activation as a function
    add_safe_globals([*others, *_layers(nn.Module), F.relu, F.gelu])


def _layers(kind: type[nn.Module]) -> Iterator[type[nn.Module]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith(("mollifier.", "torch.nn.modules.")):
            yield below
        yield from _layers(below)


def allow_like(kind: type[nn.Module], plain: type[nn.Module]) -> None:
    """Put a class that was made at run time on the list, if the plain class that it was made from is there."""
    if plain in get_safe_globals():
        add_safe_globals([kind])
