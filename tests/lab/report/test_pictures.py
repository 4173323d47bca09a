"""The PNGs: opened, and found to show something."""

import io

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from mollifier_lab.report.pictures import COLOURS, levels_png, style
from tests.lab.report.conftest import Written


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
