"""Load whole mollified models with ``torch.load(..., weights_only=True)``.

torch calls only functions and classes on its list of safe globals. We add what a mollified model of torch's own layers consists of: our modules,
the report, and the layers of ``torch.nn``. Creating one of these runs no code from the file. Users add their own classes with
``torch.serialization.add_safe_globals([TheirClass])``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import nn
from torch.serialization import add_safe_globals, get_safe_globals


def register_safe_globals(*others: Callable[..., Any]) -> None:
    """Add our own classes, the layers of torch.nn and the given ones to the list of safe globals.

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
    """Add a class that was created at run time to the list, if its plain class is on it."""
    if plain in get_safe_globals():
        add_safe_globals([kind])
