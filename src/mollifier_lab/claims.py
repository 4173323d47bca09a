"""The paper's claims as data. Each is checked against one of our studies: paper, ours, verdict.

The rule is fixed before the runs. A claim compares one method with another, seed by seed, by the table's metric or by the number of updates
to the target. The 95 % interval of the mean difference (Student's t) decides:

- *reproduced*: the interval lies on the side that the paper claims (for "no better" and "the same": not on the other side, or within the margin);
- *not reproduced*: it lies on the other side;
- *undecided*: neither, or too few seeds.

>>> judge(Estimate(mean=-0.05, low=-0.07, high=-0.03, n=5), "better")
'reproduced'
>>> judge(Estimate(mean=-0.05, low=-0.12, high=0.02, n=5), "better")
'undecided'
>>> judge(Estimate(mean=0.05, low=0.03, high=0.07, n=5), "better")
'not reproduced'
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mollifier_lab.files import write_atomically
from mollifier_lab.hardware import FULL
from mollifier_lab.report.estimates import MANY, Estimate, estimate, paired, seeds_needed
from mollifier_lab.report.formats import show_count, show_difference, show_interval, show_metric
from mollifier_lab.report.pictures import differences_png
from mollifier_lab.report.reading import Run, number, read
from mollifier_lab.report.study_table import study_table
from mollifier_lab.report.summary import first_at
from mollifier_lab.reproduction import STUDIES
from mollifier_lab.runs import find_runs
from mollifier_lab.variants import Variant

Direction = Literal["better", "no better", "same", "learns", "does not learn"]
Measure = Literal["final", "best", "updates"]
ORDER = ("not reproduced", "undecided", "reproduced", "not run")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, and the result of ours that it is checked against.

    Attributes:
        text: The sentence, shortened.
        paper: The paper's numbers; a dash where it gives none.
        study: The study, see `mollifier_lab.reproduction`.
        ours: The variant of ours that the sentence is about.
        theirs: The variant that it is compared with; empty if the sentence only says whether something learns.
        says: What the sentence says about the first variant.
        measure: The table's metric at the end, the same metric for the best weights, or the updates to the target.
        margin: The largest difference between two variants that are "the same", as a fraction of the second.
        control: A study of one variant, another explanation of the difference, that the first variant is compared with as well.
    """

    text: str
    paper: str
    study: str
    ours: str
    theirs: str = ""
    says: Direction = "better"
    measure: Measure = "final"
    margin: float = 0.1
    control: str = ""


