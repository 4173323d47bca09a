"""Models of transformers: ``save_pretrained`` writes the plain network's weights, at any level."""

from __future__ import annotations

from torch import nn

from mollifier.convert._classes import KEY

IGNORED = "_keys_to_ignore_on_save"  # transformers' own set of keys that save_pretrained leaves out, one per model


def leave_out_when_saved(model: nn.Module) -> None:
    """Add the keys of the added parameters to the set of keys that are not saved, in models that have such a set."""
    for module in model.modules():
        if isinstance(ignored := module.__dict__.get(IGNORED), set):
            ignored.update(key for key in module.state_dict() if KEY in key.split("."))


def saved_again(model: nn.Module) -> None:
    """Undo `leave_out_when_saved`."""
    for module in model.modules():
        if isinstance(ignored := module.__dict__.get(IGNORED), set):
            ignored.difference_update([key for key in ignored if KEY in key.split(".")])
