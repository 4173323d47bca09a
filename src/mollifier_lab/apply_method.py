"""Apply a method to a network (mollification, or noise on its weights), and restore the plain network at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

import mollifier
from mollifier.nn import Annealed, RecurrentOptions, WeightNoise
from mollifier.nn.copy import Projection
from mollifier_lab.errors import LabError
from mollifier_lab.models.branches import Residual
from mollifier_lab.models.sparse import SparseInputLinear
from mollifier_lab.models.steps import has_steps, mollify_steps, restore_steps
from mollifier_lab.settings import RecurrentSettings, RunConfig, Settings


def apply_method(model: nn.Module, config: RunConfig, example: Any = None) -> mollifier.Annealer | None:
    """Apply the config's method to the plain network of its architecture, in place, and return the annealer if there is one.

        >>> from mollifier_lab.models import mlp
        >>> config = RunConfig.make("parity", "mollified", k=10.0)
        >>> annealer = apply_method(model := mlp(40, 1, width=100, depth=6), config)
        >>> annealer.step(0.7)
        >>> [round(level, 2) for level in mollifier.levels(model)]
        [0.69, 0.9, 0.97, 0.99, 1.0, 1.0]

    Args:
        model: The network that the task's `model()` builds.
        config: The config of the run.
        example: An example input for `mollify`.

    Raises:
        LabError: If the method finds nothing to do in this network, or its settings make no sense.
    """
    method, settings = config.spec, config.settings
    try:
        if method.apply is not None:
            found = method.apply(model, settings, example)
            if (found is not None) != method.anneals:
                wanted = "an annealer (anneals=True)" if method.anneals else "None (anneals=False)"
                raise LabError(f"method {method.name!r}: it returned {found!r}, expected {wanted}")
            return found if method.anneals else None
        if method.weight_noise:
            add_weight_noise(model, settings.weight_std)
        elif method.mollify is not None:
            if has_steps(model):
                mollify_steps(model, **method.mollify)
            else:
                _mollify(model, dict(method.mollify), settings, example)
            _check_projection(model, settings)
        return make_annealer(model, settings) if method.annealed else None
    except ValueError as error:
        raise LabError(f"method {method.name!r} on task {config.task!r}: {error}") from None


def finish(
    model: nn.Module, annealer: mollifier.Annealer | None = None, undo: Callable[[nn.Module], object] | None = None
) -> nn.Module:
    """End annealing and turn the model, in place, back into the plain network that `apply_method` was given.

    >>> from mollifier_lab.models import mlp
    >>> model = mlp(4, 1, width=8, depth=1)
    >>> annealer = apply_method(model, RunConfig.make("parity", "mollified"))
    >>> type(finish(model, annealer)[1])
    <class 'torch.nn.modules.activation.Sigmoid'>

    Without an annealer (for a copy of the model, for example) the levels are set to 0 as well. ``undo`` is the method's, if it has one.
    """
    if annealer is not None:
        annealer.finish()
    if undo is not None:
        undo(model)
    if mollifier.is_mollified(model):
        mollifier.set_level(model, 0.0)
        if any(isinstance(part, WeightNoise) for part in model.modules()):
            remove_weight_noise(model)
        elif has_steps(model):
            restore_steps(model)
        else:
            mollifier.restore(model)
    return model


def make_annealer(model: nn.Module, settings: Settings) -> mollifier.Annealer:
    """Return the annealer that the settings describe. If there is a horizon, it is used instead of k."""
    horizon = settings.horizon or None
    usual = settings.schedule == "adaptive" and settings.loss_average == Settings.loss_average
    decay: Any = "auto" if usual else settings.loss_average or None
    return mollifier.Annealer(
        model,
        settings.schedule,
        k=settings.k if horizon is None and settings.schedule == "exponential" else None,
        horizon=horizon,
        p_min=settings.p_min,
        loss_average=None if settings.v == "one" else decay,
        stop_at=settings.stop_at if settings.stop_at >= 0 else None,
        then=settings.then,
        every=settings.anneal_every,
        width=settings.front_width or None,
    )


def _mollify(model: nn.Module, options: dict[str, Any], settings: Settings, example: Any) -> None:
    asked = options.pop("recurrent", None)
    if not settings.copy:
        options["blocks"] = None
    if isinstance(settings, RecurrentSettings):
        around = any(isinstance(part, Residual) and _is_recurrent(part) for part in model.modules())
        # if a connection goes around a recurrent layer, the copy goes around both
        recurrent = {"copy": not around, **_recurrent(settings), **(asked or {})}
        recurrent["copy"] = recurrent["copy"] and settings.copy
        options["recurrent"] = RecurrentOptions(**recurrent)
    if any(isinstance(part, Residual) for part in model.modules()):
        options.setdefault("blocks", is_block)
    mollifier.mollify(model, c=settings.c, projection=_projection(settings), example=example, **options)
    _project_sparse_inputs(model)
    for part in model.modules():
        if isinstance(part, mollifier.nn.NoisyActivation):
            part.push = settings.push
        if isinstance(part, Residual):
            _share_one_level(part)


def _project_sparse_inputs(model: nn.Module) -> None:
    """Make the learned projection parallel to a sparse input layer sparse as well, because it reads the same input."""
    widths = {part.in_features for part in model.modules() if isinstance(part, SparseInputLinear)}
    for part in model.modules():
        if isinstance(part, mollifier.nn.Copy) and type(part.projection) is nn.Linear and part.in_units in widths:
            SparseInputLinear.of(part.projection)


def _projection(settings: Settings) -> Projection:
    """Return how narrowing layers copy; by default with a learned projection, as in all results so far (`mollify` has a fixed one)."""
    return "learned" if settings.projection == "auto" else settings.projection


def _check_projection(model: nn.Module, settings: Settings) -> None:
    """Refuse a projection setting if no copy needs a projection."""
    copies = [part for part in model.modules() if isinstance(part, mollifier.nn.Copy)]
    if settings.projection != "auto" and all(copy.projection is None for copy in copies):
        raise ValueError(
            f"projection={settings.projection!r} would do nothing: no copy of this network has to change its width. Leave it out."
        )


def _recurrent(settings: RecurrentSettings) -> dict[str, Any]:
    return {
        "c": settings.c,
        "projection": _projection(settings),
        "push": settings.push,
        "unbiased_gates": settings.unbiased_gates,
        "time": settings.time,
        "carry_time": getattr(settings, "carry_time", False),
        "time_cap": settings.time_cap or None,
    }


def is_block(name: str, module: nn.Module) -> bool:
    """Find what is copied past in a network with connections around its layers: layers with their connections, and layers without one.

    The result is π h + (1 - π) (h + ψ), the layer with the dashed line in the paper's figure. A copy inside the connection would give 2 h at level 1.
    """
    if isinstance(module, Residual):
        return True
    layer = isinstance(module, nn.Sequential) and len(module) > 0 and isinstance(module[0], nn.Linear)
    return layer and not name.endswith("body")


def _is_recurrent(part: Residual) -> bool:
    return isinstance(part.body, nn.RNNBase)


def _share_one_level(part: nn.Module) -> None:
    """Treat the copy around a recurrent layer and the noise in it as one block, although `mollify` counts two."""
    inside = [each for each in part.modules() if isinstance(each, Annealed)]
    first = min((each.order for each in inside if each.order is not None), default=None)
    for each in inside:
        each.order = first


def add_weight_noise(model: nn.Module, std: float) -> None:
    """Add noise to the weights of every linear, convolutional and recurrent layer, with one level per layer."""
    recurrent = [part for part in model.modules() if isinstance(part, nn.RNNBase)]
    mollifier.nn.weight_noise(model, std)
    for part in recurrent:
        for name in [name for name in part._flat_weights_names if name.startswith("weight_")]:
            parametrize.register_parametrization(part, name, WeightNoise(std).to(getattr(part, name).device))
        part.register_forward_pre_hook(_draw)
        part.register_forward_hook(_drop_draw, always_call=True)
    layers = [part for part in model.modules() if parametrize.is_parametrized(part)]
    for order, layer in enumerate(layers):
        for each in layer.modules():
            if isinstance(each, WeightNoise):
                each.order = order


def _draw(part: nn.Module, args: Any) -> None:
    """Put the draws of this pass into the list from which torch's recurrent modules read their weights."""
    assert isinstance(part, nn.RNNBase)
    part._flat_weights = [getattr(part, name) for name in part._flat_weights_names]


def _drop_draw(part: nn.Module, args: Any, out: Any) -> None:
    """Remove the draw: it would keep its graph alive, and a model with it cannot be copied."""
    assert isinstance(part, nn.RNNBase)
    part._flat_weights = [_original(part, name) for name in part._flat_weights_names]


def _original(part: nn.RNNBase, name: str) -> Tensor:
    if not parametrize.is_parametrized(part, name):
        found: Tensor = getattr(part, name)
        return found
    chain: Any = part.parametrizations[name]  # type: ignore[index]
    original: Tensor = chain.original
    return original


def remove_weight_noise(model: nn.Module) -> None:
    """Remove all the noise. The parameters are the objects from before."""
    mollifier.nn.remove_weight_noise(model)
    for part in model.modules():
        if isinstance(part, nn.RNNBase) and parametrize.is_parametrized(part):
            for name in list(part.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(part, str(name), leave_parametrized=False)
            _unhook(part)


def _unhook(part: nn.Module) -> None:
    for hooks in (part._forward_pre_hooks, part._forward_hooks):
        for key in [key for key, hook in hooks.items() if hook in (_draw, _drop_draw)]:
            del hooks[key]
            part._forward_hooks_always_called.pop(key, None)
