"""σ: a number, one per parameter or group, or one that an Annealer drives."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from mollifier.nn import Annealed

Scale = float | Tensor


class Sigma(Annealed):
    """A standard deviation that falls with its level, level · largest, so that an `Annealer` drives it.

        >>> import mollifier
        >>> from mollifier.smoothing import Sigma
        >>> sigma = Sigma(0.5)
        >>> annealer = mollifier.Annealer(sigma, "linear", horizon=10)
        >>> annealer.step()
        >>> round(float(sigma.value), 3)
        0.45

    Pass it to `mollified_loss` as sigma; at level 0 the result is the loss itself. In a dict it can be the value of a group.

    Args:
        largest: The standard deviation at level 1.
        level: From 1 to 0.
    """

    def __init__(self, largest: float, *, level: float = 1.0) -> None:
        super().__init__(level)
        self.largest = float(_positive(largest, "Sigma"))

    @property
    def value(self) -> Tensor:
        """The standard deviation now, on the level's device."""
        return self.level * self.largest

    def forward(self) -> Tensor:
        return self.value

    def extra_repr(self) -> str:
        return f"largest={self.largest:g}, {super().extra_repr()}"


Sigmas = Scale | Sigma | Mapping[str, Scale | Sigma]


def scales(sigma: Sigmas, parameters: Mapping[str, Tensor]) -> dict[str, Scale]:
    """Return σ for each parameter that gets noise: that of the longest key that names the parameter or a module above it.

    The result is empty if every σ has been annealed to 0.
    """
    if not parameters:
        raise ValueError("there are no parameters to put noise on: the dict is empty")
    if not isinstance(sigma, Mapping):
        sigma = {"": sigma}
    found: dict[str, Scale | Sigma] = {}
    used = set()
    for name in parameters:
        keys = [key for key in sigma if key in ("", name) or name.startswith(key + ".")]
        if keys:
            key = max(keys, key=len)
            used.add(key)
            found[name] = sigma[key]
    idle = [key for key in sigma if key not in used]
    if idle:
        raise ValueError(f"sigma: {idle} names none of the parameters {list(parameters)}")
    out: dict[str, Scale] = {}
    for name, value in found.items():
        if isinstance(value, Sigma):
            if value.active and float(value.level) > 0:
                out[name] = value.value
        else:
            out[name] = _positive(value, "sigma" + (f" of {name!r}" if len(sigma) > 1 else ""))
    return out


def _positive(value: Scale, what: str) -> Scale:
    if isinstance(value, Tensor) and value.dim() != 0:
        raise ValueError(f"{what} has shape {tuple(value.shape)}: expected one number, or a dict of them by name")
    number = value.item() if isinstance(value, Tensor) else float(value)
    if not 0.0 < number < float("inf"):  # also refuses NaN
        raise ValueError(f"{what} is {number:g}: expected a number above 0. Without noise there is nothing to mollify.")
    return value
