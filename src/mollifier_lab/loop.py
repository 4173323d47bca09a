"""The training loop, on Lightning Fabric: updates, evaluations, checkpoints, and the end."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import mollifier
from mollifier_lab import checkpoint, seal, tasks
from mollifier_lab.annealing_forecast import forecast
from mollifier_lab.apply_method import apply_method, finish
from mollifier_lab.checkpoint_checks import check_state, load_optimizer
from mollifier_lab.data.checksums import check_data
from mollifier_lab.divergence import describe_divergence
from mollifier_lab.environment import environment
from mollifier_lab.errors import Interrupted, LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.group import Converted, Group
from mollifier_lab.hardware import Hardware, resume_command
from mollifier_lab.identity import compare, identity, log_resumption, recorded
from mollifier_lab.loggers import open_loggers
from mollifier_lab.memory import check_memory
from mollifier_lab.optimizers import make_optimizer
from mollifier_lab.progress import Progress, telling
from mollifier_lab.records import Records, finite
from mollifier_lab.runs import Row, RunFolder
from mollifier_lab.settings import RunConfig
from mollifier_lab.signals import Stop

Observe = Callable[[int, Tensor, list[float] | None], None]
Judge = Callable[[int, float], bool]
AGREE = 10  # updates between two checks of several processes whether one of them was told to stop
SEALED = ("config.json", "environment.json", *seal.GROWING)
PLAIN = (
    "update",
    "loss_count",
    "first_loss",
    "valid_loss",
    "best",
    "best_state",
    "finished_at",
    "divergence",
    "seconds",
)


class Loop:
    """A run in progress. A checkpoint contains everything that changes: `PLAIN`, and the parts that have their own state_dict."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        data: Path | None,
        hardware: Hardware,
        group: Group,
        show: bool,
        observe: Observe | None,
        judge: Judge | None = None,
        warn: bool = False,
    ) -> None:
        self.config, self.settings, self.folder, self.group, self.observe = (
            config,
            config.settings,
            folder,
            group,
            observe,
        )
        self.resume_command = resume_command(folder.path, data, hardware)
        self.judge, self.pruned = judge, False
        self.device = group.fabric.device
        if self.settings.batch % group.size:
            raise LabError(f"batch={self.settings.batch}: expected a multiple of the {group.size} processes")
        with telling(show and group.main):
            self._build(data, hardware.precision)
        self.update, self.loss_count, self.seconds = 0, 0, 0.0
        self.loss_sum = torch.zeros((), device=self.device, dtype=torch.float64)
        self.best: Row = {}
        self.best_state: dict[str, Tensor] | None = None
        self.converged = False
        self.finished_at: int | None = None
        self.divergence: str | None = None
        self.first_loss = self.valid_loss = math.nan
        self.lr = -1.0
        self.differs: list[str] = []
        self.saved: list[str] = []
        lengths, problems = self._restore()
        self.records: Records | None = None
        if group.main:
            more = open_loggers(hardware.logger, folder.path, config)
            self.records = Records(folder.path, lengths, hardware.tensorboard, self.update, more)
        title = f"{config.task}, {config.title}, seed {config.seed}"
        self.shown, self.warned = show and group.main, (show or warn) and group.main
        self.progress = Progress(title, self.update, self.total, self.shown, self.warned)
        for problem in problems if group.main else ():
            self.progress.say(f"{problem}; continuing from update {self.update}")
        if self.records is not None and lengths is None:
            self._seal()

    def _build(self, data: Path | None, precision: str) -> None:
        settings, seed = self.settings, self.config.seed
        sums = check_data(self.config.task, data, allow_other=self.config.other_data)
        self.identity = identity(self.config, precision, self.group.size, self.device.type, sums)
        check_memory(settings)
        torch.manual_seed(seed)
        self.task = tasks.make(self.config, data)
        self.final = tuple(split for split in self.task.final if not (split == "test" and self.config.trial))
        self.total = self.task.updates()
        self.evaluate_every = settings.evaluate_every or self.task.epoch_length
        self.save_every = settings.save_every or self.evaluate_every
        self.model: nn.Module = self.task.model().to(self.device)
        self.annealer = apply_method(self.model, self.config, self.task.example())
        optimizer = make_optimizer(settings, self.model)
        both: Any = self.group.fabric.setup(self.model, optimizer)
        wrapped, self.optimizer = both
        # alone and in full precision, Fabric's wrapper does nothing, but costs as much time as a small layer
        self.wrapped = self.model if self.group.size == 1 and precision == "32-true" else wrapped
        self.model.train()
        torch.manual_seed(seed + 7919 * (self.group.rank + 1))  # every process has noise of its own

    def run(self) -> Row:
        """Run all updates that are left."""
        self._began = time.perf_counter() - self.seconds
        with Stop() as stop, self.progress:
            if self.update == 0:
                self._foresee(None)
                self._evaluate(None)
            while self.update < self.total and self.divergence is None and not (self.converged or self.pruned):
                self._step()
                if self._asked(stop):
                    self._save()
                    raise Interrupted(
                        f"stopped at update {self.update} of {self.total}, saved; to resume: {self.resume_command}"
                    )
            if self.divergence is not None and self.shown:
                self.progress.say(f"diverged: {self.divergence}")
            return self._end()

    def _step(self) -> None:
        task, annealer, fabric, clip = self.task, self.annealer, self.group.fabric, self.settings.clip
        self._set_lr(self.settings.lr * task.lr_factor(self.update))
        loss = task.loss(self.wrapped, self.group.part(task.batch(self.update)))
        fabric.backward(loss if task.scale == 1.0 else loss * task.scale)
        if clip:
            fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=clip, error_if_nonfinite=False)
        self.optimizer.step()
        self.optimizer.zero_grad()
        loss = loss.detach()
        self.loss_sum += loss
        self.loss_count += 1
        self.update += 1
        if self.update == 1:
            self.first_loss = float(self.group.mean(loss.clone()))
        if annealer is not None and self.finished_at is None:
            annealer.step(self.valid_loss if self.settings.v == "valid" else loss)
            if annealer.finished:
                self.finished_at = self.update
                self._rest()
            elif self.update == 1:
                self._foresee(annealer.loss_average)
        if self.update % self.evaluate_every == 0 or self.update == self.total:
            self._evaluate(self._mean_loss())
        if self.update % self.save_every == 0 and self.update < self.total:
            self._save()
        self.progress.step(self.update, loss, annealer)
        if self.observe is not None:
            self.observe(self.update, loss, annealer.levels if annealer is not None else None)

    def _foresee(self, v: float | None) -> None:
        """Warn if annealing cannot end in time: at once, or when the first loss is known."""
        if self.annealer is None or not self.warned:
            return
        text = forecast(self.annealer, self.total, v)
        if text and (v is None or not forecast(self.annealer, self.total, None)):
            self.progress.say(f"warning: {text}")

    def _rest(self) -> None:
        """Stop gradients of the added parameters after annealing: nothing trains them any more. Several processes must agree on gradients."""
        if self.annealer is not None and not any(self.annealer.levels) and self.group.size == 1:
            for parameter in mollifier.added_parameters(self.model):
                parameter.requires_grad_(False).grad = None

    def _set_lr(self, lr: float) -> None:
        if lr != self.lr:
            self.lr = lr
            for each in self.optimizer.param_groups:
                each["lr"] = lr

    def _asked(self, stop: Stop) -> bool:
        return stop.asked if self.group.size == 1 else self.update % AGREE == 0 and self.group.any(stop.asked)

    def _mean_loss(self) -> float:
        """Return the mean loss of the updates since the last evaluation, over all processes."""
        mean = self.group.mean(self.loss_sum / max(self.loss_count, 1))
        self.loss_sum, self.loss_count = torch.zeros_like(self.loss_sum), 0
        return float(mean)

    def _measure(self, model: nn.Module, splits: tuple[str, ...]) -> Row:
        """Return the metrics of a model as it is. The state of torch's generator is restored."""
        model = Converted(model, self.group.fabric)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []), torch.no_grad():
            torch.manual_seed(self.config.seed)
            self.task.recalibrate(model, self.device)
            model.eval()
            found = {split: self.task.evaluate(model, split, self.device) for split in splits}
            model.train()
        return {f"{split}_{name}": finite(value) for split in splits for name, value in found[split].items()}

    def _evaluate(self, loss: float | None) -> None:
        row: Row = {"update": self.update, "epoch": self.update / self.task.epoch_length}
        if loss is not None:
            row |= {"train_loss": finite(loss), "lr": self.lr}
            self.divergence = describe_divergence(loss, self.first_loss, self.update)
        if self.annealer is not None:
            row["levels"] = [
                float(f"{level:.4g}") for level in self.annealer.levels
            ]  # more digits than a curve can show
            row["loss_average"] = finite(self.annealer.loss_average)
        self.progress.busy("evaluating")
        row |= self._measure(self.model, self.task.splits)
        if self.settings.v == "valid":
            found = row["valid_loss"]
            self.valid_loss = math.nan if found is None else found  # the annealer ignores it
        curve = self.settings.curve
        if loss is not None and row[curve] is not None and row[curve] < self.best.get(curve, float("inf")):
            self.best = {"update": self.update, curve: row[curve]}
            self.best_state = {name: each.detach().cpu().clone() for name, each in self.model.state_dict().items()}
        over = self.annealer is None or self.finished_at is not None
        if loss is not None and over and row[curve] is not None:
            self.converged = self.settings.converged > 0 and row[curve] <= self.settings.converged
        if self.judge is not None and loss is not None and row[curve] is not None and self.update < self.total:
            self.pruned = self.judge(self.update, row[curve])
        if self.records is not None:
            self.records.write(row, self._clock())
        self.progress.row(row)

    def _clock(self) -> float:
        self.seconds = time.perf_counter() - self._began
        return self.seconds

    def _save(self) -> None:
        cuda = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        mine = {
            "rng": torch.get_rng_state(),
            "cuda": cuda,
            "task": self.task.state_dict(),
            "loss_sum": self.loss_sum.cpu(),
        }
        ranks = self.group.gather(mine)
        if self.records is None:
            return
        self._clock()
        lengths = self.records.lengths
        state = {
            "config": self.config.to_json(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "annealer": self.annealer.state_dict() if self.annealer is not None else None,
            "ranks": ranks,
            "lengths": lengths,
            "sums": seal.sums(self.folder.path, seal.GROWING),
            "identity": self.identity,
            "plain": {name: getattr(self, name) for name in PLAIN},
        }
        checkpoint.save(self.folder.path / "checkpoints", self.update, state, self._announce)

    def _announce(self, name: str) -> None:
        """Seal what has been written so far. The seal names the checkpoint before it exists, so that one that a kill leaves behind is known
        as well.
        """
        self.saved = [*self.saved, name][-1 - checkpoint.KEEP :]
        self._seal()

    def _seal(self, **more: tuple[int, str]) -> None:
        """Return checksums of everything that has been written so far."""
        seal.write(self.folder.path, {**seal.sums(self.folder.path, SEALED), **more}, self.saved)

    def _restore(self) -> tuple[list[int] | None, list[str]]:
        """Continue from the last good checkpoint, or begin. Return the lengths of the records, and what was wrong with newer checkpoints."""
        path, main = self.folder.path, self.group.main
        self.saved = seal.checkpoints(path)
        saved = checkpoint.load(path / "checkpoints", self.config.to_json(), self._take_over, self.saved)
        if saved is None:
            if main:
                (path / seal.NAME).unlink(missing_ok=True)
                self.saved = []
                self.folder.write("config.json", self.config.to_json())
                found = environment(self.device, self.group.size) | {"identity": self.identity}
                self.folder.write("environment.json", json.dumps(found, indent=2) + "\n")
            return None, []
        self.saved = [*(name for name in self.saved if name != saved.path.name), saved.path.name]
        if self.finished_at is not None:
            self._rest()
        problems, lengths = list(saved.problems), list(saved.state["lengths"])
        if damaged := seal.check_rows(path, saved.state.get("sums", {})):  # the clock is no part of the result
            lengths[1] = 0
            problems.append(f"{path}: {seal.describe(damaged)}; its times up to now are lost")
        problems += [f"{path}: {each}; the last digits may differ from an uninterrupted run" for each in self.differs]
        if main:
            log_resumption(path, saved.update, self.differs, self.identity)
            # the rows are cut next: the seal must not promise more than remains
            if (path / seal.NAME).exists():
                cut = dict(zip(seal.GROWING, lengths, strict=True))
                seal.write(path, seal.sums(path, SEALED, cut), self.saved)
        self.identity = saved.state.get("identity", self.identity)
        return lengths, problems

    def _take_over(self, saved: checkpoint.Checkpoint) -> None:
        """Restore a checkpoint. A `LabError` means that the run cannot be resumed like this, any other error that the checkpoint does not
        belong to this run.
        """
        state, path = saved.state, self.folder.path
        seal.refuse(path, ("config.json", "environment.json"))
        before = state.get("identity")
        if before is None:  # a run of the previous version
            before = recorded(self.folder.json("environment.json"), self.annealer is not None)
            if len(state["ranks"]) != self.group.size:
                raise LabError(
                    f"{saved.path}: made by {len(state['ranks'])} processes, but now there are {self.group.size}; resume it with the same number"
                )
        elif before != self.folder.json("environment.json").get("identity"):
            raise ValueError("made under conditions that differ from those that the run was started with")
        self.differs = compare(before, self.identity, path)
        check_state(state, saved.update, self.model)
        damaged = seal.check_rows(path, state.get("sums", {}))
        if "metrics.jsonl" in damaged:
            raise LabError(f"{path}: {seal.describe(damaged)}; restore it, or remove the folder to make the run again")
        mine = state["ranks"][self.group.rank]
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        if self.annealer is not None:
            self.annealer.load_state_dict(state["annealer"])
        self.task.load_state_dict(mine["task"])
        for name in PLAIN:
            setattr(self, name, state["plain"][name])
        self.loss_sum = mine["loss_sum"].to(self.device)
        torch.set_rng_state(mine["rng"])
        if mine["cuda"] is not None:
            torch.cuda.set_rng_state(mine["cuda"], self.device)

    def _end(self) -> Row:
        """Write the plain network's metrics, its weights and, last of all, the result."""
        annealing: dict[str, Any] | None = None
        if self.annealer is not None:
            annealing = {
                "finished": self.annealer.finished,
                "finished_at": self.finished_at,
                "levels": self.annealer.levels,
            }
        self.progress.busy("measuring the plain network")
        plain_now = annealing is None or not any(annealing["levels"])
        last = plain_now and self.best.get("update") == self.update  # then both are the same network
        if self.best_state is not None and not last:
            model = copy.deepcopy(self.model)
            model.load_state_dict(self.best_state)
            self.best |= self._measure(model, self.final)
        plain = finish(self.model, self.annealer, self.config.spec.undo)
        final = self._measure(plain, self.final)
        self.best |= final if last else {}
        seconds = self._clock()
        result = {
            "format": 1, "updates": self.update, "seconds": round(seconds, 3), "updates_per_second": round(self.update / seconds, 3),
            "final": final, "best": self.best, "annealing": annealing, "diverged": self.divergence is not None,
            "divergence": self.divergence, "converged": self.converged, "sealed": True,
        }  # fmt: skip
        if self.pruned:
            result["pruned"] = True
        if self.identity["other_data"]:
            result["other_data"] = self.identity["other_data"]
        if self.group.main:
            from safetensors.torch import save

            weights = {name: each.detach().cpu().contiguous() for name, each in plain.state_dict().items()}
            write_atomically(self.folder.path / "model.safetensors", save(weights))
            assert self.records is not None
            _ = self.records.lengths  # all rows are on the disk
            text = json.dumps(result, indent=2) + "\n"
            self._seal(**{"result.json": seal.of(text.encode())})
            self.folder.write("result.json", text)
        return result

    def close(self) -> None:
        """Close the files."""
        if self.records is not None:
            self.records.close()
