"""Everything that `mollify` does before it changes the model: check, trace, plan, and create the parts to attach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

from torch import nn

from mollifier.convert._attach import Parts, Settings, make
from mollifier.convert._classes import Patch
from mollifier.convert._levels import REPORT
from mollifier.convert._named import Exclude, Excluded, Pattern, named_blocks
from mollifier.convert._plan import Planner
from mollifier.convert._report import Report
from mollifier.convert._shapes import record_calls
from mollifier.nn import RecurrentOptions

WRAPPERS = {
    "DistributedDataParallel": "mollify the model first and wrap it afterwards: DistributedDataParallel(mollify(model))",
    "DataParallel": "mollify the model first and wrap it afterwards: DataParallel(mollify(model))",
    "FullyShardedDataParallel": "mollify the model first and wrap it afterwards",
    "OptimizedModule": "mollify the model first and compile it afterwards: torch.compile(mollify(model))",
    "ScriptModule": "mollify the Python model, train and restore it, and script it afterwards",
    "RecursiveScriptModule": "mollify the Python model, train and restore it, and script it afterwards",
}


def prepare(
    model: nn.Module,
    settings: Settings,
    activations: bool = True,
    blocks: Literal["auto"] | Pattern | Iterable[Pattern] | None = "auto",
    exclude: Excluded | Iterable[Excluded] | None = None,
    output: bool = False,
    example: Any = None,
) -> tuple[Planner, list[Parts], Report]:
    """Return the plan, the parts that it asks for, and the report, without touching the model.

    Raises:
        ValueError: Lists everything that is wrong.
    """
    _refuse(model)
    auto = isinstance(blocks, str) and blocks == "auto"
    named = set() if auto else named_blocks(model, blocks)
    seen, recorded = ({}, {}) if example is None else record_calls(model, example)
    planner = Planner(model, activations, auto, named, Exclude(model, exclude), seen, recorded)
    planner.walk(model, output=not output)
    planner.exclude.check()
    _check(planner)
    recurrent = settings.recurrent or RecurrentOptions(
        activations=activations, copy=blocks is not None, a=settings.a, c=settings.c, projection=settings.projection
    )
    made, rows = make(model, planner.in_order(), replace(settings, recurrent=recurrent))
    return planner, made, Report(rows, planner.skipped)


def _refuse(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"mollify: expected an nn.Module, got {type(model).__name__}")
    advice = next((WRAPPERS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in WRAPPERS), None)
    if advice is not None:
        raise ValueError(f"mollify: the model is wrapped in {type(model).__name__}: {advice}")
    if any(isinstance(module, Patch) or REPORT in module.__dict__ for module in model.modules()):
        raise ValueError(
            "mollify: the model is mollified already. Use set_level to change its levels, or restore it first."
        )


def _check(planner: Planner) -> None:
    if not planner.blocks:
        reasons = "".join(f"\n  {s.name} ({s.what}): {s.why}" for s in planner.skipped)
        raise ValueError(f"mollify: found nothing to mollify in {type(planner.model).__name__}.{reasons}")
    _refuse_replaced_forwards(planner)
    paths: dict[nn.Module, list[str]] = {}
    for name, module in planner.model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(name)
    touched = {block.path for block in planner.blocks if not block.members}
    touched |= {noisy.path for block in planner.blocks for noisy in block.noisy if not block.members}
    # A layer or an activation may be part of several runs, each with its own level, but no two runs may consist of the same pair.
    runs = [block for block in planner.blocks if block.members]
    pairs = [tuple(map(planner.model.get_submodule, (run.members[0], run.end))) for run in runs]
    touched |= {run.members[0] for run, pair in zip(runs, pairs, strict=True) if pairs.count(pair) > 1}
    shared = [" = ".join(map(repr, where)) for where in paths.values() if len(where) > 1 and touched & set(where)]
    if shared:
        raise ValueError(
            f"mollify: one module is used in several places: {'; '.join(shared)}. Each place needs its own level and its own a: "
            "give every place its own module (an activation costs nothing), or leave it out with exclude=… or blocks=[…]."
        )


def _refuse_replaced_forwards(planner: Planner) -> None:
    """A patch changes the class of a module, and a forward that was set on the module itself would hide it."""
    patched = {block.path for block in planner.blocks if not block.members}
    patched |= {path for block in planner.blocks for path in (*block.members, block.end) if block.members}
    patched -= {noisy.path for block in planner.blocks for noisy in block.noisy if noisy.attribute}
    modules = {path: planner.model.get_submodule(path) for path in sorted(patched)}
    replaced = [path or "(the model)" for path, module in modules.items() if "forward" in vars(module)]
    if replaced:
        raise ValueError(
            f"mollify: the forward of {', '.join(replaced)} was replaced on the module itself (module.forward = …), and would hide what "
            "mollify adds to its class: mollify first and replace it afterwards, define it in a class, or leave the module out with exclude=…"
        )
