"""Tables and the plot of the results."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]
# (line, candidate, backend) → what it must not exceed
BARS = {
    ("unit 128×200", "mollified", "native"): 3.0,
    ("unit 500×100", "mollified", "native"): 3.0,
    ("Pentomino MLP", "hidden layers, p = 0", "native"): 1.02,
    ("Pentomino MLP", "hidden layers, p = 0.5", "native"): 1.12,
    ("Pentomino MLP", "hidden layers, p = 0.9", "native"): 1.0,
    ("Pentomino MLP", "all layers, fixed projection, p = 0", "native"): 1.02,
    ("Pentomino MLP", "all layers, fixed projection, p = 0.5", "native"): 1.12,
    ("Pentomino MLP", "all layers, fixed projection, p = 0.9", "native"): 1.0,
    ("parity MLP", "all layers, p = 0", "native"): 1.03,
    ("parity MLP", "all layers, p = 0.5", "native"): 1.15,
    ("parity MLP", "all layers, p = 0.9", "native"): 0.85,
    ("expected values, parity", "p = 0.5", "native"): 1.1,
    ("expected values, LSTM 200", "p = 0.5", "native"): 1.15,
    ("annealer, parity", "exponential", "native"): 0.01,
    ("annealer, parity", "front", "native"): 0.01,
    ("annealer, parity", "adaptive", "native"): 0.01,
    ("ResNet-20", "p = 0.5", "native"): 1.2,
    ("GPT block", "p = 0.5", "native"): 1.2,
    ("LSTM 200", "mollified", "native"): 0.9,
    ("LSTM 200, memory kept", "mollified", "native"): 1.0,
    ("LSTM 650", "mollified", "native"): 0.97,
    ("LSTM 650, memory kept", "mollified", "native"): 1.03,
    ("LSTM cells", "mollified", "native"): 1.5,
    ("GRU 200", "mollified", "native"): 0.75,
    ("GRU 650", "mollified", "native"): 0.75,
    ("engine, parity, plain", "engine", "native"): 1.1,
    ("engine, parity, mollified", "engine", "native"): 1.1,
}


# of the table, by the first word of a line
ORDER = ["unit", "Pentomino", "parity", "expected", "annealer", "ResNet-20", "GPT", "LSTM", "GRU", "engine"]


def show(ratio: float) -> str:
    """Show a ratio with two digits that say something.

    >>> show(1.234), show(0.0123)
    ('1.23', '0.0123')
    """
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.4f}"


def text(rows: Rows, run: int) -> str:
    """One run, to read on the screen."""
    lines = [f"run {run + 1}"]
    for row in rows:
        if row["run"] == run:
            bar = BARS.get((row["line"], row["candidate"], row["backend"]))
            mark = "" if bar is None else f"  ({'within' if row['ratio'] <= bar else 'OVER'} {bar})"
            lines.append(
                f"  {row['threads']} thread{'s' * (row['threads'] > 1)}  {row['backend']:6}  {row['line']:18} "
                f"{row['candidate']:24} {show(row['ratio'])} ({show(row['low'])} to {show(row['high'])}){mark}"
            )
    return "\n".join(lines)


def table(rows: Rows) -> str:
    """The medians of all runs as a Markdown table, with the span of the runs."""
    lines = ["| | | | 1 thread | 2 threads | must |", "|---|---|---|---|---|---|"]
    keys = dict.fromkeys((row["line"], row["candidate"], row["backend"]) for row in rows)
    for line, candidate, backend in sorted(
        keys, key=lambda key: (key[2] == "reference", ORDER.index(key[0].split()[0].strip(",")))
    ):
        cells = []
        for threads in (1, 2):
            ratios = [
                row["ratio"]
                for row in rows
                if (row["line"], row["candidate"], row["backend"], row["threads"])
                == (line, candidate, backend, threads)
            ]
            spread = (
                f"{show(statistics.median(ratios))} ({show(min(ratios))} to {show(max(ratios))})" if ratios else "–"
            )
            cells.append(spread)
        bar = BARS.get((line, candidate, backend))
        must = "" if bar is None else f"≤ {bar:g}"
        lines.append(f"| {line} | {candidate} | {backend} | {' | '.join(cells)} | {must} |")
    return "\n".join(lines)


def growth_table(growth: Rows) -> str:
    lines = ["![Time of a mollified step over that of a plain one](figures/benchmarks.png)", ""]
    lines += ["| | ratio (quartiles) | plain | mollified |", "|---|---|---|---|"]
    for row in growth:
        spread = f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        lines.append(
            f"| {row['line']} | {spread} | {row['plain_microseconds']:.0f} µs | {row['microseconds']:.0f} µs |"
        )
    return "\n".join(lines)


def write(results: Path, docs: Path) -> None:
    """Put the tables between their marks in docs/benchmarks.md, and draw the plot."""
    found = json.loads(results.read_text())
    page = docs / "benchmarks.md"
    text = page.read_text()
    tables = {"lines": table(found["rows"])}
    if found["growth"]:
        tables["growth"] = growth_table(found["growth"])
        plot(found["growth"], docs / "figures" / "benchmarks.png")
    for mark, content in tables.items():
        before, rest = text.split(f"<!-- {mark} -->\n")
        after = rest.split(f"<!-- end of {mark} -->")[1]
        text = f"{before}<!-- {mark} -->\n{content}\n<!-- end of {mark} -->{after}"
    page.write_text(text)


def plot(growth: Rows, path: Path) -> None:
    """Ratio against width, batch, depth and length."""
    import matplotlib.pyplot as plt

    kinds = ("width", "batch", "depth", "length")
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.6), sharey=True, layout="constrained")
    for kind, axis in zip(kinds, axes, strict=True):
        rows = [row for row in growth if row["line"].startswith(kind)]
        sizes = [int(row["line"].split()[1]) for row in rows]
        axis.fill_between(sizes, [row["low"] for row in rows], [row["high"] for row in rows], alpha=0.2, color="teal")
        axis.plot(sizes, [row["ratio"] for row in rows], marker="o", color="teal")
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.set(xscale="log", xlabel=kind)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.minorticks_off()
    axes[0].set(
        ylabel="time / plain", ylim=(0, 1.05 * max(row["high"] for row in growth if row["line"].split()[0] in kinds))
    )
    figure.savefig(path, dpi=100)
