"""What mollify finds by itself: runs, residual blocks, activations, and what it names instead."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mollifier
from mollifier.nn import HardSigmoid, MollifiedBlock, NoisyActivation
from tests.helpers import BasicBlock, mlp


def plan(model: nn.Module, **options) -> list[tuple[str, ...]]:
    """Name, kind, units, rule of the copy, and the noisy activations of every block."""
    report = mollifier.report(mollifier.mollify(model, **options))
    return [(r.name, r.kind, r.units, r.copy, *r.activations) for r in report.blocks]


def skipped(model: nn.Module, **options) -> dict[str, str]:
    return {row.name: row.why for row in mollifier.report(mollifier.mollify(model, **options)).skipped}


class Wrap(nn.Module):
    """A forward of one's own around some modules."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(5), nn.LayerNorm(5), nn.RMSNorm(5), nn.GroupNorm(1, 5), nn.Identity()])
def test_a_run_may_hold_norm_and_dropout(norm):
    model = nn.Sequential(nn.Linear(3, 5), norm, nn.Dropout(0.1), nn.Tanh(), nn.Linear(5, 1))
    assert plan(model) == [("[0:3]", "run", "3 → 5", "pad", "tanh (5 a)")]


def test_convolutions_of_each_dimension():
    for conv, norm in ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d)):
        model = nn.Sequential(conv(3, 2, 3), norm(2), nn.ReLU(), conv(2, 1, 1))
        assert plan(model) == [("[0:2]", "run", "3 → 2", "fixed", "relu (2 a)")]


def test_sequentials_at_any_depth():
    inner = nn.Sequential(mlp(3, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 4), nn.ELU())
    model = nn.Sequential(nn.Linear(3, 3), nn.GELU(), Wrap(body=inner), nn.Linear(4, 1))
    assert plan(model) == [
        ("[0:1]", "run", "3 → 3", "copy", "gelu(approximate=none) (3 a)"),
        ("2.body.0[0:1]", "run", "3 → 4", "pad", "sigmoid (4 a)"),
        ("2.body.1", "activation", "", "none", "relu (1 a)"),
        ("2.body[3:4]", "run", "4 → 4", "copy", "elu(alpha=1.0) (4 a)"),
    ]


