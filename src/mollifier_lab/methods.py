"""The methods that are compared: each is an architecture and a choice of what is mollified. No torch here: `mollifier methods` is instant.

>>> METHODS["mollified-residual"].architecture
'residual'
>>> [method.name for method in applicable("ptb")][:3]
['plain', 'residual', 'stochastic-depth']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mollifier_lab.errors import LabError, pick

Architecture = Literal["plain", "batch-norm", "residual", "residual-bn", "highway", "stochastic-depth", "dropout"]
STACKS = ("parity", "pentomino", "mnist", "cifar10", "ptb", "characters")
EVERY = (*STACKS, "adding")
MLPS = ("parity", "pentomino", "mnist")
RECURRENT = ("ptb", "characters", "adding")


@dataclass(frozen=True)
class Method:
    """One way to train a task's network.

    Attributes:
        name: The name on the command line.
        title: The name in tables and plots.
        summary: One sentence.
        architecture: The architecture of the network.
        tasks: The tasks to which it applies.
        mollify: Keywords of `mollifier.mollify`, or None: not mollified. ``recurrent`` holds keywords of `RecurrentOptions`.
        weight_noise: Whether annealed Gaussian noise is added to the weights: Monte-Carlo mollification (appendix A).
        per_sample: Whether stochastic depth drops layers for each sample, not for the whole batch.
        knobs: Settings beyond the learning rate that this method has, and that a search varies.
        apply: The function of a user's method: ``apply(model, settings, example)`` changes the model in place, and returns its annealer or None.
        undo: Removes what ``apply`` added, apart from what `mollifier.restore` removes.
        anneals: Whether ``apply`` returns an annealer.
    """

    name: str
    title: str
    summary: str
    architecture: Architecture = "plain"
    tasks: tuple[str, ...] = EVERY
    mollify: dict[str, object] | None = None
    weight_noise: bool = False
    per_sample: bool = False
    knobs: tuple[str, ...] = ()
    apply: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    anneals: bool = False

    @property
    def annealed(self) -> bool:
        """Whether an annealer drives it."""
        return self.mollify is not None or self.weight_noise or self.anneals

    def has(self, part: str, recurrent: bool) -> bool:
        """Return whether it mollifies a part of a network: ``"copy"``, ``"activations"`` or ``"gates"``. ``recurrent`` says whether the
        network has recurrent layers.

        >>> METHODS["gates"].has("gates", recurrent=True), METHODS["gates"].has("copy", recurrent=True)
        (True, False)
        """
        if self.apply is not None:  # only its author knows
            return self.anneals
        if self.mollify is None:
            return False
        layers = self.mollify.get("recurrent", {})
        assert isinstance(layers, dict)
        inside = recurrent and bool(layers.get(part, True))
        if part == "gates":
            return inside
        outside = self.mollify.get("activations", True) if part == "activations" else "blocks" not in self.mollify
        return inside or bool(outside)


_ALL = (
    Method("plain", "plain", "The network itself."),
    Method("residual", "residual", "A connection around each layer.", "residual", STACKS),
    Method("batch-norm", "batch norm", "Batch normalisation alone: shows how much of residual + batch norm it explains.", "batch-norm",
           (*MLPS, "characters")),
    Method("residual-bn", "residual + batch norm", "A connection around each batch-normalised layer.", "residual-bn",
           (*MLPS, "characters")),
    Method("highway", "highway", "A learned gate between each layer and its input.", "highway", (*MLPS, "characters")),
    Method("stochastic-depth", "stochastic depth", "Residual layers dropped at random, one draw per batch (Huang et al.).",
           "stochastic-depth", STACKS, knobs=("survival",)),
    Method("stochastic-depth-sample", "stochastic depth, per sample", "Residual layers dropped at random, one draw per sample.",
           "stochastic-depth", STACKS, per_sample=True, knobs=("survival",)),
    Method("dropout", "dropout", "Units dropped at random.", "dropout", STACKS, knobs=("dropout",)),
    Method("weight-noise", "weight noise", "Annealed Gaussian noise on the weights: Monte-Carlo mollification.",
           weight_noise=True, knobs=("weight_std", "k")),
    Method("noisy-activation", "noisy activation only", "Activations are pushed toward their tangents; there is no copy.",
           mollify={"blocks": None, "recurrent": {"gates": False, "copy": False}}, knobs=("k", "c")),
    Method("copy", "copy only", "Units copy the unit below; activations are not changed.",
           mollify={"activations": False, "recurrent": {"gates": False, "activations": False}}, knobs=("k",)),
    Method("gates", "gates only", "Gates are held at their targets; there is neither noise nor copy.", tasks=RECURRENT,
           mollify={"activations": False, "blocks": None, "recurrent": {"activations": False, "copy": False}}, knobs=("k",)),
    Method("mollified", "mollified", "The paper's method.", mollify={}, knobs=("k", "c")),
    Method("paper-lstm", "mollified, LSTM as in the paper", "Mollifies gates and activations of the LSTM, as in section 3.2; there is no copy past it.",
           tasks=RECURRENT, mollify={"recurrent": {"copy": False}}, knobs=("k", "c")),
    Method("mollified-residual", "mollified + residual", "The paper's method on the residual network.", "residual", STACKS,
           mollify={}, knobs=("k", "c")),
    Method("mollified-bn", "mollified + batch norm", "The paper's method on the batch-normalised network.", "batch-norm",
           (*MLPS, "characters"), mollify={}, knobs=("k", "c")),
    Method("mollified-deterministic", "mollified, deterministic", "Trained on expected values instead of samples.",
           mollify={"train_noise": "expected"}, knobs=("k", "c")),
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
# tasks of users: the architectures that each can build, and whether it has recurrent layers
OPEN: dict[str, tuple[tuple[str, ...], bool]] = {}


def applicable(task: str) -> list[Method]:
    """Return the methods that apply to a task."""
    return [method for method in METHODS.values() if applies(method, task)]


def applies(method: Method, task: str) -> bool:
    """Return whether a method applies to a task. It applies to a user's task if the task can build its network, and has recurrent layers if
    it needs them.

    >>> applies(METHODS["gates"], "parity")
    False
    """
    if task not in OPEN:
        return task in method.tasks
    architectures, recurrent = OPEN[task]
    general = {*MLPS} <= {*method.tasks} or (recurrent and {*RECURRENT} <= {*method.tasks})
    return task in method.tasks or (general and method.architecture in architectures)


def method_for(name: str, task: str) -> Method:
    """Return a method by its name, if it applies to the task.

    Raises:
        LabError: If there is none of that name, or it does not apply.
    """
    method = pick("method", name, METHODS)
    if not applies(method, task):
        names = ", ".join(each.name for each in applicable(task))
        raise LabError(f"method {name!r} does not apply to task {task!r}; these do: {names}")
    return method
