"""The reasons that the report gives for leaving something alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mollifier.activations import of_module
from mollifier.convert import _structure as structure

OUTPUT = "output: what the model returns stays as it is; output=True mollifies it as well"
OUTPUT_LAYER = "output layer: no activation follows it"
EXCLUDED = "excluded"
NO_COPY = "its place in the forward is not known, so nothing is copied past it: name its block with blocks=[…], or give an example= input"
ATTENTION = "attention has no activation to mollify: name the layer around it with blocks=[…]"
UNKNOWN = "it is not in the table: if it is an activation, add it with mollifier.register"
BY_HAND = "it was built mollified by hand, and keeps its own level"
OWN_RECURRENT = "it is a recurrent module with its own forward; name its block with blocks=[…]"
IN_PLACE = "it changes its input in place, and the input is read again: make it out of place"
MASKED = (
    "it masks its weights, and a copy could show its units what the mask hides: name it, or the module around it, with blocks=[…] if nothing has to "
    "stay hidden"
)
NO_LAYERS = "it is called in a module without layers: if that module is an activation, add it with mollifier.register"
BY_TORCH = "torch's own code calls it, as distributions do, and relies on its values"
IN_FUNCTION = "it is called inside a torch.autograd.Function, whose backward is written for the plain function"
NO_DATA = "it is computed from parameters or constants alone, not from the data: it is no hidden unit"
PRODUCT = (
    "it is part of a product with its own input, so it is no activation by itself: register the function that computes the product "
    "(mollifier.register), or use F.silu or F.gelu"
)
WEIGHT = "it computes a weight, not a unit"
ENDS_A_RUN = "the same call ends the block of a layer at other times, in train(), in eval() or when its method is called again: write two calls"
ANOTHER_THERE = (
    "its method is called several times, and calls another activation there another time: give it a method of its own"
)
NOTHING_FOLLOWS = "no activation follows it"


def not_seen(error: Exception) -> str:
    """Return the reason for a forward that torch.fx could not trace."""
    first = (str(error).splitlines() or [""])[0][:120]
    return (
        f"its place is not known, since the forward cannot be traced ({type(error).__name__}: {first}): "
        "give an example= input, or make it a module"
    )


def layer(after: Sequence[nn.Module], output: bool) -> str:
    """Return why a layer of a Sequential has no copy, from the module that follows it."""
    for module in after:
        if type(module) in structure.NO_TANGENT:
            return f"{type(module).__name__} follows it: {structure.NO_TANGENT[type(module)]}"
        try:
            if of_module(module) is not None:
                return OUTPUT
        except ValueError as error:
            return f"{type(module).__name__} follows it: {error}"
        if not isinstance(module, (*structure.BETWEEN, *structure.SHAPING)):
            return f"{type(module).__name__} follows it, not an activation"
    return OUTPUT_LAYER if output else f"{NOTHING_FOLLOWS} in its Sequential"


def layer_before(follower: str | None) -> str:
    """Return the same for a layer in a user's forward; ``follower`` is what takes its output."""
    if not follower:
        return NOTHING_FOLLOWS
    if " and " in follower:
        return f"{follower} take its output: a layer is copied past only if nothing but its activation takes its output"
    return f"{follower} follows it, not an activation that can be mollified"
