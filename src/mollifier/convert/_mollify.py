"""mollify(model) and restore(model)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer

from mollifier.convert._attach import Settings, attach, make
from mollifier.convert._levels import REPORT, levels
from mollifier.convert._named import Pattern, named_blocks
from mollifier.convert._optimizer import add_to_optimizer, check_optimizer, remove_from_optimizer
from mollifier.convert._plan import Planner
from mollifier.convert._pretrained import leave_out_when_saved, saved_again
from mollifier.convert._report import Report
from mollifier.convert._shapes import watch
from mollifier.convert._spots import KEY, Holder, Spot, unswap
from mollifier.functional import Noise
from mollifier.nn import Copy, Levelled, RecurrentOptions
from mollifier.nn._gradients import keep_gradients, release_gradients
from mollifier.nn.copy import Projection

WRAPPERS = {
    "DistributedDataParallel": "mollify the model first and wrap it after: DistributedDataParallel(mollify(model))",
    "DataParallel": "mollify the model first and wrap it after: DataParallel(mollify(model))",
    "FullyShardedDataParallel": "mollify the model first and wrap it after",
    "OptimizedModule": "mollify the model first and compile it after: torch.compile(mollify(model))",
    "ScriptModule": "mollify the Python model, train and restore it, and script it after",
    "RecursiveScriptModule": "mollify the Python model, train and restore it, and script it after",
}


def mollify(
    model: nn.Module,
    *,
    activations: bool = True,
    blocks: Literal["auto"] | Pattern | Iterable[Pattern] | None = "auto",
    c: float = 20.0,
    a: tuple[float, float] = (-2.0, 2.0),
    residual: bool = False,
    projection: Projection = "auto",
    level: float = 1.0,
    train_noise: Noise = "sample",
    eval_noise: Noise = "expected",
    recurrent: RecurrentOptions | None = None,
    trace: bool = False,
    example: Any = None,
    optimizer: Optimizer | None = None,
) -> nn.Module:
    """Mollify a model in place: every unit copies the unit below with probability p, every activation is noisy.

        >>> import mollifier, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(40, 100), torch.nn.Sigmoid(), torch.nn.Linear(100, 1))
        >>> model = mollifier.mollify(model)
        >>> mollifier.levels(model)
        [1.0]

    Weights, parameter objects, names and state_dict keys stay; what is added lies under ``_mollifier`` names and is listed by
    `added_parameters`. Print `report(model)` to see what was done and what was not.

    Args:
        model: Any module. It is changed, and returned.
        activations: Make activations noisy (Algorithm 1)?
        blocks: What the copy goes around. ``"auto"``: runs of [affine, (norm), (dropout), activation] in every
            `nn.Sequential`, and residual blocks. Otherwise globs on module names (``"encoder.layer.*"``; ``*`` stops at a dot, ``**``
            does not) or predicates ``(name, module) -> bool``, one or several. None: no copies.
        c: Factor on the noise.
        a: Bounds of the uniform distribution that the learned a are drawn from.
        residual: Add the layer below to what a block computes, too. It stays at level 0, so that such a model is
            deployed as it is: `restore` refuses to drop what it was trained with.
        projection: ``"auto"``: pad where a block is wider than its input, project where it is narrower; ``"always"``: project.
        level: To start at.
        train_noise: In train(): ``"sample"``, ``"expected"`` (deterministic training) or ``"exact"``.
        eval_noise: In eval().
        recurrent: How `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells are mollified; by default gates, activations and copy, as far as
            the arguments above ask for them.
        trace: Trace each module's forward with torch.fx, to mollify what is called as a function in it.
        example: An input (tensor, tuple of arguments or dict of keywords) to run the model on once, so that every shape, the
            number of a and the forward order are known and not only read from the structure.
        optimizer: Of this model, made before: what is added is put into it, as a group with the first group's settings and no
            weight decay. `restore` takes it out again.

    Raises:
        ValueError: With all that is wrong; the model is unchanged then.
    """
    _refuse(model)
    check_optimizer(model, optimizer, "mollify")
    options = recurrent or RecurrentOptions(
        activations=activations, copy=blocks is not None, a=a, c=c, projection=projection
    )
    settings = Settings(c, a, residual, projection, level, train_noise, eval_noise, options)
    auto = isinstance(blocks, str) and blocks == "auto"
    named = set() if auto else named_blocks(model, blocks)
    planner = Planner(model, activations, auto, named, trace, {} if example is None else watch(model, example))
    planner.walk(model)
    check(planner)
    made, rows = make(model, planner.in_order(), settings)
    attach(model, made)  # nothing can fail from here on
    model.__dict__[REPORT] = Report(rows, planner.skipped)
    keep_gradients(model)
    leave_out_when_saved(model)
    add_to_optimizer(model, optimizer, added_parameters(model))
    return model


def _refuse(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"mollify: expected an nn.Module, got {type(model).__name__}")
    advice = next((WRAPPERS[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in WRAPPERS), None)
    if advice is not None:
        raise ValueError(f"mollify: the model is wrapped in {type(model).__name__}: {advice}")
    if any(isinstance(module, Spot) or REPORT in module.__dict__ for module in model.modules()):
        raise ValueError(
            "mollify: the model is mollified already. Use set_level to change its levels, or restore it first."
        )


def check(planner: Planner) -> None:
    if not planner.blocks:
        reasons = "".join(f"\n  {s.name} ({s.what}): {s.why}" for s in planner.skipped)
        raise ValueError(f"mollify: found nothing to mollify in {type(planner.model).__name__}.{reasons}")
    paths: dict[nn.Module, list[str]] = {}
    for name, module in planner.model.named_modules(remove_duplicate=False):
        paths.setdefault(module, []).append(name)
    touched = {block.path for block in planner.blocks} | {n.path for block in planner.blocks for n in block.noisy}
    shared = [" = ".join(map(repr, where)) for where in paths.values() if len(where) > 1 and touched & set(where)]
    if shared:
        raise ValueError(
            f"mollify: one module stands in several places: {'; '.join(shared)}. Each needs a level and an a of its own: "
            "give every place its own module (an activation costs nothing), or leave it out with blocks=[…]."
        )


def restore(model: nn.Module, *, force: bool = False, optimizer: Optimizer | None = None) -> nn.Module:
    """The plain network again, in place: same classes, keys, parameters and attributes as if it had never been mollified.

        >>> import mollifier, torch
        >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
        >>> mollifier.set_level(model, 0)
        >>> mollifier.restore(model)
        Sequential(
          (0): Linear(in_features=4, out_features=4, bias=True)
          (1): ReLU()
          (2): Linear(in_features=4, out_features=1, bias=True)
        )

    Args:
        model: A model that `mollify` converted.
        force: Also while a level is above 0, or with residual connections that the plain network does not have.
        optimizer: Of this model: the added parameters and their state are taken out of it, so that its state_dict loads into an
            optimiser of the plain network.

    Raises:
        ValueError: If it was not converted, or would not compute what was trained. Nothing is changed then.
    """
    spots = [m for m in model.modules() if isinstance(m, Spot) or _has_holder(m) or REPORT in m.__dict__]
    if not spots:
        raise ValueError(f"restore: {type(model).__name__} was not mollified by mollify(): it is what it was already")
    if not force:
        present = levels(model)
        if any(present):
            raise ValueError(
                f"restore: levels are {[round(level, 4) for level in present]}, so the plain network is not yet what was trained. Anneal to 0 (annealer.finish(), "
                "set_level(model, 0)) and train on, or restore(model, force=True)."
            )
        if any(isinstance(part, Copy) and part.residual for part in model.modules()):
            raise ValueError(
                "restore: the model was mollified with residual=True and trained with these connections; the plain network does not "
                "have them. Deploy it as it is (at level 0 it draws no noise), or restore(model, force=True)."
            )
    check_optimizer(model, optimizer, "restore")
    remove_from_optimizer(optimizer, added_parameters(model))
    release_gradients(model)
    saved_again(model)
    for module in spots:
        unswap(module)
        module.__dict__.pop(REPORT, None)
    return model


def _has_holder(module: nn.Module) -> bool:
    # (recurrent modules that were built mollified by hand keep what they have under the same name)
    return isinstance(module._modules.get(KEY), Holder)


def added_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that mollification added (a, projections), for an optimiser that was made before it.

    >>> import mollifier, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer.add_param_group({"params": mollifier.added_parameters(mollifier.mollify(model))})
    """
    parts = [module for module in model.modules() if isinstance(module, Levelled)]
    return list(dict.fromkeys(parameter for part in parts for parameter in part.parameters()))


def plain_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """The state_dict that the plain network loads strictly, at any level.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    >>> list(mollifier.plain_state_dict(model))
    ['0.weight', '0.bias']
    """
    state = model.state_dict()
    plain = type(state)((key, value) for key, value in state.items() if KEY not in key.split("."))
    metadata = getattr(state, "_metadata", {})
    plain._metadata = type(metadata)((k, v) for k, v in metadata.items() if KEY not in k.split("."))  # type: ignore[attr-defined]
    return plain
