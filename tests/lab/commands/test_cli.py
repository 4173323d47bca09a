"""The command line: what it lists, what it says when it is not understood, and how it ends."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import pytest

from mollifier_lab import METHODS, TASKS
from mollifier_lab.cli import main, parse
from mollifier_lab.commands.all_commands import COMMANDS

HEAVY = (
    "torch",
    "numpy",
    "matplotlib",
    "optuna",
    "joblib",
    "lightning_fabric",
    "lightning",
    "pooch",
    "plotly",
    "scipy",
)
INSTANT = f"""
import sys
from mollifier_lab.cli import main
for line in ("--help", "tasks", "methods", "tasks ptb", "methods ptb", "train --help", "train parity --help", "compare --help"):
    assert main(line.split()) == 0, line
sys.exit(", ".join(name for name in {HEAVY!r} if name in sys.modules) or 0)
"""


def test_what_only_tells_imports_nothing_heavy() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", INSTANT], capture_output=True, text=True)
    assert (ran.stderr.strip(), ran.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("trian parity", "no command 'trian' (did you mean 'train'?)"),
        ("train paritty", "no task 'paritty' (did you mean 'parity'?)"),
        ("train parity --preset quik", "no preset of parity 'quik' (did you mean 'quick'?)"),
        ("train parity --method molified", "no method 'molified' (did you mean 'mollified'"),
        ("train parity --lrr 0.1", "Perhaps you meant:"),
        ("train cifar10 --method gates", "method 'gates' does not apply to task 'cifar10'; these do: plain"),
        ("train", "needs a task: one of parity"),
        ("train parity --lr -1", "lr=-1.0: expected a positive number"),
        ("train parity --activation sigmod", "invalid choice 'sigmod' for argument '--activation'"),
        ("train parity --lr fast", "Error parsing --lr"),
        ("compare paritty", "no task 'paritty' (did you mean 'parity'?)"),
        ("compare parity --methods plane", "no method 'plane' (did you mean 'plain'"),
        ("compare parity --sedes 3", "--seeds"),
        ("search paritty", "no task 'paritty' (did you mean 'parity'?)"),
        ("search parity --method plane", "no method 'plane' (did you mean 'plain'"),
        ("methods pbt", "no task 'pbt' (did you mean 'ptb'?)"),
        ("data cifar", "no task 'cifar' (did you mean 'cifar10'?)"),
        ("figures schedule", "no figure 'schedule' (did you mean 'schedules'?)"),
        ("report nowhere", "nowhere: no run in it"),
        ("resume nowhere", "nowhere: no run here"),
        ("resume /dev/null", "Not a directory"),
    ],
)
def test_what_is_not_understood_is_told_in_plain_words(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert hint in err
    assert out == ""
    assert "Traceback" not in err
    assert "\x1b" not in err


def test_debugging_shows_where_it_happened(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MOLLIFIER_DEBUG", "1")
    assert main(["methods", "pbt"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_help_names_every_command_and_their_help_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: mollifier {name} ")
    assert main([]) == 0
    assert capsys.readouterr().out == overview
    assert "\x1b" not in overview


@pytest.mark.parametrize("flag", ["--preset", "--method", "--data", "--set", "--threads", "--workers", "--quiet"])
def test_a_flag_means_the_same_wherever_it_is(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same kind of value, and the same words about it."""
    found = set()
    for name in ("train", "resume", "compare", "search", "report", "data", "figures"):
        main([name, "--help"])
        words = " ".join(capsys.readouterr().out.replace("│", " ").split())
        if f" {flag} " in words:
            found.add(words.partition(f" {flag} ")[2][:12])
    assert len(found) == 1


def test_tasks_shows_what_the_paper_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    for name, task in TASKS.items():
        line = next(line for line in out.splitlines() if line.split()[:1] == [name])
        assert task.summary in line
        assert ", ".join(task.presets) in line
    assert "mollified + residual 7.55 %" in out


def test_methods_shows_those_of_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    first = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert first[2:] == list(METHODS)
    assert main(["methods", "cifar10"]) == 0
    out = capsys.readouterr().out
    assert "gates" not in out
    assert "6.75 %" in next(line for line in out.splitlines() if line.split()[:1] == ["stochastic-depth"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from mollifier import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mollifier {__version__}\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    line = [sys.executable, "-m", "mollifier_lab", "methods"]
    ran = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_terminal_without_unicode_gets_question_marks() -> None:
    line = [sys.executable, "-m", "mollifier_lab", "tasks"]
    ran = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "6?200 sigmoid MLP" in ran.stdout


def test_an_interrupt_ends_with_the_code_that_shells_expect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @dataclass(frozen=True)
    class Endless:
        """Never ends by itself."""

        def run(self) -> int:
            signal.raise_signal(signal.SIGINT)
            return 0

    monkeypatch.setitem(COMMANDS, "endless", Endless)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        assert main(["endless"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "interrupted\n"


def test_what_is_not_installed_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert main(["tasks"]) == 2
    assert (
        capsys.readouterr().err
        == "error: this command belongs to the laboratory, which needs tyro: pip install 'mollifier[lab]'\n"
    )


def test_errors_name_the_process_they_come_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert main(["methods", "pbt"]) == 2
    assert capsys.readouterr().err.startswith("rank 1: error: ")


def test_parse_gives_the_typed_command() -> None:
    compare = parse(
        ["compare", "ptb", "--methods", "plain", "plain:gain=4,lr=0.1", "--seeds", "2", "--set", "lr=0.5", "k=3"]
    )
    assert (compare.task, compare.methods, compare.seeds) == ("ptb", ("plain", "plain:gain=4,lr=0.1"), "2")  # type: ignore[attr-defined]
    assert compare.changes == ("lr=0.5", "k=3")  # type: ignore[attr-defined]
