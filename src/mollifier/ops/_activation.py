"""The activations that the operators know, as the numbers that they are told."""

from __future__ import annotations

from typing import cast

from mollifier.activations import Activation, activation

# In the order of `enum Act` in activations.h, with the options that each takes.
OPTIONS: dict[str, dict[str, float]] = {
    "sigmoid": {},
    "hard_sigmoid": {},
    "hardsigmoid": {},
    "tanh": {},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    "relu": {},
    "leaky_relu": {"negative_slope": 0.01},
    "elu": {"alpha": 1.0},
    "selu": {},
    "silu": {},
    "gelu": {},
    "gelu_tanh": {},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "softsign": {},
    "mish": {},
}
NAMES = list(OPTIONS)
BUILT_IN = set(OPTIONS) - {"gelu_tanh"}
RELU, RELU_OUTPUT = NAMES.index("relu"), len(NAMES)
_KEY = "_numbers"  # they are kept in the activation, which never changes


def knows(act: Activation) -> bool:
    """Is it one of the table's own? Anybody else's function may have the same name."""
    return act.listed and act.name in BUILT_IN


def numbers(act: Activation | None) -> list[float]:
    """Kind, slope, offset and two options; nothing for no activation.

    >>> from mollifier.activations import activation
    >>> numbers(activation("leaky_relu", negative_slope=0.2))
    [6.0, 1.0, 0.0, 0.2, 0.0]
    """
    if act is None:
        return []
    found = act.__dict__.get(_KEY)
    if found is None:
        name = "gelu_tanh" if act.name == "gelu" and act.options.get("approximate") == "tanh" else act.name
        options = OPTIONS[name]
        first, second, *_ = *(float(act.options.get(key, options[key])) for key in options), 0.0, 0.0
        found = act.__dict__[_KEY] = [float(NAMES.index(name)), act.slope, act.offset, first, second]
    return cast("list[float]", found)


def of_numbers(given: list[float]) -> Activation | None:
    """The activation again.

    >>> from mollifier.activations import activation
    >>> str(of_numbers(numbers(activation("leaky_relu", negative_slope=0.2))))
    'leaky_relu(negative_slope=0.2)'
    """
    if not given:
        return None
    name = NAMES[RELU if given[0] == RELU_OUTPUT else int(given[0])]
    if name == "gelu_tanh":
        return activation("gelu", approximate="tanh")
    return activation(name, **dict(zip(OPTIONS[name], given[3:], strict=False)))
