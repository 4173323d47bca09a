"""Create the parts that a plan asks for and attach them to the model."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import Tensor, nn

from mollifier.convert._blocks import Noisy, PlannedBlock
from mollifier.convert._classes import KEY
from mollifier.convert._containers import SequentialPatch
from mollifier.convert._levels import is_mollified
from mollifier.convert._live import BoundaryPatch, ForwardPatch
from mollifier.convert._patches import (
    ActivationPatch,
    BetweenPatch,
    BlockPatch,
    CellPatch,
    EncoderLayerPatch,
    EncoderPatch,
    LayerPatch,
    RecurrentPatch,
    join_run,
    own_run,
    patch,
    state_of,
)
from mollifier.convert._plan import Planner
from mollifier.convert._report import Row
from mollifier.convert._runs import RUNS, RunEnd, RunRecord
from mollifier.convert._structure import is_plain_sequential
from mollifier.functional import Noise
from mollifier.nn import Copy, NoisyActivation, RecurrentOptions
from mollifier.nn.copy import Projection
from mollifier.nn.recurrent import RecurrentMollifier


@dataclass(frozen=True)
class Settings:
    """The options of `mollify`."""

    c: float = 20.0
    a: tuple[float, float] = (-2.0, 2.0)
    residual: bool = False
    projection: Projection = "auto"
    level: float = 1.0
    train_noise: Noise = "sample"
    eval_noise: Noise = "expected"
    recurrent: RecurrentOptions | None = None

    def __post_init__(self) -> None:
        # The modules check their own arguments; on the meta device they draw nothing.
        nowhere: dict[str, Any] = {"device": "meta"}
        Copy(projection=self.projection, **self.shared(), **nowhere)
        NoisyActivation(a=self.a, c=self.c, **nowhere)

    def shared(self) -> dict[str, Any]:
        """Return the options that every part gets."""
        return {"level": self.level, "train_noise": self.train_noise, "eval_noise": self.eval_noise}


@dataclass
class Parts:
    """The parts of one block, created but not yet attached."""

    block: PlannedBlock
    copy: Copy | None = None
    noisy: list[NoisyActivation] | None = None
    recurrent: RecurrentMollifier | None = None


def make(model: nn.Module, blocks: list[PlannedBlock], settings: Settings) -> tuple[list[Parts], list[Row]]:
    """Create all parts and the rows of the report, without touching the model."""
    made: list[Parts] = []
    rows: list[Row] = []
    by_path: dict[str, RecurrentMollifier] = {}
    for order, block in enumerate(blocks):
        if block.layer is not None:
            if block.path not in by_path:
                module = model.get_submodule(block.path)
                assert settings.recurrent is not None
                by_path[block.path] = RecurrentMollifier(module, settings.recurrent, **settings.shared())
                made.append(Parts(block, recurrent=by_path[block.path]))
            layer = by_path[block.path].layer(block.layer)
            for part in [layer, *(layer.copies or [])]:
                part.order = order
            shown, rule = layer.parts(), layer.copy_rule()
            rows.append(Row(block.name, block.kind, shown, str(block.width), rule, settings.level, order))
            continue
        parts = _feed_forward(model, block, settings)
        for piece in [parts.copy, *(parts.noisy or [])]:
            if piece is not None:
                piece.order = order
        shown = [f"{n.activation} ({n.units} a)" for n in block.noisy]
        rule = parts.copy.rule if parts.copy else "none"
        rows.append(Row(block.name, block.kind, shown, str(block.width or ""), rule, settings.level, order))
        made.append(parts)
    return made, rows


def _feed_forward(model: nn.Module, block: PlannedBlock, settings: Settings) -> Parts:
    options = {**settings.shared(), **_where(model, block)}
    copy = None
    if (w := block.width) is not None:
        shape: dict[str, Any] = {
            "unit_dim": w.unit_dim,
            "projection": settings.projection,
            "residual": settings.residual,
        }
        copy = Copy(w.in_units, w.out_units, **shape, **options)
    noisy = [
        NoisyActivation(n.activation, n.units, unit_dim=n.unit_dim, a=settings.a, c=settings.c, **options)
        for n in block.noisy
    ]
    return Parts(block, copy, noisy)


def _where(model: nn.Module, block: PlannedBlock) -> dict[str, Any]:
    """Return the device and dtype for added parts: those of the block's own parameters, or else of the model's."""
    inside = next(model.get_submodule(block.path).parameters(), None)
    like: Tensor | None = next(model.parameters(), None) if inside is None else inside
    return {"device": like.device, "dtype": like.dtype} if like is not None and like.is_floating_point() else {}


def attach(model: nn.Module, made: list[Parts], planner: Planner) -> None:
    """Attach all parts to the model."""
    for parts in made:
        block = parts.block
        if parts.recurrent is not None:
            _attach_recurrent(model, block.path, parts.recurrent)
        elif block.members and parts.copy is not None:
            _attach_run(model, block, parts.noisy[0] if parts.noisy else None, parts.copy)
        else:
            if parts.copy is not None:
                _attach_copy(model, block, parts.copy)
            for planned, noise in zip(block.noisy, parts.noisy or [], strict=True):
                _attach_noise(model, planned, noise)
    for path, calls in planner.heard.items():
        if isinstance(module := model.get_submodule(path), ForwardPatch):
            for key, name in calls:
                state_of(module).add_call(key, name)
            state_of(module).places, state_of(module).in_eval = (
                planner.forwards[path].places,
                planner.forwards[path].in_eval,
            )
    for place in planner.plain:
        if isinstance(module := model.get_submodule(place), ActivationPatch):
            state_of(module).alone = False
    for owner, child in planner.inside:
        if isinstance(model.get_submodule(owner), ForwardPatch):
            patch(model.get_submodule(child), BoundaryPatch)
    for module in list(model.modules()):
        if isinstance(module, ForwardPatch):
            _rebind(module)
        if (
            isinstance(module, nn.TransformerEncoder)
            and "use_nested_tensor" in module.__dict__
            and is_mollified(module)
        ):
            patch(module, EncoderPatch)


def _rebind(module: nn.Module) -> None:
    """Let attributes that hold a method of the module hold the intercepted one: ``self.act = self.swish``."""
    for name, value in list(vars(module).items()):
        if isinstance(value, MethodType) and value.__self__ is module:
            method = getattr(type(module), getattr(value, "__name__", ""), None)
            if method is not None and getattr(method, "__wrapped__", None) is value.__func__:
                state_of(module).functions[name] = value
                module.__dict__[name] = MethodType(method, module)


def _attach_recurrent(model: nn.Module, path: str, added: RecurrentMollifier) -> None:
    module = model.get_submodule(path)
    module._modules[KEY] = added.train(module.training)
    patch(module, RecurrentPatch if isinstance(module, nn.RNNBase) else CellPatch)


def _attach_run(model: nn.Module, block: PlannedBlock, noise: NoisyActivation | None, copy: Copy) -> None:
    layer, *between = map(model.get_submodule, block.members)
    begun: list[RunRecord] = layer.__dict__.get(RUNS, [])
    run = begun[0] if begun else RunRecord()
    if not begun:
        join_run(layer, run, LayerPatch)
    for module in between:
        if run not in module.__dict__.get(RUNS, []):
            join_run(module, run, BetweenPatch)
    module = model.get_submodule(block.end)
    state = state_of(module)
    number = state.add_end(RunEnd(noise, copy, block.function, run))
    for key in filter(None, block.keys):
        state.add_call(key, block.function, number)
    patch(module, ForwardPatch if block.end == block.path else ActivationPatch)
    home = model.get_submodule(block.path)
    if is_plain_sequential(home):
        patch(home, SequentialPatch)
    else:
        own_run(home, run)


def _attach_copy(model: nn.Module, block: PlannedBlock, copy: Copy) -> None:
    module = model.get_submodule(block.path)
    state_of(module).copy = copy.train(module.training)
    patch(module, BlockPatch)
    if isinstance(module, nn.TransformerEncoderLayer):
        patch(module, EncoderLayerPatch)


def _attach_noise(model: nn.Module, planned: Noisy, noise: NoisyActivation) -> None:
    module = model.get_submodule(planned.path)
    noise.train(module.training)
    state = state_of(module)
    if planned.attribute:
        state.add_loose(planned.attribute, noise)
        state.functions[planned.attribute] = module.__dict__[planned.attribute]
        module.__dict__[planned.attribute] = noise
        if isinstance(module, nn.TransformerEncoderLayer):
            patch(module, EncoderLayerPatch)
    elif planned.key:
        state.add_loose(planned.key, noise)
        patch(module, ForwardPatch)
    else:
        state.noise = noise
        patch(module, ActivationPatch)
