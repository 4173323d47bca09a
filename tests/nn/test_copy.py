"""The copy: which shape meets which, and who is copied."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mollifier import ops
from mollifier.nn import Copy
from mollifier.nn._annealed import FrozenNoise

IMAGE = {-2: (8,), -3: (8, 6), -4: (8, 6, 4)}


def test_the_same_shape_is_copied():
    copy = Copy().eval()
    below, above = torch.randn(4, 5), torch.randn(4, 5)
    assert torch.equal(copy(below, above), below)
    copy.set_level(0.25)
    torch.testing.assert_close(copy(below, above), 0.25 * below + 0.75 * above)
    copy.set_level(0)
    assert copy(below, above) is above


@pytest.mark.parametrize("unit_dim", [-1, -2, -3, -4])
def test_wider_is_padded_with_zeros(unit_dim):
    space = IMAGE.get(unit_dim, ())
    copy = Copy(3, 5, unit_dim=unit_dim).eval()
    below = torch.randn(2, 3, *space)
    out = copy(below, torch.randn(2, 5, *space))
    assert copy.rule == "pad"
    assert copy.projection is None
    assert torch.equal(out[:, :3], below)
    assert torch.equal(out[:, 3:], torch.zeros(2, 2, *space))


@pytest.mark.parametrize(("unit_dim", "kind"), [(-1, nn.Linear), (-2, nn.Conv1d), (-3, nn.Conv2d), (-4, nn.Conv3d)])
@pytest.mark.parametrize(("units", "projection"), [((5, 3), "learned"), ((3, 5), "always")])
def test_narrower_or_asked_for_is_projected(unit_dim, kind, units, projection):
    space = IMAGE.get(unit_dim, ())
    copy = Copy(*units, unit_dim=unit_dim, projection=projection).eval()
    below = torch.randn(2, units[0], *space)
    out = copy(below, torch.zeros(2, units[1], *space))
    assert copy.rule == "project"
    assert type(copy.projection) is kind
    assert copy.projection.bias is None
    matrix = copy.projection.weight.flatten(1)
    assert matrix.shape == (units[1], units[0])  # a 1×1 convolution
    torch.testing.assert_close(out, torch.einsum("ij,bj...->bi...", matrix, below))
    out.sum().backward()
    assert (copy.projection.weight.grad != 0).all()


@pytest.mark.parametrize("unit_dim", [-1, -2, -3, -4])
@pytest.mark.parametrize("units", [(5, 3), (7, 2), (6, 3), (4, 1)])
def test_the_fixed_projection_sums_every_nth_unit(unit_dim, units):
    space = IMAGE.get(unit_dim, ())
    copy = Copy(*units, unit_dim=unit_dim, projection="fixed").eval()
    assert copy.rule == "fixed"
    assert not list(copy.parameters())
    assert list(copy.state_dict()) == ["level"]
    below = torch.randn(2, units[0], *space, requires_grad=True)
    out = copy(below, torch.zeros(2, units[1], *space))
    matrix = torch.zeros(units[1], units[0])
    for unit in range(units[0]):
        matrix[unit % units[1], unit] = copy.projection.weight[unit]
    torch.testing.assert_close(out, torch.einsum("ij,bj...->bi...", matrix, below))
    torch.testing.assert_close(matrix.square().sum(1), torch.ones(units[1]))  # a unit keeps its variance
    given = torch.randn_like(out)
    (grad,) = torch.autograd.grad(out, below, given)
    torch.testing.assert_close(grad, torch.einsum("ij,bi...->bj...", matrix, given))


def test_the_fixed_projection_pads_where_the_layer_widens():
    assert Copy(3, 5, projection="fixed").rule == "pad"
    assert Copy(4, 4, projection="fixed").rule == "copy"
    assert Copy(5, 3, projection="learned").rule == "project"
    assert Copy(5, 3).rule == Copy(5, 3, projection="auto").rule == "fixed"


def test_always_projects_only_where_the_width_changes():
    copy = Copy(4, 4, projection="always")
    assert copy.rule == "copy"
    assert copy.projection is None


@pytest.mark.parametrize(("unit_dim", "pool"), [(-2, F.avg_pool1d), (-3, F.avg_pool2d), (-4, F.avg_pool3d)])
def test_a_stride_is_met_by_average_pooling_before_the_rest(unit_dim, pool):
    space = IMAGE[unit_dim]
    below = torch.randn(2, 3, *space)
    half = tuple(size // 2 for size in space)
    for out_units in (3, 5, 2):
        copy = Copy(3, out_units, unit_dim=unit_dim).eval()
        out = copy(below, torch.zeros(2, out_units, *half))
        pooled = pool(below, 2)
        expected = copy.projection(pooled) if out_units == 2 else pooled
        torch.testing.assert_close(out[:, : expected.shape[1]], expected)
        assert (out[:, expected.shape[1] :] == 0).all()


def test_odd_sizes_are_pooled_adaptively():
    below = torch.randn(2, 3, 7, 5)
    copy = Copy(3, 3, unit_dim=-3).eval()
    assert torch.equal(copy(below, torch.zeros(2, 3, 4, 3)), F.adaptive_avg_pool2d(below, (4, 3)))


def test_uneven_strides_have_uneven_windows():
    below = torch.randn(2, 3, 8, 6)
    copy = Copy(3, 3, unit_dim=-3).eval()
    assert torch.equal(copy(below, torch.zeros(2, 3, 2, 3)), F.avg_pool2d(below, (4, 2)))


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_the_residual_is_added_at_every_level(level):
    below, above = torch.randn(4, 3), torch.randn(4, 5)
    copy = Copy(3, 5, residual=True, level=level).eval()
    short = F.pad(below, (0, 2))
    torch.testing.assert_close(copy(below, above), level * short + (1 - level) * (above + short))


@pytest.mark.parametrize(("unit_dim", "shape"), [(-1, (4000, 3)), (-3, (40, 3, 10, 10))])
def test_each_unit_and_example_draws_for_itself(unit_dim, shape):
    copy = Copy(unit_dim=unit_dim, level=0.3)
    mask = copy(torch.ones(shape), torch.zeros(shape))
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    error = math.sqrt(0.21 / mask.numel())
    assert abs(mask.mean() - 0.3) < 5 * error
    units, examples = mask.movedim(1, 0).flatten(1), mask.flatten(1)
    off = torch.corrcoef(units) - torch.eye(3)
    assert off.abs().max() < 5 / math.sqrt(units.shape[1])
    assert not torch.equal(mask, copy(torch.ones(shape), torch.zeros(shape)))
    assert len(examples[:200].unique(dim=0)) > 6  # of 8 patterns of three units, nearly all occur


def test_training_is_reproducible_and_may_be_frozen():
    copy, below, above = Copy(level=0.5), torch.randn(50, 3), torch.randn(50, 3)
    torch.manual_seed(1)
    one = copy(below, above)
    torch.manual_seed(1)
    assert torch.equal(copy(below, above), one)
    copy.frozen = FrozenNoise(3)
    assert torch.equal(copy(below, above), copy(below, above))


def test_training_on_expected_values():
    copy = Copy(level=0.25, train_noise="expected")
    assert torch.equal(copy(torch.zeros(3), torch.ones(3)), torch.full((3,), 0.75))


def test_the_layers_output_decides_the_dtype():
    for residual in (False, True):
        copy = Copy(3, 5, level=0.5, residual=residual)
        assert copy(torch.randn(2, 3), torch.randn(2, 5).bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("copy", "below", "above"),
    [
        (Copy(), (4, 3), (4, 5)),
        (Copy(3, 5), (4, 3), (6, 5)),
        (Copy(unit_dim=-3), (2, 3, 8, 8), (2, 4, 8, 8)),
        (Copy(unit_dim=-3), (2, 3, 8, 8), (2, 3)),
    ],
)
def test_shapes_that_do_not_meet_are_named(copy, below, above):
    with pytest.raises(
        ValueError, match=r"the copy path cannot bring .* it has shape \(.*\), the output \(.*\).* example="
    ):
        copy(torch.zeros(below), torch.zeros(above))


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"unit_dim=1: expected -1 \(features\), or -2, -3, -4"):
        Copy(unit_dim=1)
    with pytest.raises(ValueError, match=r"projection='never': expected 'auto', 'fixed', 'learned' .*'always'"):
        Copy(projection="never")


@pytest.mark.skipif(ops.info().backend == "reference", reason="the reference never looks at the level")
def test_a_level_that_has_reached_0_copies_nothing_though_the_module_is_not_told():
    copy, below, above = Copy(level=0.5), torch.randn(4, 3), torch.randn(4, 3)
    copy.level.zero_()
    before = torch.get_rng_state()
    assert copy(below, above) is above
    assert torch.equal(torch.get_rng_state(), before)
