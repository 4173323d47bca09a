"""Find out from the Python frames who calls an activation, and where: only the user's own calls can be mollified."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType

import torch
from torch.autograd import function

from mollifier.convert import _reasons as reasons

Place = tuple[int, ...]
_FUNCTION = function.__file__
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
# Code on the way from the caller to us, with every __torch_function__, such as that of torch.set_default_device:
# torch.nn.functional is written in Python, and calls torch for the user.
_ON_THE_WAY = (
    *(os.path.join(_TORCH, *path) for path in (("fx", ""), ("overrides.py",), ("_tensor.py",), ("_jit_internal.py",))),
    os.path.join(_TORCH, "nn", "functional.py"),
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
)
_MODULES = os.path.join(_TORCH, "nn", "modules", "")  # a module that the user calls, but that is no part of the model


def calling_method(is_method: Callable[[CodeType], bool]) -> tuple[FrameType | None, Place, str]:
    """Return the frame of the innermost method that led to this call of an activation, where in its code the call is, and why the call
    cannot be mollified, or "".

    The place is made of the instructions, in the method and in what it calls of the user's code.
    """
    frame: FrameType | None = sys._getframe(1)
    known, why = False, ""
    place: list[int] = []
    while frame is not None:
        if str(frame.f_globals.get("__name__")).split(".")[0] not in ("torch", "mollifier"):
            place.append(frame.f_lasti)
        if is_method(frame.f_code):
            return frame, tuple(reversed(place)), why
        whose = _whose(frame.f_code.co_filename)
        if whose == "function":
            why = reasons.IN_FUNCTION
        elif not known and whose != "way" and frame.f_code.co_name != "__torch_function__":
            known, why = True, reasons.BY_TORCH if whose == "torch" else why
        frame = frame.f_back
    return None, (), why


@cache
def _whose(file: str) -> str:
    if file == _FUNCTION:
        return "function"
    if file.startswith(_ON_THE_WAY):
        return "way"
    return "torch" if file.startswith(_TORCH) and not file.startswith(_MODULES) else "user"
