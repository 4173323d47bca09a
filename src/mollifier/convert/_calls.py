"""The calls of a forward: what is known of each, where in the code it is, and which are the same in train and in eval mode."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mollifier.activations import Activation
from mollifier.convert._callers import Place

MODES = "train() and eval() come to it by different ways that cannot be told apart: give it a method of its own"


@dataclass(frozen=True)
class Call:
    """An activation that a forward computes.

    Attributes:
        function: The activation, if it is called as a function or method; None for a module.
        module: The path of the activation module, if it is one, or the name of a function that is refused.
        layer: The path of the affine layer whose output it takes, if only ``between`` is in between.
        between: The paths of the norms and dropouts in between.
        key: Which call of a function it is: the method and the number of the call, as `Scope` counts them; empty for a module.
        place: Where it is in the code of the method, see `calling_method`.
        returned: Whether the forward returns its result.
        refused: The reason why it cannot be mollified, if there is one.
    """

    function: Activation | None = None
    module: str = ""
    layer: str = ""
    between: tuple[str, ...] = ()
    key: str = ""
    place: Place = ()
    returned: bool = False
    refused: str = ""

    @property
    def label(self) -> str:
        """Return the names of the layer and the activation, for the report."""
        return ", ".join(filter(None, (self.layer, str(self.function or self.module))))


@dataclass
class ForwardSummary:
    """What a forward does.

    Attributes:
        steps: Its activations, and the paths of the other children that it calls, in forward order.
        returned: The paths of the children whose result it returns.
        followed: For a child that is called, what takes its output.
        read_again: The paths of the children whose input is also read by something else.
        places: Where the calls of each key are.
        in_eval: The keys of its calls in eval mode, and by which keys they are known; None if both modes make the same calls.
    """

    steps: list[Call | str] = field(default_factory=list)
    returned: set[str] = field(default_factory=set)
    followed: dict[str, str] = field(default_factory=dict)
    read_again: set[str] = field(default_factory=set)
    places: dict[str, list[Place]] = field(default_factory=dict)
    in_eval: dict[str, str] | None = None


def merged(train: ForwardSummary, evaluated: ForwardSummary) -> ForwardSummary:
    """Return what a forward does in either mode. Where the two make different calls, those at the same place of the code are the same.

    >>> one, two = Call(key="forward_0", place=(8,), layer="a"), Call(key="forward_1", place=(20,))
    >>> merged(ForwardSummary([one, two]), ForwardSummary([replace(two, key="forward_0")])).in_eval
    {'forward_0': 'forward_1'}
    """
    known, calls = ([s for s in each.steps if isinstance(s, Call) and s.key] for each in (train, evaluated))
    found = ForwardSummary(list(train.steps), train.returned | evaluated.returned, evaluated.followed | train.followed)
    found.read_again = train.read_again | evaluated.read_again
    doubtful: set[str] = set()
    if [_identity(call) for call in known] != [_identity(call) for call in calls]:
        found.in_eval, doubtful = _matched(known, calls)
    names = found.in_eval or {}
    where: dict[Any, list[int]] = {}
    for index, step in enumerate(found.steps):
        where.setdefault(_identity(step), []).append(index)
    for step in evaluated.steps:
        here = replace(step, key=names.get(step.key, step.key)) if isinstance(step, Call) else step
        same = where.get(_identity(here))
        if same is None:
            found.steps.append(here)
        elif isinstance(here, Call) and isinstance(twin := found.steps[same[0]], Call):
            returned, refused = twin.returned or here.returned, twin.refused or here.refused
            found.steps[same[0]] = replace(twin, returned=returned, refused=refused)
        if same is not None and len(same) > 1:  # the next call like this is the next one there
            same.pop(0)
    found.steps = [_refused(step) if isinstance(step, Call) and step.key in doubtful else step for step in found.steps]
    found.places = {key: list(places) for key, places in train.places.items()}
    for key, places in evaluated.places.items():
        found.places.setdefault(names.get(key, key), []).extend(places)
    return found


def _matched(known: list[Call], calls: list[Call]) -> tuple[dict[str, str], set[str]]:
    """Return by which keys of train mode, or by which new ones, the calls of eval mode are known; and the keys that are ambiguous."""
    names: dict[str, str] = {}
    doubtful: set[str] = set()
    taken = {call.key for call in known}
    for at in (_after_its_layer, _at, _identity):  # last, branches that do the same with different code
        waiting: dict[Any, list[Call]] = {}
        for call in known:
            waiting.setdefault(at(call), []).append(call)
        rest: list[Call] = []
        for call in calls:
            if same := waiting.get(at(call)):
                twin = same.pop(0)
                known = [each for each in known if each is not twin]
                if names.setdefault(call.key, twin.key) != twin.key:
                    doubtful |= {twin.key, names[call.key]}
            else:
                rest.append(call)
        calls = rest
    for call in calls:
        names.setdefault(call.key, f"{call.key}_eval" if call.key in taken else call.key)
    return names, doubtful


def _identity(step: Call | str) -> Any:
    return step if isinstance(step, str) else (step.module, str(step.function), step.layer, step.key)


def _at(call: Call) -> tuple[Any, ...]:
    name = call.module if call.function is None else call.function.name
    return name, call.key.rpartition("_")[0], call.place


def _after_its_layer(call: Call) -> tuple[Any, ...]:
    return (*_at(call), call.layer)


def _refused(call: Call) -> Call:
    return Call(module=call.function.name if call.function is not None else call.module, key=call.key, refused=MODES)
