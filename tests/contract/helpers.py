"""What several rows of the contract need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import mollifier

from .zoo import Kind


def own_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the plain network inside a mollified one, in their order."""
    added = {id(parameter) for parameter in mollifier.added_parameters(model)}
    return [parameter for parameter in model.parameters() if id(parameter) not in added]


def cotangent(out: Tensor, seed: int = 3) -> Tensor:
    """What to pull back through the model: no two elements alike, so that no gradient is lost in a sum."""
    return torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(out.dtype)


def assert_equal(got: Tensor | None, want: Tensor | None, what: str = "") -> None:
    """Equal to the last bit, dtype and shape included."""
    if want is None or got is None:
        assert got is want, what
        return
    assert got.dtype == want.dtype, (what, got.dtype, want.dtype)
    torch.testing.assert_close(got, want, rtol=0, atol=0, msg=lambda text: f"{what}: {text}")


def seeded(kind: Kind, model: nn.Module, x: Tensor, seed: int = 5) -> Tensor:
    """The output with torch's generator at this seed."""
    torch.manual_seed(seed)
    return kind.run(model, x)


def loss_of(kind: Kind, model: nn.Module, x: Tensor) -> Tensor:
    """A loss with its minimum away from 0."""
    return (kind.run(model, x).float() - 0.5).square().mean()


def train(kind: Kind, model: nn.Module, optimizer: Any, annealer: Any, updates: Iterable[int]) -> list[float]:
    """The user's loop: one batch an update, found from the update's number alone."""
    losses = []
    dtype = next(model.parameters()).dtype
    for update in updates:
        loss = loss_of(kind, model, kind.input(dtype, seed=100 + update))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
    return losses


def capture(model: nn.Module, note: Callable[[str, nn.Module, Any, Any], None]) -> list[Any]:
    """Hooks that note every call of every module by name; the handles to remove them."""

    def hook(name: str) -> Callable[..., None]:
        return lambda module, args, out: note(name, module, args, out)

    return [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]


def own_gradients(model: nn.Module, out: Tensor) -> Tensor:
    """The gradients of the mean square of an output in the model's own parameters, in one vector; 0 where there is none."""
    own = own_parameters(model)
    found = torch.autograd.grad(out.float().square().mean(), own, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).float().flatten() for p, g in zip(own, found, strict=True)]
    )
