"""Pairs of a plain and a mollified module with the same weights, and all that a call of one leaves behind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import mollifier
from mollifier.nn import Annealed, HardSigmoidGRU, HardSigmoidLSTM, RecurrentOptions

MODULES: dict[str, type[nn.RNNBase]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
    "HardSigmoidLSTM": HardSigmoidLSTM,
    "HardSigmoidGRU": HardSigmoidGRU,
}
CELLS: dict[str, type[nn.RNNCellBase]] = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell, "RNNCell": nn.RNNCell}


def pair(
    kind: str, *args: Any, level: float = 1.0, options: RecurrentOptions | None = None, **kwargs: Any
) -> tuple[Any, Any]:
    """A plain module in float64 (or as asked) and its mollified twin, both in eval()."""
    noise = {key: kwargs.pop(key) for key in ("train_noise", "eval_noise") if key in kwargs}
    kwargs.setdefault("dtype", torch.float64)
    build = (MODULES | CELLS)[kind]
    plain, twin = build(*args, **kwargs), build(*args, **kwargs)
    twin.load_state_dict(plain.state_dict())
    return plain.eval(), mollifier.mollify(twin, level=level, recurrent=options, **noise).eval()


def force(module: nn.Module) -> nn.Module:
    """Make the reference engine run, whatever the level: at level 0 torch's own operation would."""
    for part in module.modules():
        if isinstance(part, Annealed):
            part.known_level = lambda: None
    return module


def recurrent_weights_off(*modules: nn.Module) -> None:
    """No state reaches the next step but through the gates."""
    with torch.no_grad():
        for module in modules:
            for name, parameter in module.named_parameters():
                if name.startswith("weight_hh"):
                    parameter.zero_()


def tensors(value: Any) -> list[Tensor]:
    """All tensors in what a recurrent module returned."""
    if isinstance(value, PackedSequence):
        return [value.data]
    return [value] if isinstance(value, Tensor) else [tensor for item in value for tensor in tensors(item)]


def everything(module: nn.Module, input: Any, hx: Any, leaves: list[Tensor]) -> list[Tensor]:
    """Outputs, states, and the gradients of the leaves and of every parameter that the plain module has."""
    found = tensors(module(input, hx))
    generator = torch.Generator().manual_seed(3)
    draws = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) / t.numel() for t in found]
    own = [parameter for name, parameter in module.named_parameters() if "_mollifier" not in name]
    grads = torch.autograd.grad(found, [*leaves, *own], draws, allow_unused=True, retain_graph=True)
    return [t.detach() for t in found] + [torch.zeros(()) if grad is None else grad for grad in grads]


def packed(x: Tensor, lengths: list[int], batch_first: bool = False) -> PackedSequence:
    """Sequences of these lengths, in any order."""
    return pack_padded_sequence(x, torch.tensor(lengths), batch_first=batch_first, enforce_sorted=False)


def padded(output: PackedSequence) -> Tensor:
    """Steps first, zeros after the end."""
    return pad_packed_sequence(output)[0]


def state_for(module: Any, batch: int, dtype: torch.dtype = torch.float64, **more: Any) -> Any:
    """A random initial state."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    h = torch.randn(count, batch, module.proj_size or module.hidden_size, dtype=dtype, **more)
    if module.mode != "LSTM":
        return h
    return h, torch.randn(count, batch, module.hidden_size, dtype=dtype, **more)
