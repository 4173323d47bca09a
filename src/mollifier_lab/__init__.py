"""The laboratory: the paper's six tasks as experiments that run, resume, compare and report (``pip install 'mollifier[lab]'``).

>>> from mollifier_lab import METHODS, TASKS
>>> sorted(TASKS)
['characters', 'cifar10', 'mnist', 'parity', 'pentomino', 'ptb']
>>> METHODS["mollified"].title
'mollified'

The command is `mollifier`; from Python, `mollifier_lab.engine.train` makes one run and `mollifier_lab.study.compare` many.
"""

TYPE_CHECKING = False  # typing itself is not imported: nothing is, before the command can answer Ctrl-C
if TYPE_CHECKING:
    from mollifier_lab.errors import LabError as LabError
    from mollifier_lab.methods import METHODS as METHODS
    from mollifier_lab.settings import TASKS as TASKS, RunConfig as RunConfig

__all__ = ["METHODS", "TASKS", "LabError", "RunConfig"]
_HOMES = {"LabError": "errors", "METHODS": "methods", "TASKS": "settings", "RunConfig": "settings"}


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for: the command is to be ready for Ctrl-C before anything large is imported."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
