"""Row 8, first part: torch.compile without a recompile at each annealing step, in one graph."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler

import mollifier

from .helpers import loss_of
from .zoo import KINDS, NARROWING, Kind, by_name


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def best_backend() -> str:
    """Inductor; on the CPU it needs a C++ compiler, and where there is none, all of it but the code that it would write."""
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "aot_eager"
    return "inductor"


@by_name(KINDS)
def test_annealing_never_recompiles(kind: Kind) -> None:
    model, x = kind.mollified().train(), kind.input()
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    annealer = mollifier.Annealer(model, k=2.0, stop_at=0)
    seen = set()
    for _ in range(12):
        loss = loss_of(kind, compiled, x)
        loss.backward()
        annealer.step(loss)
        seen.add(mollifier.levels(model)[-1])
    assert len(seen) == 12
    assert counter.frame_count == 1
    annealer.finish()
    for _ in range(3):
        loss_of(kind, compiled, x).backward()
    assert counter.frame_count == 1


@by_name(KINDS)
def test_compiled_output_equals_eager(kind: Kind) -> None:
    """In eval, at every level, with the levels changed after compilation."""
    model, x = kind.mollified().eval(), kind.input()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        for level in (1.0, 0.5, 0.0):
            mollifier.set_level(model, level)
            torch.testing.assert_close(kind.run(compiled, x), kind.run(model, x), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # from inside torch's own compiler
def test_inductor_trains_and_agrees() -> None:
    """The real compiler: it draws its own random numbers, so that training is only to learn, and eval to agree."""
    model = NARROWING.mollified()
    compiled = torch.compile(model, fullgraph=True, backend=best_backend())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    annealer = mollifier.Annealer(model, k=1.0, stop_at=0)
    x, losses = NARROWING.input(), []
    for _ in range(30):
        loss = loss_of(NARROWING, compiled, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        annealer.step(loss)
        losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5])
    model.eval()
    with torch.no_grad():
        for level in (1.0, 0.5, 0.1):
            mollifier.set_level(model, level)
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-6)
