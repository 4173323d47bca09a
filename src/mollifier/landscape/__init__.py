"""Curvature and loss surfaces along the level, of any model and loss.

>>> import mollifier, torch
>>> from mollifier import landscape
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
>>> model = mollifier.mollify(model).double().eval()
>>> x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 1, dtype=torch.float64)
>>> mollifier.set_level(model, 1)
>>> landscape.extremes(landscape.objective(model, torch.nn.functional.mse_loss, x, y)).smallest > -1e-9     # convex
True
"""

from mollifier.landscape._curvature import (
    Extremes as Extremes,
    Trace as Trace,
    extremes as extremes,
    hessian_product as hessian_product,
    trace as trace,
)
from mollifier.landscape._levels import Curvature as Curvature, curvatures as curvatures, surfaces as surfaces
from mollifier.landscape._objective import Objective as Objective, objective as objective
from mollifier.landscape._surface import Surface as Surface, filter_direction as filter_direction, surface as surface

__all__ = [
    "Curvature",
    "Extremes",
    "Objective",
    "Surface",
    "Trace",
    "curvatures",
    "extremes",
    "filter_direction",
    "hessian_product",
    "objective",
    "surface",
    "surfaces",
    "trace",
]
