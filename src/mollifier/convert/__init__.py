"""From a plain model to a mollified one and back."""

from mollifier.convert._levels import (
    frozen as frozen,
    is_mollified as is_mollified,
    levels as levels,
    set_level as set_level,
)
from mollifier.convert._mollify import (
    added_parameters as added_parameters,
    mollify as mollify,
    plain_state_dict as plain_state_dict,
    plan as plan,
    restore as restore,
)
from mollifier.convert._register import register as register
from mollifier.convert._report import Report as Report, report as report

__all__ = [
    "Report",
    "added_parameters",
    "frozen",
    "is_mollified",
    "levels",
    "mollify",
    "plain_state_dict",
    "plan",
    "register",
    "report",
    "restore",
    "set_level",
]
