"""What a plan is made of: blocks, and the activations in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mollifier.activations import Activation
from mollifier.convert._structure import Width


@dataclass
class Noisy:
    """An activation to be made noisy: a module, an attribute of one (``attribute``) or a site in its forward (``site``)."""

    path: str
    activation: Activation
    units: int
    unit_dim: int
    attribute: str = ""
    site: int | None = None


@dataclass
class Block:
    """What one level will govern.

    Attributes:
        path: The module that holds it.
        kind: run, residual, named, activation or traced.
        width: Of the copy path; None for no copy.
        run: First and last index, in a Sequential.
        site: Number of the site, in a traced forward.
        label: What stands there, e.g. ``fc1, relu``.
        layer: Number of the layer, in a recurrent module.
        noisy: The activations in it.
    """

    path: str
    kind: str
    width: Width | None = None
    run: tuple[int, int] | None = None
    site: int | None = None
    label: str = ""
    layer: int | None = None
    noisy: list[Noisy] = field(default_factory=list)

    @property
    def name(self) -> str:
        """As the report shows it."""
        if self.run is not None:
            return f"{self.path}[{self.run[0]}:{self.run[1]}]"
        if self.layer is not None:
            return f"{self.path or '(the model)'}, layer {self.layer + 1}"
        return join(self.path, f"forward({self.label})") if self.label else self.path or "(the model)"


def join(path: str, name: str) -> str:
    """``path.name``, also at the top."""
    return f"{path}.{name}" if path else name
