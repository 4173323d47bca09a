"""Replace the class of a module by a subclass, and undo it, even if other code has replaced the class again in between."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import MethodType
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from mollifier.convert._safe import allow_like

KEY = "_mollifier"
OURS = f"{KEY}_"  # names in a module's __dict__ that belong to us begin with this
Forward = TypeVar("Forward", bound=Callable[..., Any])


class Patch(nn.Module):
    """Base of all mixins that are put in front of a module's plain class."""

    _plain_class: type[nn.Module]
    _mixins: tuple[type[Patch], ...]
    _mollifier: nn.Module

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Return the module's own children, for code that takes a model apart by them. Ours is with the modules, parameters and buffers."""
        return ((name, child) for name, child in super().named_children() if name != KEY)

    # What torch does with a module's children, it does with ours too.
    def train(self, mode: bool = True) -> Any:
        if (state := self._modules.get(KEY)) is not None:
            state.train(mode)
        return super().train(mode)

    def apply(self, fn: Callable[[nn.Module], None]) -> Any:
        if (state := self._modules.get(KEY)) is not None:
            state.apply(fn)
        return super().apply(fn)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if recurse and (state := self._modules.get(KEY)) is not None:
            state._apply(fn)  # type: ignore[no-untyped-call]
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class is made at run time: pickle and deepcopy rebuild it from its parts, which can be imported.
        make, args, state, *rest = _padded(super().__reduce_ex__(protocol))
        if make is copyreg.__newobj__:  # type: ignore[attr-defined]
            return (rebuild, (self._mixins, self._plain_class, *args[1:]), state, *rest)
        # A class with its own __reduce__ does not know about the parts that were added to it.
        added = {key: value for key, value in self.__dict__.items() if key.startswith(OURS)}
        make = self._plain_class if make is type(self) else make
        return (revive, (self._mixins, make, args, self._modules.get(KEY), added), state, *rest)


def while_patched(forward: Forward) -> Forward:
    """Let a patch's forward also work after `restore`, for whoever kept a reference to it, as mixed precision of Accelerate does."""

    @wraps(forward)
    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return (forward if isinstance(self, Patch) else type(self).forward)(self, *args, **kwargs)

    return cast(Forward, run)


def _padded(reduced: Any) -> tuple[Any, ...]:
    return (*reduced, None) if len(reduced) == 2 else cast(tuple[Any, ...], reduced)


def rebuild(mixins: tuple[type[Patch], ...], plain: type[nn.Module], *args: Any) -> Any:
    """Create an empty module of a patched class, for pickle."""
    kind = _checked(mixins, plain)
    return kind.__new__(kind, *args)


def _checked(mixins: tuple[type[Patch], ...], plain: type[nn.Module]) -> type[nn.Module]:
    if not (issubclass(plain, nn.Module) and all(issubclass(mixin, Patch) for mixin in mixins)):
        raise TypeError(f"not a mollified module: {mixins}, {plain}")  # a file may contain anything
    kind = patched_class(mixins, plain)
    allow_like(kind, plain)
    return kind


def revive(mixins: tuple[type[Patch], ...], make: Any, args: Any, state: nn.Module | None, added: Any) -> Any:
    """Rebuild a module as its own class does, then replace its class."""
    module = make(*args)
    module.__class__ = _checked(mixins, type(module))
    module.__dict__.update(added)
    if state is not None:
        module._modules[KEY] = state
    return module


_CLASSES: dict[tuple[Any, ...], type[nn.Module]] = {}


def patched_class(mixins: tuple[type[Patch], ...], plain: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass of ``plain`` with these mixins in front."""
    key = (mixins, plain)
    if key not in _CLASSES:
        # torch's list of safe classes uses qualified names, so no two of ours may share one
        qualified = f"Mollified{plain.__qualname__}.{'.'.join(mixin.__name__ for mixin in mixins)}"
        space = {"_plain_class": plain, "_mixins": mixins, "__module__": plain.__module__, "__doc__": plain.__doc__}
        space["__qualname__"] = qualified
        bases = (*(_filled(mixin, plain) for mixin in mixins), plain)
        _CLASSES[key] = type(f"Mollified{plain.__name__}", bases, space)
    return _CLASSES[key]


def _filled(mixin: type[Patch], plain: type[nn.Module]) -> type[Patch]:
    """Return the mixin, with those of its methods that depend on the plain class."""
    make = getattr(mixin, "methods_for", None)
    return mixin if make is None else type(mixin.__name__, (mixin,), {**make(plain), "__module__": mixin.__module__})


def patch_class(module: nn.Module, mixins: Iterable[type[Patch]], order: Sequence[type[Patch]]) -> None:
    """Put mixins in front of the module's class, in addition to those that are there."""
    every = {*mixins, *(module._mixins if isinstance(module, Patch) else ())}
    plain = module._plain_class if isinstance(module, Patch) else type(module)
    module.__class__ = patched_class(tuple(sorted(every, key=order.index)), plain)


def restored_class(module: Patch) -> type[nn.Module] | None:
    """Return the module's class without our part of it, or None if other code has built on it in a way that cannot be undone.

    Other code that replaces a module's class (torch's parametrize, FSDP2) makes a subclass of the class that it finds. Ours is then
    one of its bases, and is replaced by the plain class.
    """
    kind, ours = type(module), patched_class(module._mixins, module._plain_class)
    if kind is ours:
        return module._plain_class
    if ours not in kind.__bases__:
        return None
    bases = tuple(module._plain_class if base is ours else base for base in kind.__bases__)
    space = {key: value for key, value in vars(kind).items() if key not in ("__dict__", "__weakref__")}
    name = kind.__name__.replace(ours.__name__, module._plain_class.__name__)
    return cast("type[nn.Module]", type(name, bases, space))


def unpatch(module: nn.Module, kind: type[nn.Module] | None) -> None:
    """Remove everything that mollification added to this one module, and set its class."""
    functions: dict[str, Callable[..., Any]] = getattr(module._modules.pop(KEY, None), "functions", {})
    module.__dict__.update(functions)
    for key in [key for key in module.__dict__ if key.startswith(OURS)]:
        del module.__dict__[key]
    if kind is not None:
        module.__class__ = kind
        for name, value in functions.items():
            if isinstance(value, MethodType):  # after pickle, it is a method of the class that the module then had
                module.__dict__[name] = MethodType(getattr(kind, value.__name__), module)
