"""The laboratory: the paper's six tasks as experiments that run, resume, compare and report (``pip install 'mollifier[lab]'``).

>>> from mollifier_lab import METHODS, TASKS
>>> sorted(TASKS)
['adding', 'characters', 'cifar10', 'mnist', 'parity', 'pentomino', 'ptb']
>>> METHODS["mollified"].title
'mollified'

The command is `mollifier`. From Python, `compare` compares methods on any model, `mollifier_lab.engine.train` makes one run and
`mollifier_lab.study.compare` makes many. `register_task` and `register_method` add tasks and methods of your own.
"""

TYPE_CHECKING = False  # typing itself is not imported: nothing is imported before the command can handle Ctrl-C
if TYPE_CHECKING:
    from mollifier_lab.errors import LabError as LabError
    from mollifier_lab.methods import METHODS as METHODS
    from mollifier_lab.own_model import compare as compare
    from mollifier_lab.register import register_method as register_method, register_task as register_task
    from mollifier_lab.settings import TASKS as TASKS, RunConfig as RunConfig, Settings as Settings

__all__ = ["METHODS", "TASKS", "LabError", "RunConfig", "Settings", "compare", "register_method", "register_task"]
_HOMES = {
    "LabError": "errors",
    "METHODS": "methods",
    "RunConfig": "settings",
    "Settings": "settings",
    "TASKS": "settings",
    "compare": "own_model",
    "register_method": "register",
    "register_task": "register",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command can handle Ctrl-C before anything large is imported."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
