"""Find what to mollify. Nothing is changed here, so a model that cannot be converted stays as it was."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from mollifier.activations import activation, of_module
from mollifier.convert import _reasons as reasons, _structure as structure
from mollifier.convert._blocks import Noisy, PlannedBlock, join
from mollifier.convert._calls import Call, ForwardSummary
from mollifier.convert._forward import trace_forward
from mollifier.convert._named import Exclude
from mollifier.convert._plan_forward import ForwardPlanner
from mollifier.convert._report import Skipped
from mollifier.convert._returned import returned_children
from mollifier.convert._shapes import CallRecord, recorded_width
from mollifier.convert._source import function_attributes, functional_calls
from mollifier.convert._structure import Width, affine_width
from mollifier.nn import Annealed, MollifiedBlock
from mollifier.nn.recurrent import CellForward, RecurrentForward


@dataclass
class Planner:
    """Walk a model in forward order and collect the blocks.

    Attributes:
        model: The model.
        activations: Whether to make activations noisy.
        auto: Whether to find runs and residual blocks.
        named: Paths of the modules named as blocks.
        exclude: What the user wants to leave alone.
        seen: The shapes that an example showed, by module name; empty without one.
        recorded: The forwards that an example showed, by module name.
        blocks: The blocks that were found.
        skipped: What was left alone, and the reasons.
        heard: By module, the functional activations of its methods that end no run, mollified or not: key and name.
        forwards: The forwards that are known, by module name.
        plain: Activation modules that are left alone in at least one of their places.
        inside: Modules whose forward is known, with children that it calls and that may compute activations of their own.
        in_place: Activation modules that change, in place, what something else reads again.
        returned: Modules whose result the model returns, in forwards that are known only from their source.
    """

    model: nn.Module
    activations: bool
    auto: bool
    named: set[str]
    exclude: Exclude
    seen: dict[str, CallRecord]
    recorded: dict[str, ForwardSummary]
    blocks: list[PlannedBlock] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    heard: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    forwards: dict[str, ForwardSummary] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    inside: list[tuple[str, str]] = field(default_factory=list)
    in_place: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)

    def walk(
        self,
        module: nn.Module,
        path: str = "",
        block: PlannedBlock | None = None,
        before: Width | None = None,
        output: bool = False,
    ) -> None:
        """Plan one module and everything inside it.

        Args:
            module: The module.
            path: Its name in the model.
            block: The block that it is in, if it is in one.
            before: Width of the layer before it.
            output: Whether the model returns what this module returns. Its last activation then stays plain.
        """
        output = output or path in self.returned
        if isinstance(module, ParametrizationList):
            self._weight(module, path)
            return
        if isinstance(module, (Annealed, MollifiedBlock, RecurrentForward, CellForward)):
            self.skip(path, module, reasons.BY_HAND)
            return
        if self.exclude.module(path):
            self.plain.append(path)
            self.skip(path, module, reasons.EXCLUDED)
            return
        if structure.is_recurrent(module):
            self._recurrent(module, path)
            return
        if path in self.named:
            block = self.open_block(PlannedBlock(path, "named", self._named_width(path, module)))
        elif block is None and self.auto and not output and (width := structure.residual_width(module)) is not None:
            block = self.open_block(PlannedBlock(path, "residual", width))
        if self._is_leaf(module, path, block, before, output):
            return
        if structure.is_plain_sequential(module):
            self._sequential(module, path, block, output)
        else:
            self._custom(module, path, block, output)

    def in_order(self) -> list[PlannedBlock]:
        """Return the blocks in forward order: as an example called them, or else as they were found."""
        if not self.seen:
            return self.blocks
        order: list[tuple[float, int]] = []
        last = 0.0
        for number, block in enumerate(self.blocks):
            first = self.seen.get(block.path)
            if (
                block.members
            ):  # a run is placed where its activation is, if that is used once, or else where its layer is
                alone = block.end != block.path and block.end in self.seen and len(self.seen[block.end].inputs) == 1
                first = self.seen.get(block.end if alone else block.members[0])
            # a function call has no recorded time, so it keeps its place after whatever was found before it
            last = first.first if first is not None and (block.members or not block.label) else last
            order.append((last, number))
        return [self.blocks[number] for _, number in sorted(order)]

    def open_block(self, block: PlannedBlock) -> PlannedBlock:
        """Add a block to the plan, and return it."""
        self.blocks.append(block)
        return block

    def skip(self, path: str, what: nn.Module | str, why: str) -> None:
        """Note in the report that something is left alone, and why."""
        shown = what if isinstance(what, str) else type(what).__name__
        self.skipped.append(Skipped(path or "(the model)", shown, why))

    def _named_width(self, path: str, module: nn.Module) -> Width:
        if path in self.seen:
            return recorded_width(path, module, self.seen[path])
        known = structure.residual_width(module) or structure.chain_width(module)
        return known or Width(None, None, structure.unit_dim_of(module))

    def _is_leaf(
        self, module: nn.Module, path: str, block: PlannedBlock | None, before: Width | None, output: bool
    ) -> bool:
        """Plan or skip a module without children; return False for all others."""
        try:
            found = of_module(module)
        except ValueError as error:
            self.skip(path, module, str(error))
            return True
        if found is not None:
            if path in self.in_place or (output and block is None):
                self.plain.append(path)
                self.skip(path, module, reasons.IN_PLACE if path in self.in_place else reasons.OUTPUT)
            elif self.activations:
                units, dim = self._units(path, block, before)
                home = block or self.open_block(PlannedBlock(path, "activation"))
                home.noisy.append(Noisy(path, found, units, dim))
            return True
        reason = None
        if isinstance(module, structure.RECURRENT):
            reason = reasons.OWN_RECURRENT
        elif structure.masks_weights(module):
            reason = reasons.MASKED if block is None else ""
        elif isinstance(module, nn.MultiheadAttention):
            reason = reasons.ATTENTION if block is None else ""
        elif structure.has_weights_only(module):
            reason = reasons.NO_COPY if block is None else ""
        elif type(module) in structure.NO_TANGENT:
            reason = structure.NO_TANGENT[type(module)] if self.activations else ""
        elif structure.is_unknown(module) and not structure.is_shortcut(path.rpartition(".")[2]):
            reason = reasons.UNKNOWN if self.activations else None
        if reason:
            self.skip(path, module, reason)
        return reason is not None

    def _weight(self, module: nn.Module, path: str) -> None:
        """Leave alone the activations that compute a weight from its parametrization."""
        for name, part in module.named_modules():
            if structure.has_tangent(part):
                self.skip(join(path, name), part, reasons.WEIGHT)

    def _recurrent(self, module: nn.Module, path: str) -> None:
        """Plan one block per layer: recurrent layers have their own copy, even if they were named as blocks."""
        for layer, width in enumerate(structure.recurrent_widths(module)):
            self.open_block(PlannedBlock(path, "recurrent", width, layer=layer))

    def _units(self, path: str, block: PlannedBlock | None, before: Width | None) -> tuple[int, int]:
        """Return the number of a of an activation, and their dimension: from the example, from the layer before it, or one for all."""
        if path in self.seen:
            return self.seen[path].units() or 1, self.seen[path].unit_dim
        if before is not None and before.out_units is not None:
            return before.out_units, before.unit_dim
        if block is not None and block.kind == "residual" and block.width is not None:
            owner = self.model.get_submodule(block.path)
            return structure.residual_units(owner, path.removeprefix(f"{block.path}.")), block.width.unit_dim
        return 1, -1

    def _sequential(self, module: nn.Module, path: str, block: PlannedBlock | None, output: bool) -> None:
        # (named_children would leave out a layer that is used twice, and shift the places of the rest)
        names = [name for name, child in module._modules.items() if child is not None]
        children = [child for child in module._modules.values() if child is not None]
        runs = structure.runs(children) if self.auto and block is None else {}
        last = structure.last_place(children)
        before: Width | None = None
        index = 0
        while index < len(children):
            child, here = children[index], join(path, names[index])
            width, stop = affine_width(child), runs.get(index, -1)
            inside = {join(path, name) for name in names[index : stop + 1]}
            if stop > 0 and not (output and stop == last) and not any(map(self.exclude.module, inside)):
                members = tuple(join(path, name) for name in names[index:stop])
                self.plan_run(path, f"[{index}:{stop}]", members, children[stop], join(path, names[stop]))
                index, before = stop + 1, None
                continue
            plain = width is not None and block is None and here not in self.named and not self.exclude.module(here)
            if plain:
                self.skip(here, child, reasons.layer(children[index + 1 :], output))
            else:
                self.walk(child, here, block, before, output and index >= last)
            before = width or (before if isinstance(child, structure.BETWEEN) else None)
            index += 1

    def plan_run(
        self, path: str, label: str, members: tuple[str, ...], act: nn.Module | Call, end: str
    ) -> PlannedBlock:
        """Plan a layer, the modules in between, and the activation at the end, which is a module or a function call."""
        width = affine_width(self.model.get_submodule(members[0]))
        found = of_module(act) if isinstance(act, nn.Module) else act.function
        assert found is not None
        assert width is not None
        home = self.open_block(PlannedBlock(path, "run", width, label, members, end, found.name))
        if self.activations:
            units, dim = width.out_units, width.unit_dim
            if end in self.seen and isinstance(act, nn.Module) and len(self.seen[end].inputs) == 1:
                units, dim = self.seen[end].units(), self.seen[end].unit_dim
            home.noisy.append(Noisy(end, found, units or 1, dim))
        return home

    def _custom(self, module: nn.Module, path: str, block: PlannedBlock | None, output: bool) -> None:
        """Plan a module with its own forward: by what the forward does if that can be traced, or else child by child."""
        why = reasons.NO_LAYERS
        if structure.has_own_forward(module):
            found: ForwardSummary | None
            try:
                found = trace_forward(module)
            except Exception as error:  # torch.fx raises whatever the user's code raises when it meets a proxy
                why = reasons.not_seen(error)
                found = self.recorded.get(path)
            if found is not None:
                ForwardPlanner(self, found, module, path, block, output).plan()
                return
        returned = returned_children(module) if output and block is None else set()
        self.returned |= {join(path, name) for name in returned}
        if self.activations:
            for name, function in function_attributes(module).items():
                if name in returned:
                    self.skip(path, str(activation(function)), reasons.OUTPUT)
                    continue
                transformer = isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
                units = int(module.linear1.out_features if transformer else 1)  # type: ignore[union-attr, arg-type]
                home = block or self.open_block(PlannedBlock(path, "activation"))
                home.noisy.append(Noisy(path, activation(function), units, -1, attribute=name))
            for call in functional_calls(type(module)):
                self.skip(path, call, why)
        for name, child in module.named_children():
            self.walk(child, join(path, name), block)
