"""The figures show what they claim to show."""

from pathlib import Path

import pytest
import torch

import mollifier
from mollifier import figures, landscape


def test_continuation_follows_the_minimum_of_the_smoothed_loss_to_that_of_the_loss() -> None:
    axes = figures.continuation(sigmas=(2.0, 0.6, 0.0), samples=400).axes[0]
    curves = [line for line in axes.lines if line.get_marker() == "None"]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(curves) == len(points) == 3
    loss = torch.tensor(curves[-1].get_ydata())
    assert float(points[-1].get_ydata()[0]) == pytest.approx(float(loss.min()))
    # the smoother, the fewer minima
    slopes = [torch.tensor(curve.get_ydata()).diff().sign() for curve in curves]
    turns = [int((slope.diff() > 0).sum()) for slope in slopes]
    assert turns[0] <= 2 < turns[2]


def test_linearisation_lies_under_the_tangent() -> None:
    left, right = figures.linearisation().axes
    tangent, curve = (torch.tensor(line.get_ydata()) for line in left.lines)
    assert (curve <= tangent + 1e-12).all()
    assert len(left.texts) == 6  # arrows
    assert len(right.lines) == 5


def test_schedules_start_at_one_and_fall() -> None:
    for axes in figures.schedules(horizon=100).axes:
        for line in axes.lines:
            levels = torch.tensor(line.get_ydata())
            assert levels[0] == 1
            assert (levels.diff() <= 0).all()


def test_loss_surface_has_a_column_for_each_level() -> None:
    found = figures.spiral_surfaces(points=5)
    assert [one.level for one in found] == [1.0, 0.75, 0.5, 0.25, 0.0]
    figure = figures.loss_surface(found)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[0] == "level 1: convex"
    assert len(figure.axes) == 10
    assert len(figures.loss_surface(points=3).axes) == 10
    assert len(figures.loss_surface([landscape.Surface(found[0].axis, found[0].values)]).axes) == 2


def test_the_table_of_the_card() -> None:
    model, x, y = figures.spiral_problem()
    criterion = torch.nn.functional.binary_cross_entropy_with_logits
    ends = []
    for level in (1.0, 0.0):
        mollifier.set_level(model, level)
        ends.append(landscape.extremes(landscape.objective(model, criterion, x, y)))
    assert ends[0].smallest >= -1e-6
    assert ends[0].largest == pytest.approx(0.2728, abs=1e-4)
    assert ends[1].smallest == pytest.approx(-7.21, abs=0.01)


def test_save_writes_small_files(tmp_path: Path) -> None:
    (path,) = figures.save(tmp_path / "new", ["schedules"])
    assert path == tmp_path / "new" / "schedules.png"
    assert 1_000 < path.stat().st_size < 150_000
    with pytest.raises(ValueError, match=r"\['other'\] are not known; expected some of: continuation"):
        figures.save(tmp_path, ["other"])


def test_the_variance_of_the_noise_is_that_of_samples_and_gone_at_both_ends() -> None:
    left, right = figures.noise_variance(samples=2000, points=5).axes
    for line in left.lines:
        assert line.get_ydata()[0] < 1e-20  # level 0 is the activation itself
    # the more saturated, the more noise
    ends = [line.get_ydata()[-1] for line in left.lines]
    assert ends == sorted(ends)
    torch.manual_seed(1)
    x = torch.full((2000,), 4.0, dtype=torch.float64)
    drawn = mollifier.functional.noisy_activation(x, "tanh", level=1.0, a=1.0, c=20.0).var()
    assert ends[-1] == pytest.approx(float(drawn), rel=0.15)
    copied = next(line for line in right.lines if "copy" in line.get_label()).get_ydata()
    alone = right.lines[0].get_ydata()
    assert max(copied[0], copied[-1]) < 1e-20  # the plain layer, and the identity
    assert copied[2] > alone[2]


def test_the_layer_names_both_paths() -> None:
    axes = figures.mollified_layer().axes[0]
    words = " ".join(text.get_text() for text in axes.texts)
    for word in ("noisy activation ψ", "copy", "probability p", "probability 1 − p", "residual"):
        assert word in words
    assert len(axes.patches) == 6
