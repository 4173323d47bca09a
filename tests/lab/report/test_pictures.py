"""The PNGs: opened, and found to show something."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from mollifier_lab.report import report
from mollifier_lab.report.curves import epochs_per_update, series
from mollifier_lab.report.pictures import COLOURS, _scale, levels_png, style
from mollifier_lab.report.reading import read, variants
from mollifier_lab.runs import find_runs
from mollifier_lab.settings import RunConfig
from tests.lab.report.conftest import Written
from tests.lab.report.folders import write_lines, write_run


def pixels(data: bytes) -> np.ndarray:
    return image.imread(io.BytesIO(data), format="png")[..., :3]


@pytest.mark.parametrize("name", ["curves.png", "levels.png"])
def test_a_picture_is_not_blank(study: Written, odd: Written, name: str) -> None:
    for folder in (study.root, odd.root / "out"):
        found = pixels((folder / name).read_bytes())
        assert found.shape[1] > 1000
        inked = (found < 0.97).any(axis=2)
        assert 0.01 < inked.mean() < 0.5


def test_each_variant_has_its_line(study: Written) -> None:
    found = pixels((study.root / "curves.png").read_bytes())
    for index in range(5):
        assert (np.abs(found - to_rgb(style(index)[0])).max(axis=2) < 0.01).sum() > 500
    assert not (np.abs(found - to_rgb(COLOURS[5])).max(axis=2) < 0.01).any()


def test_without_levels_the_picture_says_so() -> None:
    found = pixels(levels_png({}))
    assert found.shape[0] < 300
    assert (found < 0.5).any()


def test_styles_do_not_repeat_too_soon() -> None:
    assert len({style(index) for index in range(28)}) == 28


def test_losses_over_epochs_where_a_validation_loss_was_measured(tmp_path: Path, study: Written) -> None:
    assert not (study.root / "losses.png").exists()
    for method in ("residual", "mollified-residual"):
        folder = write_run(tmp_path / method / "seed-0", RunConfig.make("cifar10", method, preset="quick"), rows=2)
        rows = [
            {"update": 40 * n, "epoch": 2.0 * n, "valid_error": 0.5, "valid_loss": 2.0 - n, "train_loss": 1.0}
            for n in range(3)
        ]
        write_lines(folder / "metrics.jsonl", rows)
    made = report(tmp_path)
    found = pixels((tmp_path / "losses.png").read_bytes())
    assert (found < 0.97).any(axis=2).mean() > 0.01
    assert tmp_path / "losses.png" in made.files
    variant = variants(read(find_runs(tmp_path))[0])[0][0]
    assert series([variant]) == ("train_loss", "valid_error", "valid_loss")
    assert epochs_per_update(variant) == 0.05
    assert made.page.read_text().count('"title": "validation loss"') == 1


def test_a_log_scale_has_plain_numbers() -> None:
    axis = Figure().subplots()
    axis.plot([0, 1, 2], [0.02, 0.1, 0.6])
    _scale(axis, log=True)
    axis.figure.canvas.draw()
    shown = [each.get_text() for each in axis.get_yticklabels(which="both") if each.get_text()]
    assert {"0.02", "0.05", "0.1", "0.2", "0.5"} <= set(shown)
    assert not any("10^" in each for each in shown)


@pytest.mark.parametrize("lowest", [0.3, 0.02, 1e-3, 1e-9, 1e-30])
def test_the_labels_of_a_log_scale_do_not_cover_each_other(lowest: float) -> None:
    axis = Figure(figsize=(5.0, 4.0)).subplots()
    axis.plot([0, 1], [lowest, 5.0])
    _scale(axis, log=True)
    axis.figure.canvas.draw()
    boxes = [each.get_window_extent() for each in axis.get_yticklabels(which="both") if each.get_text()]
    boxes = [box for box in boxes if axis.bbox.y0 <= (box.y0 + box.y1) / 2 <= axis.bbox.y1]
    assert len(boxes) >= 2
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(sorted(boxes, key=lambda box: box.y0)))
