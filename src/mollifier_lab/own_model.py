"""Compare methods on any model, from Python: `mollifier_lab.compare`.

>>> import tempfile
>>> import torch
>>> from torch import nn
>>> def make_model():
...     return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
>>> def make_data():
...     x = torch.randn(60, 4)
...     y = (x.prod(1) > 0).long()
...     return (x[:40], y[:40]), (x[40:], y[40:])
>>> found = compare(make_model, make_data, seeds=2, updates=8, out=tempfile.mkdtemp() + "/runs", show=False)
>>> [(row.variant, row.metric, row.done) for row in found.rows]
[('plain', 'test_error', 2), ('mollified', 'test_error', 2)]
>>> sorted(found.state_dict("mollified", seed=1))[:2]
['0.bias', '0.weight']
"""

from __future__ import annotations

import hashlib
import inspect
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mollifier_lab import imports, study
from mollifier_lab.errors import LabError
from mollifier_lab.imports import Import
from mollifier_lab.report import TableRow, report
from mollifier_lab.runs import RunFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

SOURCE = "mollifier_lab.own_tasks"
AGAIN = "call mollifier_lab.compare again, with the same arguments"


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; as a string, the table.

    Attributes:
        rows: The table: one row per method, with intervals.
        page: The path of the report.
        folder: The folder with everything.
        runs: The runs, method by method.
        notes: One sentence per run that failed or cannot be trusted.
    """

    rows: tuple[TableRow, ...]
    page: Path
    folder: Path
    runs: tuple[RunFolder, ...]
    notes: tuple[str, ...]

    def state_dict(self, method: str, seed: int = 0) -> dict[str, Tensor]:
        """Return the weights of the plain network at the end of a run.

        Raises:
            LabError: If there is no such run, or it is not done yet.
        """
        from safetensors.torch import load

        wanted = f"{method.partition(':')[0]}, seed {seed}"
        for run in self.runs:
            config = run.config()
            if f"{config.method}, seed {config.seed}" == wanted and run.status == "done":
                return load((run.path / "model.safetensors").read_bytes())
        raise LabError(f"{wanted}: no such run is done; there are {', '.join(str(run.path) for run in self.runs)}")

    def __str__(self) -> str:
        from rich.console import Console

        from mollifier_lab.report.terminal import terminal_tables

        text = io.StringIO()
        for table in terminal_tables(self.rows):
            Console(file=text, width=160).print(table)
        return text.getvalue()


def compare(
    make_model: Callable[[], nn.Module],
    make_data: Callable[[], Any],
    methods: Sequence[str] = ("plain", "mollified"),
    *,
    loss: Callable[[Any, Tensor], Tensor] | None = None,
    seeds: int | Sequence[int] = 3,
    out: str | Path | None = None,
    threads: int = 0,
    show: bool = True,
    **settings: Any,
) -> Comparison:
    """Train a model with several methods over several seeds, and compare them. Called again, it continues where it stopped.

    For each seed, all methods get the same data in the same order, the same initial weights and the same number of updates. The report shows the
    plain network at the end, on the test set. Runs are made one after the other, in this process; to make several at a time, write a task
    (docs/own-tasks.md).

    Args:
        make_model: Returns the plain network, with new weights from torch's generator.
        make_data: Returns ``(train, valid)`` or ``(train, valid, test)``, each a tuple of tensors, inputs and targets; a dict works as well.
            Without test data, the validation data is used for the test. What it draws from torch's generator differs from seed to seed.
        methods: The same as for `mollifier compare --methods`; ``"mollified:k=10"`` has settings of its own. Methods that need another network do not apply.
        loss: A function of outputs and targets. The default is cross-entropy for integer targets and the mean squared error for others.
        seeds: The number of seeds, or a list of seeds.
        out: The folder; ``runs/compare/`` and the name of ``make_model`` by default.
        threads: The number of torch's threads; 0: torch decides.
        show: Whether to show the progress.
        **settings: Settings of all runs: ``lr``, ``optimizer``, ``batch``, ``epochs`` (20 by default), ``updates``, ``k``, … as `mollifier_lab.Settings`.

    Returns:
        The table, the path of the page, and the weights.

    Raises:
        LabError: If something is not understood, or the folder contains a comparison of another model, other data or other settings.
        Interrupted: After Ctrl-C; what has been done is kept.
    """
    from mollifier_lab import own_tasks

    folder = Path(out or Path("runs", "compare", getattr(make_model, "__name__", "model").strip("<>")))
    one = own_tasks.Given(make_model, make_data, loss)
    own_tasks.given.append(one)
    before = imports.recorded()
    own_tasks.mollifier_register()
    try:
        task, chance, told = _look(one)
        imports.note(Import(SOURCE, told))
        runs = study.compare(task, methods, seeds, folder, changes={"chance": chance, **settings}, threads=threads, show=show, command=AGAIN)  # fmt: skip
    finally:
        own_tasks.given.pop()
        imports.forget(before)
    made = report(folder)
    return Comparison(made.rows, made.page, folder, tuple(runs), made.notes)


def _look(one: Any) -> tuple[str, float, str]:
    """Return the task, the metric of the untrained network, and a hash of the model, the data and the functions that make them."""
    import torch

    from mollifier_lab import own_tasks
    from mollifier_lab.settings import RunConfig

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sets = own_tasks.splits(one.make_data())
        model = one.make_model()
        whole = not sets["train"][-1].is_floating_point()
        with torch.no_grad():
            outputs = model.eval()(*(each[:2] for each in sets["train"][:-1]))
        classes = whole and isinstance(outputs, torch.Tensor) and outputs.ndim == 2 and sets["train"][-1].ndim == 1
        name = "own-classifier" if classes else "own-model"
        if not whole or classes or one.loss is not None:
            config = RunConfig.make(name, "plain")
        else:
            raise LabError(
                f"integer targets {tuple(sets['train'][-1].shape)}, and outputs {getattr(outputs, 'shape', type(outputs))}: "
                "expected targets (samples) and outputs (samples, classes); for other shapes pass a loss"
            )
        torch.manual_seed(0)
        task = own_tasks.OwnModelTask(config)
        found = task.evaluate(model, "test", torch.device("cpu"))
    chance = found[config.settings.headline.removeprefix("test_")]
    if chance != chance:
        raise LabError("the untrained network's loss on the test data is not finite; expected a finite number")
    hashed = hashlib.sha256(repr((model, *map(_source, (one.make_model, one.make_data, one.loss)))).encode())
    for split, part in sorted(sets.items()):
        for each in part:
            hashed.update(f"{split} {each.dtype} {tuple(each.shape)}".encode())
            hashed.update(each.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return name, chance, hashed.hexdigest()


def _source(function: Any) -> str:
    """Return the source of a function, as far as it is available."""
    if function is None:
        return ""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(type(function))
