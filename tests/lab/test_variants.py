from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, strategies as st

from mollifier_lab import settings
from mollifier_lab.errors import LabError
from mollifier_lab.settings import RunConfig
from mollifier_lab.settings.reported import in_paper
from mollifier_lab.variants import LONGEST, Variant, default_methods, parse_changes, parse_variants


def test_a_method_alone_gives_the_config_that_train_gives() -> None:
    variant = Variant.parse("residual-bn", "parity")
    assert (variant.changes, variant.slug, variant.label) == ({}, "residual-bn", "residual + batch norm")
    assert variant.config("parity", 3, "quick", {}) == RunConfig.make("parity", "residual-bn", 3, "quick")


def test_values_have_the_types_of_the_settings() -> None:
    text = "plain:width=8, lr=1e-2, gain=4, activation=tanh, evaluate-every=5"
    changes = Variant.parse(text, "parity").changes
    expected = {"activation": "tanh", "evaluate_every": 5, "gain": 4.0, "lr": 0.01, "width": 8}
    assert changes == expected
    assert [type(value) for value in changes.values()] == [str, int, float, float, int]
    assert parse_changes(["depth=56"], "cifar10") == {"depth": 56}


def test_its_own_settings_go_before_those_of_all() -> None:
    config = Variant.parse("plain:lr=0.5", "parity").config("parity", 0, "quick", {"lr": 0.1, "width": 8})
    assert (config.settings.lr, config.settings.width) == (0.5, 8)  # type: ignore[attr-defined]
    assert config.title == "plain, lr=0.5"


def test_the_order_of_settings_makes_no_new_variant() -> None:
    assert Variant.parse("plain:gain=4,lr=0.1", "parity") == Variant.parse("plain:lr=0.10,gain=4.0", "parity")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plane", ["'plane'", "did you mean 'plain'"]),
        ("highway:lr=1", ["'highway'", "does not apply", "'ptb'"]),
        ("plain:lrr=1", ["'lrr'", "did you mean 'lr'", "mollifier train ptb --help"]),
        ("plain:lr=fast", ["lr=fast", "a finite number"]),
        ("plain:lr=nan", ["lr=nan", "a finite number"]),
        ("plain:layers=2.5", ["layers=2.5", "a whole number"]),
        ("plain:optimizer=adamm", ["optimizer=adamm", "did you mean 'adam'", "sgd, nesterov, rmsprop, adam"]),
        ("plain:lr", ["'lr'", "name=value"]),
        ("plain:lr=", ["'lr='", "name=value"]),
        ("plain:", ["name=value"]),
        ("plain:lr=1,lr=2", ["'lr'", "twice"]),
    ],
)
def test_what_is_not_understood_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(LabError) as caught:
        Variant.parse(text, "ptb")
    for word in [*words, *([text] if ":" in text else [])]:
        assert word in str(caught.value)


def test_a_value_out_of_range_is_named_when_the_config_is_made() -> None:
    with pytest.raises(LabError, match=r"lr=-1\.0: expected a positive number"):
        Variant.parse("plain:lr=-1", "parity").config("parity", 0, "quick", {})


def test_typed_changes_are_checked_as_words_are() -> None:
    assert parse_changes({"lr": 1, "width": 8}, "parity") == {"lr": 1.0, "width": 8}
    with pytest.raises(LabError, match=r"width=8\.5: expected a whole number"):
        parse_changes({"width": 8.5}, "parity")


def test_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Switched(settings.Parity):
        summary: ClassVar[str] = "with a switch"
        on: bool = False

    Switched.__annotations__["on"] = bool
    monkeypatch.setitem(settings.TASKS, "parity", Switched)
    assert Variant.parse("plain:on=yes", "parity").changes == {"on": True}
    assert str(Variant("plain", {"on": True})) == "plain:on=true"
    with pytest.raises(LabError, match="on=maybe: expected one of true"):
        Variant.parse("plain:on=maybe", "parity")


def test_default_methods_apply_to_their_task() -> None:
    assert default_methods("parity") == ["plain", "mollified", "residual-bn"]
    for task, kind in settings.TASKS.items():  # where several methods are the paper's, all are run
        assert set(in_paper(kind)) <= set(default_methods(task))
    for task in settings.TASKS:
        assert len(parse_variants([], task)) >= 3


def test_variants_given_twice_are_refused() -> None:
    with pytest.raises(LabError, match=r"twice: plain:gain=4,lr=1;"):
        parse_variants(["plain:lr=1,gain=4", "mollified", "plain:gain=4,lr=1.0"], "parity")
    with pytest.raises(LabError, match="did you mean 'parity'"):
        parse_variants(["plain"], "paritty")


def test_slugs_are_safe_and_differ() -> None:
    names = ["a/b", "a b", "a\\b", "../../x", "x" * 300, "x" * 301, "ü", "a-b", "\n"]
    slugs = [Variant("plain", {"activation": name}).slug for name in names]
    assert len(set(slugs)) == len(names)
    for slug in slugs:
        assert len(slug) <= LONGEST + 9
        assert slug.isascii()
        assert not set(slug) & set('/\\ \n,:*?"<>|')


@given(st.floats(min_value=1e-300, max_value=1e30), st.integers(1, 10**6))
def test_a_variant_reads_back_what_it_writes(lr: float, width: int) -> None:
    variant = Variant("plain", {"lr": lr, "width": width})
    assert Variant.parse(str(variant), "parity") == variant
    config = variant.config("parity", 0, "quick", {})
    assert dataclasses.asdict(config.settings)["lr"] == lr


def test_no_torch_is_needed() -> None:
    code = "import sys, mollifier_lab.variants; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
