"""The table: every kind of module that we mollify, small, with what is special about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from mollifier.activations import names
from mollifier.nn import HardSigmoid, MollifiedBlock, NoisyActivation

from . import limits, models
from .kind import Kind as Kind
from .strangers import STRANGERS

OUTPUT = {"output": True}
LEARNED = {"projection": "learned"}


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel  # here, since only this kind needs it

    sizes: dict[str, Any] = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 8, "vocab_size": 11}
    quiet: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    return GPT2LMHeadModel(GPT2Config(**sizes, **quiet, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def _blocks_by_hand(model: nn.Module) -> nn.Module:
    fc1, act1, fc2, act2, head = model.children()
    first = MollifiedBlock(nn.Sequential(fc1, NoisyActivation(act1, 8)), 6, 8)
    second = MollifiedBlock(nn.Sequential(fc2, NoisyActivation(act2, 5)), 8, 5)
    return nn.Sequential(first, second, head).to(next(model.parameters()).dtype)


def _activation(module: Callable[[], nn.Module], name: str) -> Kind:
    # The last layer is a run too: what leaves an activation leaves the model, and nothing hides its dtype.
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), module(), nn.Linear(8, 8), module())

    return Kind(f"activation-{name}", build, options=OUTPUT, limit=lambda _, x: limits.pad(x, 8))


KNOWN = names()  # here, before some other test registers a function of its own
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "hard_sigmoid": HardSigmoid,
    "hardsigmoid": nn.Hardsigmoid,
    "tanh": nn.Tanh,
    "hardtanh": nn.Hardtanh,
    "hardtanh-relu6": nn.ReLU6,
    "relu": nn.ReLU,
    "relu-inplace": lambda: nn.ReLU(inplace=True),
    "leaky_relu": lambda: nn.LeakyReLU(0.2),
    "leaky_relu-inplace": lambda: nn.LeakyReLU(0.2, inplace=True),
    "elu": lambda: nn.ELU(0.7),
    "selu": nn.SELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "gelu-tanh": lambda: nn.GELU("tanh"),
    "softplus": lambda: nn.Softplus(beta=2.0),
    "softsign": nn.Softsign,
    "mish": nn.Mish,
}


def _normed() -> nn.Module:
    layers = [nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def _nested() -> nn.Module:
    inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()))
    return nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), nn.Sequential(inner), nn.Linear(8, 3))


def _convolutions(conv: Any, norm: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        *(conv(2, 4, 3, stride=2, padding=1), norm(4), nn.ReLU()),
        *(conv(4, 4, 3, padding=1), nn.Tanh(), conv(4, 3, 3, stride=2, padding=1), nn.Sigmoid()),
    )


MLP = Kind("mlp", lambda: models.mlp(6, 8, 8, 8, 3), limit=lambda m, x: m[-1](limits.pad(x, 8)))
NARROWING = Kind("mlp-narrowing", lambda: models.mlp(6, 4, 2, 3), limit=limits.projected(1, 3))
RESNET = Kind("resnet20", models.ResNet20, (4, 3, 8, 8), limit=limits.resnet)
ENCODER = Kind("transformer-encoder", _encoder, (4, 5, 8), {"blocks": "layers.*"}, limit=lambda _, x: x)
FUNCTIONAL = Kind("functional", models.Functional, (4, 2, 4, 4), limit=limits.functional)
KINDS = [
    MLP,
    *(_activation(module, name) for name, module in ACTIVATIONS.items()),
    Kind("mlp-norm-dropout", _normed, limit=lambda m, x: m[-1](limits.pad(x, 8))),
    Kind("mlp-nested", _nested, limit=lambda m, x: m[-1](limits.pad(x, 8))),
    NARROWING,
    Kind(
        "mlp-projected",
        lambda: models.mlp(6, 8, 9, 3),
        options={"projection": "always"},
        limit=limits.projected(1, 3),
    ),
    Kind("conv1d", _convolutions(nn.Conv1d, nn.BatchNorm1d), (4, 2, 8), OUTPUT, limit=limits.convolutions),
    Kind("conv2d", _convolutions(nn.Conv2d, nn.BatchNorm2d), (4, 2, 8, 8), OUTPUT, limit=limits.convolutions),
    Kind("conv3d", _convolutions(nn.Conv3d, nn.BatchNorm3d), (4, 2, 4, 4, 4), OUTPUT, limit=limits.convolutions),
    Kind("mlp-learned", lambda: models.mlp(6, 4, 2, 3), options=LEARNED, limit=limits.projected(1, 3)),
    Kind(
        "conv2d-learned",
        _convolutions(nn.Conv2d, nn.BatchNorm2d),
        shape=(4, 2, 8, 8),
        options=OUTPUT | LEARNED,
        limit=limits.convolutions,
    ),
    Kind("functional-learned", models.Functional, (4, 2, 4, 4), LEARNED, limit=limits.functional),
    RESNET,
    Kind(
        "basic-block-one-relu",
        lambda: nn.Sequential(
            models.SharedReluBasicBlock(4, 4), models.SharedReluBasicBlock(4, 8, 2), nn.Conv2d(8, 3, 1)
        ),
        shape=(4, 4, 4, 4),
        limit=lambda m, x: m[2](limits.pad(limits.halve(x), 8)),
    ),
    Kind(
        "bottleneck",
        lambda: nn.Sequential(models.Bottleneck(4, 2, 8), models.Bottleneck(8, 4, 8, 2), nn.Conv2d(8, 3, 1)),
        shape=(4, 4, 4, 4),
        limit=lambda m, x: m[2](limits.halve(limits.pad(x, 8))),
    ),
    Kind("vgg", models.VGG, (4, 3, 8, 8), limit=limits.vgg, affine=False),
    ENCODER,
    Kind(
        "gpt2",
        _gpt2,
        shape=(4, 5),
        options={"blocks": ["transformer.h.*"]},
        limit=limits.gpt2,
        affine=False,
        vocabulary=11,
        pick=lambda out: out.logits,
    ),
    FUNCTIONAL,
    Kind(
        "named-tuple-block",
        models.TupleStack,
        options={"blocks": "layers.*"},
        limit=lambda m, x: m.head(x),
        pick=lambda out: out[0],
    ),
    Kind(
        "named-by-predicate",
        lambda: nn.Sequential(models.mlp(6, 8, 6), models.mlp(6, 4, 6), nn.Linear(6, 3)),
        options={"blocks": lambda name, module: isinstance(module, nn.Sequential)},
        limit=lambda m, x: m[-1](x),
    ),
    Kind("activation-alone", models.Custom, limit=limits.alone, affine=False, copies=False),
    Kind(
        "mlp-residual",
        lambda: models.mlp(6, 8, 8, 3),
        options={"residual": True},
        limit=lambda m, x: m[-1](limits.pad(x, 8)),
        residual=True,
    ),
    *STRANGERS,
    Kind("by-hand", lambda: models.mlp(6, 8, 5, 3), by_hand=_blocks_by_hand, limit=limits.by_hand),
]
CONVERTED = [kind for kind in KINDS if kind.by_hand is None]  # by mollify, so that there is something to restore
BECOMES_PLAIN = [kind for kind in KINDS if not kind.residual]
RESTORED = [kind for kind in CONVERTED if not kind.residual]
AFFINE = [kind for kind in KINDS if kind.affine]


def by_name(kinds: list[Kind]) -> Any:
    """Parametrises a test over kinds."""
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)
