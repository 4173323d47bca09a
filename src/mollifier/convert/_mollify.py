"""mollify(model) and restore(model)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mollifier.convert._attach import Settings, attach
from mollifier.convert._classes import KEY, Patch, restored_class, unpatch
from mollifier.convert._levels import REPORT, levels
from mollifier.convert._named import Excluded, Pattern
from mollifier.convert._optimizer import add_to_optimizer, check_optimizer, remove_from_optimizer
from mollifier.convert._patches import MollifierState
from mollifier.convert._prepare import prepare
from mollifier.convert._pretrained import leave_out_when_saved, saved_again
from mollifier.convert._report import Report
from mollifier.functional import Noise
from mollifier.nn import Annealed, Copy, RecurrentOptions
from mollifier.nn._gradients import keep_gradients, release_gradients
from mollifier.nn.copy import Projection


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
    exclude: Excluded | Iterable[Excluded] | None = None,
    output: bool = False,
    example: Any = None,
    optimizer: Optimizer | None = None,
) -> nn.Module:
    """Mollify a model in place: every unit copies the unit below with probability p, every activation is noisy.

        >>> import mollifier, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(40, 100), torch.nn.Sigmoid(), torch.nn.Linear(100, 1))
        >>> model = mollifier.mollify(model)
        >>> mollifier.levels(model)
        [1.0]

    Weights, parameter objects, names and state_dict keys stay. Added parameters have ``_mollifier`` in their names, and
    `added_parameters` returns them. Print `report(model)` to see what was mollified and what was not.

    Args:
        model: Any module. It is changed, and returned.
        activations: Whether to make activations noisy (Algorithm 1).
        blocks: What the copy goes around. ``"auto"``: runs of [affine, (norm), (dropout), activation] in every
            `nn.Sequential`, and residual blocks. Otherwise globs on module names (``"encoder.layer.*"``; ``*`` stops at a dot, ``**``
            does not) or predicates ``(name, module) -> bool``, one or several. None: no copies.
        c: Factor on the noise.
        a: Bounds of the uniform distribution that the learned a are drawn from.
        residual: Also add the layer below to the output of a block. The connection stays at level 0, so such a model is
            deployed as it is: `restore` refuses to remove connections that the model was trained with.
        projection: How a block copies an input of another width. ``"fixed"``: the input is padded if the block is wider, and goes through a fixed
            projection if it is narrower, see `mollifier.nn.FixedProjection`. ``"learned"``: this projection is learned. ``"always"``: a
            learned projection in both cases. ``"auto"`` is ``"fixed"``.
        level: The level to start at.
        train_noise: Noise in train(): ``"sample"``, ``"expected"`` (deterministic training) or ``"exact"``.
        eval_noise: Noise in eval().
        recurrent: How `nn.LSTM`, `nn.GRU`, `nn.RNN` and their cells are mollified; by default gates, activations and copy, unless
            the arguments above turn them off.
        exclude: What to leave alone: globs on module names or on the names of the report (``"forward(fc3, tanh)"``), module
            types, predicates ``(name, module) -> bool``, or functions such as `torch.sigmoid`, one or several.
        output: Whether to mollify also the activation whose result the model returns. By default it stays plain, with the layer before it.
        example: An input (tensor, tuple of arguments or dict of keywords) to run the model on once, so that every shape, the
            number of a and the forward order are observed instead of inferred from the structure. Lazy layers are initialised by it, as
            by any other call of the model.
        optimizer: An existing optimiser of this model. The added parameters become a group of it, with the first group's settings and no
            weight decay. `restore` removes them again.

    Raises:
        ValueError: Lists everything that is wrong. The model is then unchanged.
    """
    settings = Settings(c, a, residual, projection, level, train_noise, eval_noise, recurrent)
    planner, made, found = prepare(model, settings, activations, blocks, exclude, output, example)
    check_optimizer(model, optimizer, "mollify")
    attach(model, made, planner)  # nothing can fail from here on
    model.__dict__[REPORT] = found
    keep_gradients(model)
    leave_out_when_saved(model)
    add_to_optimizer(model, optimizer, added_parameters(model))
    return model


def plan(model: nn.Module, **options: Any) -> Report:
    """Return what `mollify` would do with these options, without changing the model or the random state; an example initialises lazy layers.

        >>> import mollifier, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> print(mollifier.plan(model))
        mollified: 1 block
         #  block  kind  units  copy  noisy activations  level
         1  [0:1]  run   4 → 8  pad   tanh (8 a)         1
        not mollified:
          2 (Linear): output layer: no activation follows it
        >>> mollifier.is_mollified(model)
        False

    Args:
        model: Any module.
        **options: The options of `mollify`.

    Raises:
        ValueError: As `mollify` does.
    """
    names = ("activations", "blocks", "exclude", "output", "example")
    wanted = {name: options.pop(name) for name in names if name in options}
    with torch.random.fork_rng():
        return prepare(model, Settings(**options), **wanted)[2]


def restore(model: nn.Module, *, force: bool = False, optimizer: Optimizer | None = None) -> nn.Module:
    """Restore the plain network in place: the same classes, keys, parameters and attributes as if it had never been mollified.

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
        force: Restore even while a level is above 0, or with residual connections that the plain network does not have.
        optimizer: The optimiser of this model. The added parameters and their state are removed from it, so that its state_dict loads into an
            optimiser of the plain network.

    Raises:
        ValueError: If the model was not converted, or the plain network would not compute what was trained. Nothing is changed then.
    """
    patched = [m for m in model.modules() if isinstance(m, Patch) or _has_state(m) or REPORT in m.__dict__]
    if not patched:
        raise ValueError(f"restore: {type(model).__name__} was not mollified by mollify(), so there is nothing to undo")
    if not force:
        present = levels(model)
        if any(present):
            raise ValueError(
                f"restore: levels are {[round(level, 4) for level in present]}, so the plain network is not what was trained. Anneal to 0 (annealer.finish(), "
                "set_level(model, 0)) and continue training, or call restore(model, force=True)."
            )
        if any(isinstance(part, Copy) and part.residual for part in model.modules()):
            raise ValueError(
                "restore: the model was mollified with residual=True and trained with these connections; the plain network does not "
                "have them. Deploy it as it is (at level 0 it draws no noise), or restore(model, force=True)."
            )
    kinds = [restored_class(module) if isinstance(module, Patch) else type(module) for module in patched]
    if None in kinds:
        name = type(patched[kinds.index(None)]).__name__
        raise ValueError(
            f"restore: after mollify, the class of a module was changed to {name}, in a way that cannot be undone here. "
            "Undo that first, then restore."
        )
    check_optimizer(model, optimizer, "restore")
    remove_from_optimizer(optimizer, added_parameters(model))
    release_gradients(model)
    saved_again(model)
    for module, kind in zip(patched, kinds, strict=True):
        unpatch(module, kind)
    return model


def _has_state(module: nn.Module) -> bool:
    # (recurrent modules that were built mollified by hand have their state under the same name, and keep it)
    return isinstance(module._modules.get(KEY), MollifierState)


def added_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that mollification added (a, projections), for an optimiser that was created before.

    >>> import mollifier, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer.add_param_group({"params": mollifier.added_parameters(mollifier.mollify(model))})
    """
    parts = [module for module in model.modules() if isinstance(module, Annealed)]
    return list(dict.fromkeys(parameter for part in parts for parameter in part.parameters()))


def plain_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Return the state_dict of the plain network, which loads strictly into it, at any level.

    >>> import mollifier, torch
    >>> model = mollifier.mollify(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)))
    >>> list(mollifier.plain_state_dict(model))
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    state = model.state_dict()
    plain = type(state)((key, value) for key, value in state.items() if KEY not in key.split("."))
    metadata = getattr(state, "_metadata", {})
    plain._metadata = type(metadata)((k, v) for k, v in metadata.items() if KEY not in k.split("."))  # type: ignore[attr-defined]
    return plain
