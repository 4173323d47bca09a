"""Row 8 for recurrent kinds: torch.compile without a recompile at each annealing step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import mollifier

from .helpers import loss_of
from .recurrent import RECURRENT
from .zoo import Kind, by_name

NAMES = ("lstm", "gru-sequence-mask-unbiased", "rnn-cell", "lstm-cell")
SOME = [kind for kind in RECURRENT if kind.name in NAMES]
PACKED = [kind for kind in RECURRENT if kind.name == "packed-encoder"]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@by_name(SOME)
def test_annealing_never_recompiles(kind: Kind) -> None:
    """In one graph, with torch's switch that lets its compiler look into recurrent modules at all."""
    model, x = kind.mollified().train(), kind.input()
    counter = CompileCounter()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        annealer = mollifier.Annealer(model, k=2.0, stop_at=0)
        for _ in range(4):
            loss = loss_of(kind, compiled, x)
            loss.backward()
            annealer.step(loss)
        assert counter.frame_count == 1
        annealer.finish()
        for _ in range(2):
            loss_of(kind, compiled, x).backward()
        assert counter.frame_count == 1
        model.eval()
        with torch.no_grad():
            for level in (0.5, 0.0):
                mollifier.set_level(model, level)
                torch.testing.assert_close(kind.run(compiled, x), kind.run(model, x), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch's compiler
@by_name([SOME[1], *PACKED])
def test_without_that_switch_it_is_cut_into_graphs_once(kind: Kind) -> None:
    """As torch's own recurrent modules are: they run, and no annealing step adds a graph."""
    model, x = kind.mollified().train(), kind.input()
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter)
    annealer = mollifier.Annealer(model, k=2.0, stop_at=0)
    counts = []
    for _ in range(4):
        loss = loss_of(kind, compiled, x)
        loss.backward()
        annealer.step(loss)
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1