CLAIMS = (
    Claim(text="Pentomino: mollified above residual", paper="75.15 against 69.5 % accuracy",
          study="pentomino", ours="mollified-residual", theirs="residual"),
    Claim(text="Parity: mollified is faster than residual + batch norm", paper="0.2 after 27,000 updates, against more than 40,000",
          study="parity-1000", ours="mollified", theirs="residual-bn", measure="updates"),
    Claim(text="Parity: the plain network does not learn, at its best gain", paper="stays at 0.78", study="parity-1000", ours="plain", says="does not learn"),
    Claim(text="Parity, 10,000 samples: mollified is faster than residual + batch norm", paper="–",
          study="parity-10000", ours="mollified", theirs="residual-bn", measure="updates"),
    Claim(text="Parity at the printed learning rate: mollified learns", paper="0.02 by 40,000 updates",
          study="parity-printed", ours="mollified", says="learns"),
    Claim(text="MNIST: 72 layers train when mollified", paper="learns", study="mnist-72", ours="mollified", says="learns"),
    Claim(text="MNIST, 72 layers: batch norm makes little difference to mollified", paper="–",
          study="mnist-72", ours="mollified", theirs="mollified-bn", says="same"),
    Claim(text="MNIST, 72 layers: a residual connection makes little difference to mollified", paper="–",
          study="mnist-72", ours="mollified", theirs="mollified-residual", says="same"),
    Claim(text="MNIST: Monte-Carlo weight noise does not help", paper="–",
          study="mnist-appendix", ours="weight-noise", theirs="plain", says="no better"),
    Claim(text="MNIST: mollified above plain, 6 layers", paper="–", study="mnist-appendix", ours="mollified", theirs="plain"),
    Claim(text="MNIST: training on expected values is nearly as good as on samples", paper="–",
          study="mnist-deterministic", ours="mollified-deterministic", theirs="mollified", says="same"),
    Claim(text="Exponential decay above the linear schedule", paper="–",
          study="mnist-schedules", ours="mollified:c=100", theirs="mollified:c=20,horizon=2500,schedule=linear"),
    Claim(text="Exponential decay above the square-root schedule", paper="–",
          study="mnist-schedules", ours="mollified:c=100", theirs="mollified:c=20,horizon=2500,schedule=square_root"),
    Claim(text="PTB, 2 layers: mollified above plain", paper="123.6 against 128.4", study="ptb-2", ours="mollified", theirs="plain",
          control="ptb-2-same-rate"),
    Claim(text="PTB, 2 layers: the paper's form (gates, no copy) above plain", paper="123.6 against 128.4",
          study="ptb-2", ours="paper-lstm", theirs="plain"),
    Claim(text="PTB, 3 layers: mollified above plain", paper="115.7 against 119.4", study="ptb-3", ours="mollified", theirs="plain",
          control="ptb-3-same-rate"),
    Claim(text="Characters to word vectors: mollified above plain", paper="0.128 against 0.148",
          study="characters", ours="mollified", theirs="plain"),
    Claim(text="CIFAR-10 (20 layers, 30 epochs here): mollified above ResNet", paper="92.45 against 91.78 % accuracy",
          study="cifar10-reduced", ours="mollified-residual", theirs="residual", measure="best"),
    Claim(text="CIFAR-10 (20 layers, 30 epochs here): stochastic depth above mollified", paper="93.25 against 92.45 % accuracy",
          study="cifar10-reduced", ours="stochastic-depth", theirs="mollified-residual", measure="best"),
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A claim with our result.

    Attributes:
        claim: The claim.
        found: Our numbers, as text.
        difference: The first variant minus the second, as text; empty without a second.
        verdict: One of `ORDER`.
        relative: The difference as a fraction of the second variant's mean; None without a second, or with one seed.
        remark: What it would take to decide, if the verdict is "undecided", and the difference to the control.
        precision: The precision of the runs, with Fabric's names.
    """

    claim: Claim
    found: str
    difference: str
    verdict: str
    relative: Estimate | None = None
    remark: str = ""
    precision: str = FULL

    @property
    def command(self) -> str:
        """The command that runs the study as it was run.

        >>> Verdict(Claim(text="A", paper="", study="cifar10-reduced", ours="residual"), "", "", "not run", precision="bf16-mixed").command
        'mollifier reproduce cifar10-reduced --precision bf16-mixed'
        """
        return f"mollifier reproduce {self.claim.study}" + (
            f" --precision {self.precision}" if self.precision != FULL else ""
        )


def judge(difference: Estimate, says: Direction, margin: float = 0.0) -> str:
    """Return the verdict from the interval of a difference; lower is better.

    >>> judge(Estimate(0.0, -0.01, 0.02, 5), "same", margin=0.05), judge(Estimate(0.0, -0.01, 0.2, 5), "same", margin=0.05)
    ('reproduced', 'undecided')
    >>> judge(Estimate(-0.5, -0.6, -0.4, 5), "no better")
    'not reproduced'
    """
    low, high = difference.low, difference.high
    if math.isnan(low):
        return "undecided"
    if says == "same":
        if low > margin or high < -margin:
            return "not reproduced"
        return "reproduced" if -margin <= low and high <= margin else "undecided"
    if says == "no better":
        return "not reproduced" if high < 0 else "reproduced"
    if high < 0:
        return "reproduced"
    return "not reproduced" if low > 0 else "undecided"


def verdicts(results: str | Path) -> list[Verdict]:
    """Return every claim with its verdict: those not reproduced first, those not run last.

    >>> import tempfile
    >>> {verdict.verdict for verdict in verdicts(tempfile.mkdtemp())}
    {'not run'}
    """
    found = [_verdict(claim, Path(results)) for claim in CLAIMS]
    return sorted(found, key=lambda each: ORDER.index(each.verdict))


def _verdict(claim: Claim, results: Path) -> Verdict:
    study = STUDIES[claim.study]
    folder = results / study.task / study.name
    names = [claim.ours, claim.theirs] if claim.theirs else [claim.ours]
    sides = [_runs(folder / Variant.parse(name, study.task).slug) for name in names]
    if any(len(side) < study.seeds for side in sides):
        done = " + ".join(str(len(side)) for side in sides)
        return Verdict(claim, f"{done} of {study.seeds} seeds" if any(sides) else "", "", "not run")
    precision = next(iter(sides[0].values())).identity.get("precision", FULL)
    budget = max(_updates(run) for side in sides for run in side.values())
    values = [{seed: _value(run, claim.measure, budget) for seed, run in side.items()} for side in sides]
    metric = next(iter(sides[0].values())).config.settings.headline if claim.measure != "updates" else "updates"
    shown = [_describe(metric, estimate(value.values()), side) for value, side in zip(values, sides, strict=True)]
    if not claim.theirs:
        reached = sum(_reached(run) for run in sides[0].values())
        learns = {0: "does not learn", len(sides[0]): "learns"}.get(reached, "")
        verdict = "undecided" if not learns else "reproduced" if learns == claim.says else "not reproduced"
        remark = "" if learns else "some seeds learn; more would give the share, not a verdict"
        found = f"{shown[0]}; {reached} of {len(sides[0])} seeds reach the target"
        return Verdict(claim, found, "", verdict, remark=remark, precision=precision)
    difference = paired(values[0], values[1])
    base = estimate(values[1].values()).mean
    margin = claim.margin * base
    verdict = judge(difference, claim.says, margin)
    remarks = [_takes(difference, claim.says, margin)] if verdict == "undecided" else []
    if claim.control and (control := _runs(_control_folder(claim.control, results))):
        against = paired(values[0], {seed: _value(run, claim.measure, budget) for seed, run in control.items()})
        remarks.append(f"against the control `{claim.control}` {_difference(metric, against)}")
    return Verdict(
        claim,
        " against ".join(shown),
        _difference(metric, difference),
        verdict,
        _relative(difference, base) if difference.n > 1 and base > 0 else None,
        "; ".join(remarks),
        precision,
    )


def _control_folder(name: str, results: Path) -> Path:
    study = STUDIES[name]
    return results / study.task / study.name / Variant.parse(study.methods[0], study.task).slug


def _takes(difference: Estimate, says: Direction, margin: float) -> str:
    """Say how many seeds would decide, if the difference and its spread stayed as they are.

    >>> _takes(Estimate(mean=-0.5, low=-1.5, high=0.5, n=5), "better", 0.0)
    'would take about 13 seeds'
    """
    if difference.n < 2:
        return "one seed has no interval, would take at least 2"
    distance = abs(abs(difference.mean) - (margin if says == "same" else 0.0))
    needed = seeds_needed(difference, distance)
    return f"would take {f'about {needed}' if needed else f'more than {MANY:,}'} seeds"


def _relative(difference: Estimate, base: float) -> Estimate:
    return Estimate(difference.mean / base, difference.low / base, difference.high / base, difference.n)


def _runs(folder: Path) -> dict[int, Run]:
    """Return the finished runs of a variant, by seed, without damaged ones."""
    if not any(folder.glob("*/config.json")):  # a search may have written its choice before the first run
        return {}
    runs, _ = read(find_runs(folder))
    return {run.config.seed: run for run in runs if run.status == "done" and not run.damage}


def _updates(run: Run) -> float:
    """Return the number of updates of a run. It may have ended early, because it converged or diverged."""
    return max(number(run.result.get("updates")), float(run.config.settings.updates))


def _value(run: Run, measure: Measure, budget: float) -> float:
    if measure == "updates":  # a run that does not reach the target took at least all its updates
        settings = run.config.settings
        return min(first_at(run, settings.curve, settings.target), budget)
    if measure == "best":
        return run.config.settings.chance if math.isnan(run.best) else run.best
    return run.counted


def _reached(run: Run) -> bool:
    """Return whether the curve was at or below the target at the end."""
    last = list(run.points(run.config.settings.curve).values())[-1:]
    return bool(last) and last[0] <= run.config.settings.target


def _describe(metric: str, found: Estimate, side: dict[int, Run]) -> str:
    if metric == "updates":
        settings = next(iter(side.values())).config.settings
        reached = sum(math.isfinite(first_at(run, settings.curve, settings.target)) for run in side.values())
        return f"{show_count(found.mean)} updates ({reached} of {found.n} get there)"
    interval = f" ({show_interval(metric, found.low, found.high)})" if found.n > 1 else ""
    return show_metric(metric, found.mean) + interval


def _difference(metric: str, found: Estimate) -> str:
    return _signed(metric, found.mean) + (f" ({_interval(metric, found)})" if found.n > 1 else " (one seed)")


def _signed(metric: str, value: float) -> str:
    return f"{value:+,.0f}" if metric == "updates" else show_difference(metric, value)


def _interval(metric: str, found: Estimate) -> str:
    if metric == "updates":
        return f"{found.low:+,.0f} to {found.high:+,.0f}; n = {found.n}"
    return f"{show_interval(metric, found.low, found.high)}; n = {found.n}"


def markdown(found: list[Verdict]) -> str:
    """Return the table *paper | ours | verdict* in Markdown.

    >>> claim = Claim(text="A is faster", paper="yes", study="pentomino", ours="mollified")
    >>> print(markdown([Verdict(claim, "no", "", "not reproduced")]).splitlines()[2])
    | A is faster | yes | no |  | **not reproduced** | `mollifier reproduce pentomino` |
    """
    lines = [
        "| claim | paper | ours (95 % interval) | paired difference | verdict | command |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.claim.text} | {each.claim.paper} | {each.found} | {each.difference} | **{each.verdict}**{f'; {each.remark}' if each.remark else ''} | "
        f"`{each.command}` |"
        for each in found
    ]
    return "\n".join(lines)


# Marks in the README of the results
BEGIN, END = "<!-- verdicts: written by `mollifier reproduce --verdicts` -->", "<!-- end of the verdicts -->"
TABLE = re.compile(r"(<!-- table of (\S+) -->).*?(<!-- end of \2 -->)", re.DOTALL)


def write_verdicts(results: Path) -> list[Verdict]:
    """Judge all claims, write the table into the README of the results, between its two marks, and draw the differences beside it (claims.png).

    The README also gets the table of each comparison for which it has marks: ``<!-- table of TASK/NAME -->`` and ``<!-- end of TASK/NAME -->``.
    Without such a README nothing is written.
    """
    found, page = verdicts(results), results / "README.md"
    if page.is_file():
        text = page.read_text(encoding="utf-8")
        filled = TABLE.sub(lambda mark: f"{mark[1]}\n\n{study_table(results / mark[2])}\n\n{mark[3]}", text)
        before, mark, rest = filled.partition(BEGIN)
        _, end, after = rest.partition(END)
        if mark and end:
            filled = f"{before}{BEGIN}\n\n{markdown(found)}\n\n{END}{after}"
            rows = [(each.claim.text, each.relative, each.verdict) for each in found if each.relative is not None]
            if rows:
                write_atomically(results / "claims.png", differences_png(rows))
        if filled != text:
            write_atomically(page, filled.encode())
    return found
