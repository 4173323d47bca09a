"""The laboratory: the paper's six tasks as experiments that run, resume, compare and report (``pip install 'mollifier[lab]'``).

>>> from mollifier_lab import METHODS, TASKS
>>> sorted(TASKS)
['adding', 'characters', 'cifar10', 'mnist', 'parity', 'pentomino', 'ptb']
>>> METHODS["mollified"].title
'mollified'

The command is `mollifier`; from Python, `mollifier_lab.engine.train` makes one run and `mollifier_lab.study.compare` many.
"""

from mollifier_lab.errors import LabError as LabError
from mollifier_lab.methods import METHODS as METHODS
from mollifier_lab.settings import TASKS as TASKS, RunConfig as RunConfig

__all__ = ["METHODS", "TASKS", "LabError", "RunConfig"]
