"""The parts of a plan: blocks, and the activations in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from mollifier.activations import Activation
from mollifier.convert._structure import Width


@dataclass
class Noisy:
    """An activation to be made noisy: a module, an attribute of one (``attribute``) or a call in its methods (``key``)."""

    path: str
    activation: Activation
    units: int
    unit_dim: int
    attribute: str = ""
    key: str = ""


@dataclass
class PlannedBlock:
    """A part of the model that one level will control.

    Attributes:
        path: The path of the module that contains it.
        kind: run, residual, named, activation or recurrent.
        width: The width of the copy path; None for no copy.
        label: What it consists of, ``[0:1]`` in a Sequential or ``forward(fc1, relu)``.
        members: For a run: the paths of its layer, and of the modules between the layer and the activation.
        end: For a run: the path of the activation module, or of the module whose methods call the activation.
        function: For a run: the name of the activation.
        keys: For a run that ends in a function: the calls of that function, as `Scope` counts them.
        layer: The number of the layer, in a recurrent module.
        noisy: The activations in it.
    """

    path: str
    kind: str
    width: Width | None = None
    label: str = ""
    members: tuple[str, ...] = ()
    end: str = ""
    function: str = ""
    keys: list[str] = field(default_factory=list)
    layer: int | None = None
    noisy: list[Noisy] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name in the report."""
        if self.layer is not None:
            return f"{self.path or '(the model)'}, layer {self.layer + 1}"
        if self.label.startswith("["):
            return f"{self.path}{self.label}"
        return join(self.path, self.label) if self.label else self.path or "(the model)"


def join(path: str, name: str) -> str:
    """Return ``path.name``, also for the model itself."""
    return f"{path}.{name}" if path and name else path or name
