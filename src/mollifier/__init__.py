"""Mollifying Networks for PyTorch: train mollified, deploy plain.

>>> import mollifier, torch
>>> model = torch.nn.Sequential(torch.nn.Linear(40, 100), torch.nn.Sigmoid(), torch.nn.Linear(100, 1))
>>> model = mollifier.mollify(model)
>>> annealer = mollifier.Annealer(model, k=100.0)
>>> annealer.step(0.7)
>>> annealer.finish()
>>> model = mollifier.restore(model)
"""

from mollifier import (
    functional as functional,
    kernels as kernels,
    landscape as landscape,
    nn as nn,
    ops as ops,
    smoothing as smoothing,
)
from mollifier.anneal import Annealer as Annealer
from mollifier.convert import (
    added_parameters as added_parameters,
    frozen as frozen,
    is_mollified as is_mollified,
    levels as levels,
    mollify as mollify,
    plain_state_dict as plain_state_dict,
    plan as plan,
    register as register,
    report as report,
    restore as restore,
    set_level as set_level,
)
from mollifier.schedules import (
    cosine as cosine,
    exponential as exponential,
    front as front,
    linear as linear,
    square_root as square_root,
)

__version__ = "0.2.0"
__all__ = [
    "Annealer",
    "added_parameters",
    "cosine",
    "exponential",
    "front",
    "frozen",
    "functional",
    "is_mollified",
    "kernels",
    "landscape",
    "levels",
    "linear",
    "mollify",
    "nn",
    "ops",
    "plain_state_dict",
    "plan",
    "register",
    "report",
    "restore",
    "set_level",
    "smoothing",
    "square_root",
]
