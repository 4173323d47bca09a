"""Plan a module whose own forward is known, from a trace or from an example: what it calls, in the order of the calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import nn

from mollifier.convert import _reasons as reasons, _structure as structure
from mollifier.convert._blocks import Noisy, PlannedBlock, join
from mollifier.convert._calls import Call, ForwardSummary
from mollifier.convert._structure import affine_width

if TYPE_CHECKING:
    from mollifier.convert._plan import Planner

_NO_LAYER = "no layer"  # where a module is called that ends no run


@dataclass
class ForwardPlanner:
    """Plan one module whose own forward is known."""

    planner: Planner
    found: ForwardSummary
    module: nn.Module
    path: str
    block: PlannedBlock | None
    output: bool
    done: set[str] = field(default_factory=set)
    left: dict[tuple[str, str], str] = field(default_factory=dict)
    loose: dict[str, Noisy] = field(default_factory=dict)

    def plan(self) -> None:
        calls = [step for step in self.found.steps if isinstance(step, Call)]
        # Calls of one key cannot be told apart, nor can calls of one activation after one layer, or of a module after none.
        for call in calls:
            if why := self._left_alone(call) or call.refused:
                places = (call.layer, call.key) if _is_function(call) else (call.layer, _NO_LAYER)
                self.left |= {(_called_name(call), where): why for where in places if where}
        runs = {id(call) for call in calls if self._is_run(call)}
        self.done |= {member for call in calls if id(call) in runs for member in (call.layer, *call.between)}
        known: dict[tuple[str, str], PlannedBlock] = {}
        self.planner.forwards[self.path] = self.found
        self.planner.heard[self.path] = [
            (call.key, _called_name(call)) for call in calls if call.key and id(call) not in runs
        ]
        ending = {(call.key, _called_name(call)) for call in calls if id(call) in runs}
        called = {step if isinstance(step, str) else step.module for step in self.found.steps if not _is_function(step)}
        for name in sorted(called):
            if structure.may_call_activations(self.module.get_submodule(name)):
                self.planner.inside.append((self.path, join(self.path, name)))
        for step in self.found.steps:
            if isinstance(step, str):
                self._child(step)
            elif id(step) in runs:
                key = (step.layer, step.module or str(step.function))
                if key not in known:  # a layer that is called twice, as by a siamese network, has one level
                    known[key] = self._run(step)
                known[key].keys.append(step.key)
            elif not _is_function(step):
                same = [call for call in calls if call.module == step.module and not call.key]
                self._module(step, len(same) > 1, refused=next(filter(None, (call.refused for call in same)), ""))
            else:
                self._function(step, (step.key, _called_name(step)) in ending)
        for name, child in self.module.named_children():
            if not any(called == name or called.startswith(f"{name}.") for called in self.done):
                self.planner.walk(child, join(self.path, name), self.block, output=self.output)

    def _is_run(self, call: Call) -> bool:
        planner = self.planner
        if not planner.auto or self.block is not None or not call.layer or call.refused or self._left(call):
            return False
        paths = [join(self.path, name) for name in (call.layer, call.module) if name]
        return not any(map(planner.exclude.module, paths))

    def _left(self, call: Call) -> str:
        """Return why the activation stays plain, in this call or after the same layer in another one, or an empty string."""
        return self.left.get((_called_name(call), call.layer), "") or self._left_alone(call)

    def _left_alone(self, call: Call) -> str:
        """Return why the activation stays plain in this call."""
        if self.output and call.returned and self.block is None and not call.refused:
            return reasons.OUTPUT
        name = join(self.path, f"forward({call.label})")
        return reasons.EXCLUDED if self.planner.exclude.call(name, call.function) else ""

    def _run(self, call: Call) -> PlannedBlock:
        members = tuple(join(self.path, name) for name in (call.layer, *call.between))
        act: nn.Module | Call = self.module.get_submodule(call.module) if call.module else call
        self.done.add(call.module)
        return self.planner.plan_run(self.path, f"forward({call.label})", members, act, join(self.path, call.module))

    def _child(self, name: str) -> None:
        if name in self.done:
            return
        self.done.add(name)
        self._keep_in_place(name)
        child, path, planner = self.module.get_submodule(name), join(self.path, name), self.planner
        returned = self.output and name in self.found.returned
        before = {step.layer for step in self.found.steps if isinstance(step, Call) and step.returned}
        asked = path in planner.named or planner.exclude.module(path)
        if affine_width(child) is not None and self.block is None and not asked:
            why = reasons.layer_before(self.found.followed.get(name))
            why = reasons.OUTPUT if self.output and name in before else reasons.OUTPUT_LAYER if returned else why
            planner.skip(path, child, why)
            return
        planner.walk(child, path, self.block, output=returned)

    def _keep_in_place(self, name: str) -> None:
        """Leave the activation plain that begins this child, if it changes the child's input in place and something else reads that again."""
        child, path = self.module.get_submodule(name), name
        if name in self.found.read_again and structure.works_in_place(child):
            while structure.is_plain_sequential(child):
                path, child = f"{path}.{next(iter(child._modules))}", next(child.children())
            self.planner.in_place.add(join(self.path, path))

    def _module(self, call: Call, shared: bool, refused: str) -> None:
        """Plan an activation module that ends no run. It has one noise, however often it is called, so no place may refuse it."""
        path = join(self.path, call.module)
        child = self.module.get_submodule(call.module)
        left = self._left(call) or refused or self.left.get((call.module, _NO_LAYER), "")
        if left:
            self.planner.plain.append(path)
            self.planner.skip(path, child, left)
        elif call.module not in self.done or (shared and not self._planned(path)):
            width = affine_width(self.module.get_submodule(call.layer)) if call.layer and not shared else None
            self.planner.walk(child, path, self.block, width)
        self.done.add(call.module)

    def _planned(self, path: str) -> bool:
        """Return whether this activation module already has its own noise, in addition to that at the ends of runs."""
        return any(noisy.path == path for block in self.planner.blocks if not block.end for noisy in block.noisy)

    def _function(self, call: Call, ending: bool) -> None:
        """Plan an activation that is called as a function and ends no run; ``ending``: the same call ends one another time."""
        planner, known = self.planner, self.loose.get(call.key)
        left = self._left(call) or call.refused
        if planner.activations and not left:
            other = known is not None and known.activation.name != _called_name(call)
            why = reasons.ENDS_A_RUN if ending else reasons.ANOTHER_THERE if other else ""
            left = self.left.get((_called_name(call), call.key), why)
        if left and (planner.activations or not call.refused):
            planner.skip(self.path, str(call.function or call.module), left)
        if left or not planner.activations:
            return
        assert call.function is not None
        width = affine_width(self.module.get_submodule(call.layer)) if call.layer else None
        if width is None and self.block is not None and self.block.kind == "residual":
            width = self.block.width
        units, dim = (width.out_units or 1, width.unit_dim) if width is not None else (1, -1)
        if known is not None:  # a method that is called several times has one noise, and one a if the widths differ
            if (known.units, known.unit_dim) != (units, dim):
                known.units, known.unit_dim = 1, -1
            return
        home = self.block or planner.open_block(PlannedBlock(self.path, "activation", label=f"forward({call.label})"))
        self.loose[call.key] = Noisy(self.path, call.function, units, dim, key=call.key)
        home.noisy.append(self.loose[call.key])


def _is_function(step: Call | str) -> bool:
    return isinstance(step, Call) and bool(step.key)


def _called_name(call: Call) -> str:
    return call.function.name if call.function is not None else call.module
