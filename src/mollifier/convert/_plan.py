"""Finding what to mollify. Nothing is changed here: a model that cannot be converted is left as it was."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx, nn

from mollifier.activations import activation, of_module
from mollifier.convert import _structure as structure
from mollifier.convert._blocks import Block, Noisy, join
from mollifier.convert._report import Skipped
from mollifier.convert._shapes import Seen, seen_width
from mollifier.convert._source import function_attributes, functional_calls
from mollifier.convert._structure import Width
from mollifier.convert._trace import Site, refused, trace
from mollifier.nn import Levelled, MollifiedBlock
from mollifier.nn.recurrent import CellForward, RecurrentForward

OUTPUT_LAYER = "no activation follows it; the paper, too, leaves the output layer as it is"
NO_COPY = (
    "its place in the forward is not known, so nothing is copied past it: name its block with blocks=[…], or trace=True"
)
ATTENTION = "attention has no activation to mollify: name the layer around it with blocks=[…]"
UNKNOWN = "it is not in the table: if it is an activation, add it with mollifier.register"
BY_HAND = "it was built mollified by hand, and keeps its own level"


@dataclass
class Planner:
    """Walks a model in forward order and collects the blocks.

    Attributes:
        model: The model.
        activations: Make activations noisy?
        auto: Find runs and residual blocks?
        named: Paths of the modules named as blocks.
        tracing: Trace forwards with torch.fx?
        seen: What an example showed, by module name; empty without one.
    """

    model: nn.Module
    activations: bool
    auto: bool
    named: set[str]
    tracing: bool
    seen: dict[str, Seen]
    blocks: list[Block] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def walk(self, module: nn.Module, path: str = "", block: Block | None = None, before: Width | None = None) -> None:
        """Plan one module and what is in it, inside a block or not; ``before`` is the width of the layer before it."""
        if isinstance(module, (Levelled, MollifiedBlock, RecurrentForward, CellForward)):
            self._skip(path, module, BY_HAND)
            return
        if structure.is_recurrent(module):
            self._recurrent(module, path)
            return
        if path in self.named:
            block = self._open(Block(path, "named", self._named_width(path, module)))
        elif block is None and self.auto and (width := structure.residual_width(module)) is not None:
            block = self._open(Block(path, "residual", width))
        if self._is_leaf(module, path, block, before):
            return
        if self.activations:
            self._attributes(module, path, block)
        if structure.is_plain_sequential(module):
            self._sequential(module, path, block)
        else:
            self._custom(module, path, block)

    def in_order(self) -> list[Block]:
        """The blocks in forward order: as an example called them, else as they were found (a graph is in order already)."""
        return sorted(self.blocks, key=self._first_call) if self.seen and not self.tracing else self.blocks

    def _first_call(self, block: Block) -> float:
        path = block.path
        if block.run is not None:
            path = join(path, list(self.model.get_submodule(path)._modules)[block.run[0]])
        return self.seen[path].first if path in self.seen else float("inf")

    def _open(self, block: Block) -> Block:
        self.blocks.append(block)
        return block

    def _skip(self, path: str, what: nn.Module | str, why: str) -> None:
        shown = what if isinstance(what, str) else type(what).__name__
        self.skipped.append(Skipped(path or "(the model)", shown, why))

    def _named_width(self, path: str, module: nn.Module) -> Width:
        if path in self.seen:
            return seen_width(path, module, self.seen[path])
        known = structure.residual_width(module) or structure.chain_width(module)
        return known or Width(None, None, structure.unit_dim_of(module))

    def _is_leaf(self, module: nn.Module, path: str, block: Block | None, before: Width | None) -> bool:
        """Plan or skip a module that there is nothing to look into; False for all others."""
        try:
            found = of_module(module)
        except ValueError as error:
            self._skip(path, module, str(error))
            return True
        if found is not None:
            if self.activations:
                units, dim = self._units(path, block, before)
                home = block or self._open(Block(path, "activation"))
                home.noisy.append(Noisy(path, found, units, dim))
            return True
        reason = None
        if isinstance(module, structure.RECURRENT):
            reason = "it is recurrent with a forward of its own; name its block with blocks=[…]"
        elif isinstance(module, nn.MultiheadAttention):
            reason = ATTENTION if block is None else ""
        elif structure.has_weights_only(module):
            reason = NO_COPY if block is None else ""
        elif type(module) in structure.NO_TANGENT:
            reason = structure.NO_TANGENT[type(module)] if self.activations else ""
        elif structure.is_strange(module) and not structure.is_shortcut(path.rpartition(".")[2]):
            reason = UNKNOWN if self.activations and not functional_calls(type(module)) else None
        if reason:
            self._skip(path, module, reason)
        return reason is not None

    def _recurrent(self, module: nn.Module, path: str) -> None:
        """One block a layer: recurrent layers bring their own copy, also where they were named."""
        for layer, width in enumerate(structure.recurrent_widths(module)):
            self._open(Block(path, "recurrent", width, layer=layer))

    def _units(self, path: str, block: Block | None, before: Width | None) -> tuple[int, int]:
        """How many a an activation gets, and where: by its example, by the layer before it, or one for all."""
        if path in self.seen:
            return self.seen[path].units() or 1, self.seen[path].unit_dim
        if before is not None and before.out_units is not None:
            return before.out_units, before.unit_dim
        if block is not None and block.kind == "residual" and block.width is not None:
            owner = self.model.get_submodule(block.path)
            return structure.residual_units(owner, path.removeprefix(f"{block.path}.")), block.width.unit_dim
        return 1, -1

    def _attributes(self, module: nn.Module, path: str, block: Block | None) -> None:
        for name, function in function_attributes(module).items():
            transformer = isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
            units = module.linear1.out_features if transformer else 1  # type: ignore[union-attr]
            home = block or self._open(Block(path, "activation"))
            home.noisy.append(Noisy(path, activation(function), int(units), -1, attribute=name))  # type: ignore[arg-type]

    def _sequential(self, module: nn.Module, path: str, block: Block | None) -> None:
        # (named_children would leave out a layer that stands there twice, and shift the places of the rest)
        children = [(name, child) for name, child in module._modules.items() if child is not None]
        runs = structure.runs([child for _, child in children]) if self.auto and block is None else {}
        run: Block | None = None
        before: Width | None = None
        for index, (name, child) in enumerate(children):
            width = structure.affine_width(child)
            if index in runs:
                run = self._open(Block(path, "run", width, run=(index, runs[index])))
            if width is not None and run is None and block is None and join(path, name) not in self.named:
                self._skip(join(path, name), child, OUTPUT_LAYER)
            else:
                self.walk(child, join(path, name), run or block, before)
            if run is not None and run.run is not None and run.run[1] == index:
                run = None
            before = width or (before if isinstance(child, structure.BETWEEN) else None)

    def _custom(self, module: nn.Module, path: str, block: Block | None) -> None:
        """Plan a module with a forward of its own: by its graph if asked, else child by child."""
        why = "it is called inside forward: pass trace=True, or make it a module"
        if self.tracing and structure.has_own_forward(module):
            try:
                graph, sites = trace(module)
            except Exception as error:  # torch.fx raises whatever the user's code raises when it meets a proxy
                first = (str(error).splitlines() or [""])[0][:120]
                why = f"its forward cannot be traced ({type(error).__name__}: {first}): make it a module"
            else:
                if self.activations:
                    for call, reason in refused(graph):
                        self._skip(path, call, reason)
                self._graph(graph, sites, module, path, block)
                return
        if self.activations:
            for call in functional_calls(type(module)):
                self._skip(path, call, why)
        for name, child in module.named_children():
            self.walk(child, join(path, name), block)

    def _graph(self, graph: fx.Graph, sites: list[Site], module: nn.Module, path: str, block: Block | None) -> None:
        """Plan a traced forward: its activations, and its children in the order of their calls."""
        by_node = {site.node: site for site in sites}
        in_runs = {site.layer for site in sites} if self.auto and block is None else set()
        calls = [str(node.target) for node in graph.nodes if node.op == "call_module"]
        done: set[str] = set()
        for node in graph.nodes:
            name = str(node.target)
            if node in by_node:
                self._site(by_node[node], module, path, block, shared=calls.count(name) > 1, again=name in done)
            elif node.op == "call_module" and name not in done and node not in in_runs:
                child = module.get_submodule(name)
                if structure.affine_width(child) is not None and block is None:
                    self._skip(join(path, name), child, OUTPUT_LAYER)
                else:
                    self.walk(child, join(path, name), block)
            if node.op == "call_module":
                done.add(name)
        for name, child in module.named_children():
            if not any(called == name or called.startswith(f"{name}.") for called in done):
                self.walk(child, join(path, name), block)

    def _site(
        self, site: Site, module: nn.Module, path: str, block: Block | None, *, shared: bool, again: bool
    ) -> None:
        home, label = block, site.label()
        if home is None and self.auto and site.width is not None:
            home = self._open(Block(path, "traced", site.width, site=site.index, label=label))
        if site.function is None:  # a module: its noise is its own, once, even where it is called at several sites
            name = str(site.node.target)
            if not again:
                alone = shared and block is None
                self.walk(
                    module.get_submodule(name),
                    join(path, name),
                    None if alone else home,
                    None if shared else site.width,
                )
        elif self.activations:
            width = site.width or (block.width if block is not None and block.kind == "residual" else None)
            units = width.out_units if width is not None else None
            home = home or self._open(Block(path, "traced", site=site.index, label=label))
            home.noisy.append(Noisy(path, site.function, units or 1, width.unit_dim if width else -1, site=site.index))