def test_a_layer_that_stands_in_two_places_has_a_copy_at_each():
    """Tied weights are no hindrance, and do not shift the places of what follows."""
    tied = nn.Linear(3, 3)
    model = nn.Sequential(tied, nn.Tanh(), tied, nn.Tanh(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    assert [row[0] for row in plan(model)] == ["[0:1]", "[2:3]", "[4:5]"]
    x = torch.randn(5, 3)
    assert torch.equal(model[6](F.pad(x, (0, 1))), model.eval()(x))


def test_a_subclass_of_sequential_with_its_own_forward_is_no_run():
    class Backwards(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            for module in reversed(list(self)):
                x = module(x)
            return x

    model = Backwards(nn.Linear(4, 4), nn.ReLU())
    assert plan(model) == [("1", "activation", "", "none", "relu (1 a)")]


def test_residual_blocks_by_name_and_shape():
    model = nn.Sequential(BasicBlock(2, 2), BasicBlock(2, 4, stride=2), nn.Conv2d(4, 1, 1))
    assert plan(model) == [
        ("0", "residual", "2 → 2", "copy", "relu (2 a)"),
        ("1", "residual", "2 → 4", "pad", "relu (4 a)"),
    ]


def test_a_residual_block_whose_result_the_model_returns_is_none():
    """Its last activation is the output; the layer before its first one is a run like any other."""
    assert plan(BasicBlock(2, 2)) == [("forward(conv1, relu)", "run", "2 → 2", "copy", "relu (2 a)")]
    assert plan(BasicBlock(2, 2), output=True) == [("(the model)", "residual", "2 → 2", "copy", "relu (2 a)")]


def test_a_bottleneck_with_an_activation_for_each_width():
    class Bottleneck(nn.Module):
        def __init__(self, shared: bool) -> None:
            super().__init__()
            self.conv0, self.conv1, self.conv2 = nn.Conv2d(8, 2, 1), nn.Conv2d(2, 2, 1), nn.Conv2d(2, 8, 1)
            self.bn0, self.bn1, self.bn2 = nn.BatchNorm2d(2), nn.BatchNorm2d(2), nn.BatchNorm2d(8)
            self.act0 = nn.ReLU()
            if not shared:
                self.act1, self.act2 = nn.ReLU(), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            one, *more = [child for child in self.children() if isinstance(child, nn.ReLU)]
            two, three = more or (one, one)
            h = one(self.bn0(self.conv0(x)))
            h = two(self.bn1(self.conv1(h)))
            return three(self.bn2(self.conv2(h)) + x)

    def bottleneck(*, shared: bool) -> nn.Module:
        return nn.Sequential(Bottleneck(shared), nn.Conv2d(8, 1, 1))

    assert plan(bottleneck(shared=False)) == [
        ("0", "residual", "8 → 8", "copy", "relu (2 a)", "relu (2 a)", "relu (8 a)")
    ]
    # one activation after layers of two widths shares one a
    assert plan(bottleneck(shared=True)) == [("0", "residual", "8 → 8", "copy", "relu (1 a)")]


def test_a_name_alone_makes_no_residual_block():
    class ResidualBlock(Wrap):
        pass

    one = ResidualBlock(conv=nn.Conv2d(2, 2, 1), act=nn.ReLU())
    norm_first = ResidualBlock(
        bn1=nn.BatchNorm2d(2), conv1=nn.Conv2d(2, 2, 1), bn2=nn.BatchNorm2d(2), conv2=nn.Conv2d(2, 2, 1), act=nn.ReLU()
    )
    no_chain = ResidualBlock(
        conv1=nn.Conv2d(2, 3, 1), bn1=nn.BatchNorm2d(3), conv2=nn.Conv2d(2, 2, 1), bn2=nn.BatchNorm2d(2), act=nn.ReLU()
    )
    for block, layer in ((one, "conv"), (norm_first, "conv2"), (no_chain, "conv2")):
        model = nn.Sequential(block, nn.Conv2d(2, 1, 1))
        assert plan(model) == [(f"0.forward({layer}, act)", "run", "2 → 2", "copy", "relu (2 a)")]


def test_blocks_by_glob_and_predicate():
    def model() -> nn.Module:
        return Wrap(layers=nn.Sequential(mlp(4, 4, 4), mlp(4, 6, 6)), other=mlp(6, 6, 3))

    named = [
        ("layers.0", "named", "4 → 4", "copy", "sigmoid (4 a)"),
        ("layers.1", "named", "4 → 6", "pad", "sigmoid (6 a)"),
    ]
    assert plan(model(), blocks="layers.*")[:2] == named
    assert plan(model(), blocks=["layers.0", "layers.?"])[:2] == named
    assert plan(model(), blocks=lambda name, module: name.startswith("layers.") and name.count(".") == 1)[:2] == named
    everywhere = ["layers.0.1", "layers.0.2", "layers.1.1", "layers.1.2", "other.1", "other.2"]
    assert [row[0] for row in plan(model(), blocks="**.2")] == everywhere
    assert [row[0] for row in plan(model(), blocks=None)] == ["layers.0.1", "layers.1.1", "other.1"]


def test_without_activations_only_copies():
    assert plan(mlp(3, 4, 1), activations=False) == [("[0:1]", "run", "3 → 4", "pad")]


def test_projection_always_and_a_starting_level():
    model = mollifier.mollify(mlp(3, 4, 1), projection="always", level=0.5)
    assert mollifier.report(model).blocks[0].copy == "project"
    assert mollifier.levels(model) == [0.5]


def test_what_is_not_mollified_is_named_with_the_reason():
    why = skipped(
        Wrap(
            body=mlp(3, 4, 4),
            prelu=nn.PReLU(),
            flat=nn.Hardtanh(1.0, 2.0),
            linear=nn.Linear(4, 4),
            attention=nn.MultiheadAttention(4, 1),
            strange=Strange(),
            hand=MollifiedBlock(nn.Linear(4, 4)),
            noisy=NoisyActivation("relu"),
        )
    )
    assert why["body.2"] == "no activation follows it in its Sequential"
    assert why["prelu"].startswith("its slope is learned")
    assert "flat at 0" in why["flat"]
    assert why["linear"] == "attention (MultiheadAttention) follows it, not an activation that can be mollified"
    assert why["attention"].startswith("attention has no activation")
    assert why["strange"].startswith("it is not in the table")
    assert why["hand"] == why["noisy"] == "it was built mollified by hand, and keeps its own level"


class Strange(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x**3 + x


def test_lazy_layers_are_no_runs_yet():
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1))
    assert plan(model) == [("1", "activation", "", "none", "relu (1 a)")]


def test_an_activation_that_is_flat_at_0_ends_no_run():
    model = nn.Sequential(nn.Linear(3, 3), nn.Hardtanh(1.0, 2.0), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    assert [row[0] for row in plan(model)] == ["[2:3]"]


def test_what_is_added_has_the_models_dtype_and_mode():
    model = mollifier.mollify(mlp(5, 3, 1).double().eval(), projection="learned")
    assert {parameter.dtype for parameter in mollifier.added_parameters(model)} == {torch.float64}
    assert len(mollifier.added_parameters(model)) == 2  # a and the projection
    assert not any(module.training for module in model.modules())


def test_the_papers_hard_sigmoid_is_known_as_a_module():
    assert plan(nn.Sequential(nn.Linear(3, 3), HardSigmoid(), nn.Linear(3, 1))) == [
        ("[0:1]", "run", "3 → 3", "copy", "hard_sigmoid (3 a)")
    ]


def test_a_transformer_layer_named_as_a_block():
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True, activation="gelu")
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert plan(model, blocks="layers.*") == [
        (f"layers.{i}", "named", "unknown", "copy", "gelu (16 a)") for i in range(2)
    ]
    x = torch.randn(2, 5, 8)
    assert torch.equal(model.eval()(x), x)
    mollifier.set_level(model, 0)
    assert torch.equal(mollifier.restore(model)(x), model(x))
