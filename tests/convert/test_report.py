"""The report: what was mollified, what was not, and the present levels."""

import copy

import pytest
from torch import nn

import mollifier
from mollifier.convert import Report
from tests.helpers import BasicBlock, mlp


def model() -> nn.Module:
    return mollifier.mollify(
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), BasicBlock(4, 2), nn.Flatten(), nn.Linear(32, 3), nn.PReLU()
        )
    )


def test_it_prints_a_table_and_the_reasons():
    net = model()
    mollifier.set_level(net, [0.5, 0.123456])
    assert str(mollifier.report(net)) == (
        "mollified: 2 blocks\n"
        " #  block  kind      units  copy   noisy activations  level\n"
        " 1  [0:1]  run       1 → 4  pad    relu (4 a)         0.5\n"
        " 2  2      residual  4 → 2  fixed  relu (2 a)         0.123\n"
        "not mollified:\n"
        "  4 (Linear): PReLU follows it: its slope is learned; register a function of your own, or use nn.LeakyReLU\n"
        "  5 (PReLU): its slope is learned; register a function of your own, or use nn.LeakyReLU"
    )


def test_nothing_skipped_says_nothing_of_it():
    text = str(mollifier.plan(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), output=True))
    assert text.startswith("mollified: 1 block\n")
    assert "not mollified" not in text
    copies = mollifier.plan(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), activations=False, output=True)
    assert "none" in str(copies)


def test_one_row_a_level_in_the_same_order():
    net = model()
    mollifier.set_level(net, [0.25, 0.75])
    report = mollifier.report(net)
    assert isinstance(report, Report)
    assert [row.level for row in report.blocks] == mollifier.levels(net) == [0.25, 0.75]
    report.blocks.clear()  # it is a copy
    assert len(mollifier.report(net).blocks) == 2


def test_it_goes_with_the_model():
    assert str(mollifier.report(copy.deepcopy(model()))) == str(mollifier.report(model()))


def test_mollified_parts_of_a_plain_model_are_reported():
    parts = nn.Sequential(mollifier.mollify(mlp(2, 3, 2)), mollifier.mollify(mlp(2, 4, 1)))
    report = mollifier.report(parts)
    assert [row.units for row in report.blocks] == ["2 → 3", "2 → 4"]
    assert len(report.skipped) == 2


@pytest.mark.parametrize("plain", [mlp(2, 3, 1), mollifier.nn.NoisyActivation("relu")])
def test_a_model_that_was_not_mollified_has_none(plain):
    with pytest.raises(ValueError, match=rf"{type(plain).__name__} was not mollified: there is nothing to report"):
        mollifier.report(plain)


def test_a_restored_model_has_none():
    net = model()
    mollifier.set_level(net, 0)
    with pytest.raises(ValueError, match="was not mollified"):
        mollifier.report(mollifier.restore(net))


def test_rows_are_grouped_as_far_as_their_numbers_run_through_all_combinations():
    names = ["layer1.0.relu", "layer1.1.relu", "layer2.0.relu", "head", "head"]
    grouped = mollifier.convert._report.grouped(names, [("x",)] * 5)
    assert [(places, name) for places, name, _ in grouped] == [
        ([0, 1], "layer1.{0..1}.relu"),
        ([2], "layer2.0.relu"),
        ([3], "head"),
        ([4], "head"),
    ]
