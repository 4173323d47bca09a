"""The benchmarks' own parts: interleaved timing, numerics, tables and plot."""

import json
from pathlib import Path

import pytest
from benchmarks import numerics, report, timing

from mollifier import kernels

ROOT = Path(__file__).parents[1]


def test_a_candidate_is_compared_with_the_first_one_in_turns(monkeypatch):
    """On a clock of our own: the ratio is the median of the rounds, so that a slow round changes nothing."""
    order, now = [], [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def take(name, seconds):
        def run():
            order.append(name)
            disturbed = name == "slow" and order.count("slow") % 10 == 0
            now[0] += 100 * seconds if disturbed else seconds

        return run

    (found,) = timing.compare(
        "line", {"plain": take("plain", 0.002), "slow": take("slow", 0.008)}, rounds=20, seconds=1e9
    )
    assert order == ["plain", "slow"] * 25  # five rounds of warming up, then twenty
    assert found.ratio == pytest.approx(4.0)
    assert found.low == pytest.approx(4.0)
    assert found.microseconds == pytest.approx(8000.0)
    assert found.plain_microseconds == pytest.approx(2000.0)


def test_timing_stops_when_its_seconds_are_over(monkeypatch):
    now, calls = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def step():
        calls.append(1)
        now[0] += 1.0

    timing.compare("line", {"plain": step, "other": step}, rounds=200, seconds=10.0)
    assert len(calls) == 2 * (5 + 15)  # at least fifteen rounds, whatever they take


@pytest.mark.skipif(kernels.info().backend != "native", reason="no native kernels here")
def test_the_kernels_are_checked_against_the_reference_first():
    assert all(value <= numerics.LIMITS[name] for name, value in numerics.errors().items())


def row(line, candidate, run, threads, ratio):
    return {
        "line": line,
        "candidate": candidate,
        "run": run,
        "threads": threads,
        "backend": "native",
        "ratio": ratio,
    } | {"low": ratio - 0.1, "high": ratio + 0.1, "microseconds": 2.0, "plain_microseconds": 1.0}


def test_tables_and_plot_are_written_between_their_marks(tmp_path):
    rows = [row("LSTM 200", "mollified", run, threads, 0.8 + 0.1 * run) for run in range(3) for threads in (1, 2)]
    growth = [
        row(f"{kind} {size}", "mollified", 0, 1, 1.0)
        for kind in ("width", "batch", "depth", "length")
        for size in (1, 2)
    ]
    (tmp_path / "results.json").write_text(json.dumps({"rows": rows, "growth": growth}))
    page = tmp_path / "benchmarks.md"
    page.write_text(
        "# B\n<!-- lines -->\nold\n<!-- end of lines -->\nkept\n<!-- growth -->\n<!-- end of growth -->\nend\n"
    )
    (tmp_path / "figures").mkdir()
    report.write(tmp_path / "results.json", tmp_path)
    text = page.read_text()
    assert "old" not in text
    assert "kept" in text
    assert text.endswith("end\n")
    assert "| LSTM 200 | mollified | native | 0.90 (0.80 to 1.00) | 0.90 (0.80 to 1.00) | ≤ 0.9 |" in text
    assert "| width 1 | 1.00 (0.90 to 1.10) | 1 µs | 2 µs |" in text
    assert (tmp_path / "figures" / "benchmarks.png").stat().st_size > 1000
    assert "OVER 0.9" in report.text(rows, 2)
    assert "within 0.9" in report.text(rows, 0)


def test_every_line_that_was_measured_has_its_place_in_the_table_and_every_bar_a_line():
    rows = json.loads((ROOT / "benchmarks" / "results.json").read_text())["rows"]
    keys = {(row["line"], row["candidate"], row["backend"]) for row in rows}
    assert report.table(rows).count("\n") == len(keys) + 1
    assert set(report.BARS) <= keys
