"""From a plain model to a mollified one and back."""

from mollifier.activations import _build
from mollifier.convert._classes import rebuild
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
from mollifier.convert._report import Report as Report, Row, Skipped, report as report
from mollifier.convert._runs import RunRecord
from mollifier.convert._safe import register_safe_globals
from mollifier.nn import RecurrentOptions

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

# whole models load with weights_only=True
register_safe_globals(Report, Row, Skipped, RecurrentOptions, _build, rebuild, RunRecord)
