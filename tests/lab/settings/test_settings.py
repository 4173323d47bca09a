"""Settings: what a name means, what is refused."""

import dataclasses
import json

import pytest

from mollifier_lab.errors import LabError, did_you_mean
from mollifier_lab.methods import METHODS, applicable, method_for
from mollifier_lab.settings import KNOBS, TASKS, RunConfig, settings_for
from mollifier_lab.settings.reported import in_paper

PRESETS = [(task, preset) for task, kind in TASKS.items() for preset in kind.presets]


@pytest.mark.parametrize(("task", "preset"), PRESETS)
def test_every_preset_is_valid_and_survives_its_file(task: str, preset: str) -> None:
    config = RunConfig.make(task, "plain", seed=3, preset=preset)
    assert RunConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_what_the_commands_need(task: str) -> None:
    kind = TASKS[task]
    names = {field.name for field in dataclasses.fields(kind)}
    assert {"paper", "quick"} <= set(kind.presets)
    assert set(kind.search) <= names
    assert all(low < high for low, high, _ in kind.search.values())
    assert set(in_paper(kind)) <= {method.name for method in applicable(task)}
    assert kind.chance > 0
    assert "lr" in kind.search


def test_every_knob_is_a_setting_with_a_range() -> None:
    names = {field.name for field in dataclasses.fields(TASKS["parity"])}
    for method in METHODS.values():
        assert set(method.knobs) <= set(KNOBS) & names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.0}, "lr=0.0: expected a positive number"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"momentum": 1.0}, r"momentum=1.0: expected a number in \[0, 1\)"),
        ({"batch": 0, "depth": 0}, "batch=0.*depth=0"),
        ({"schedule": "linear"}, "horizon=0.0: expected a positive number with this schedule"),
        ({"updates": 0}, "epochs=0.0: expected a positive number where updates is 0"),
        ({"widht": 3}, "no setting 'widht'.*did you mean 'width'"),
    ],
)
def test_wrong_values_are_named_all_at_once(changes: dict[str, object], message: str) -> None:
    with pytest.raises(LabError, match=message):
        settings_for("parity", **changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunConfig.make("paritty", "plain"), "no task 'paritty'.*did you mean 'parity'"),
        (lambda: RunConfig.make("parity", "molified"), "no method 'molified'.*did you mean 'mollified'"),
        (lambda: RunConfig.make("parity", "plain", preset="quik"), "no preset of parity 'quik'.*did you mean 'quick'"),
        (lambda: RunConfig.make("ptb", "highway"), "'highway' does not apply to task 'ptb'; these do: plain"),
        (lambda: RunConfig.make("parity", "plain", seed=-1), "seed=-1"),
        (lambda: RunConfig.from_json("[]"), "not the config of a run"),
        (lambda: RunConfig.from_json("{"), "not the config of a run"),
    ],
)
def test_typos_and_foreign_files(make: object, message: str) -> None:
    with pytest.raises(LabError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("change", "message"), [({"format": 2}, "format 2, this version reads 1"), ({"new": 1}, "does not know: new")]
)
def test_a_config_of_the_future_is_refused(change: dict[str, int], message: str) -> None:
    found = json.loads(RunConfig.make("parity", "plain").to_json())
    (found if "format" in change else found["settings"]).update(change)
    with pytest.raises(LabError, match=message):
        RunConfig.from_json(json.dumps(found))


def test_nothing_near_gives_no_hint() -> None:
    assert did_you_mean("xyz", ["parity"]) == ""
    assert method_for("copy", "ptb").annealed


@pytest.mark.parametrize(
    ("task", "method", "changes", "message"),
    [
        ("parity", "plain", {"push": "odds"}, "push='odds' would do nothing: method 'plain' has no noisy activations"),
        ("parity", "residual", {"v": "one", "p_min": 0.1}, "v='one' would do nothing.*p_min=0.1 would do nothing"),
        ("mnist", "noisy-activation", {"copy": False}, "method 'noisy-activation' has no copy"),
        ("mnist", "weight-noise", {"copy": False}, "method 'weight-noise' has no copy"),
        ("mnist", "plain", {"projection": "fixed"}, "projection='fixed' would do nothing: method 'plain' has no copy"),
        ("mnist", "copy", {"copy": False}, "copy=False leaves nothing of method 'copy'"),
        ("ptb", "copy", {"time": "annealing"}, "method 'copy' has no mollified gates"),
        ("ptb", "gates", {"push": "odds"}, "method 'gates' has no noisy activations"),
        ("parity", "mollified", {"time": "annealing"}, "parity has no setting 'time'"),
        ("parity", "mollified", {"v": "valid"}, "parity has no validation set"),
        ("mnist", "mollified", {"v": "valid", "loss_average": 0.0}, "loss_average=0.0: expected a number above 0"),
        ("mnist", "mollified", {"p_min": 1.0}, r"p_min=1.0: expected a number in \[0, 1\)"),
        ("ptb", "mollified", {"time_cap": -1}, "time_cap=-1: expected a whole number >= 0"),
        ("ptb", "mollified", {"time": "annealing", "carry_time": True}, "carry_time=True: expected false"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(
    task: str, method: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(LabError, match=message):
        RunConfig.make(task, method, **changes)


@pytest.mark.parametrize("task", TASKS)
def test_a_config_from_before_a_setting_was_there_has_its_default(task: str) -> None:
    config = RunConfig.make(task, "mollified")
    old = json.loads(config.to_json())
    for name in (
        "v",
        "then",
        "p_min",
        "copy",
        "projection",
        "push",
        "flush_denormal",
        "unbiased_gates",
        "time",
        "time_cap",
    ):
        old["settings"].pop(name, None)
    assert RunConfig.from_json(json.dumps(old)) == config
