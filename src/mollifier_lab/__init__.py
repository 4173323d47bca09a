"""The laboratory: the paper's six tasks as experiments that run, resume, compare and report (``pip install 'mollifier[lab]'``).

>>> from mollifier_lab import METHODS, TASKS
>>> sorted(TASKS)
['characters', 'cifar10', 'mnist', 'parity', 'pentomino', 'ptb']
>>> METHODS["mollified"].title
'mollified'

The command is `mollifier`; from Python, `compare` compares methods on any model, `mollifier_lab.engine.train` makes one run and
`mollifier_lab.study.compare` many. `register_task` and `register_method` add to what there is.
"""

from typing import TYPE_CHECKING, Any

from mollifier_lab.errors import LabError as LabError
from mollifier_lab.methods import METHODS as METHODS
from mollifier_lab.register import register_method as register_method, register_task as register_task
from mollifier_lab.settings import TASKS as TASKS, RunConfig as RunConfig, Settings as Settings

__all__ = ["METHODS", "TASKS", "LabError", "RunConfig", "Settings", "compare", "register_method", "register_task"]

if TYPE_CHECKING:
    from mollifier_lab.own_model import compare as compare


def __getattr__(name: str) -> Any:
    if name != "compare":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mollifier_lab.own_model import compare  # what only tells must not wait for it

    return compare
