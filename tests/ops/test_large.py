"""Numbers of rows at which 32-bit arithmetic ends, and threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import torch

import mollifier
from tests.ops.helpers import draw_seed


@torch.no_grad()
def test_a_batch_of_many_rows():
    module, x = mollifier.nn.HardSigmoidLSTM(32, 32), torch.randn(1, 120_000, 32)
    out = module(x)[0]
    for some in (slice(0, 7), slice(60_000, 60_007), slice(-7, None)):
        torch.testing.assert_close(out[:, some], module(x[:, some])[0])


def test_threads_draw_seeds_of_their_own():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = [
                seed for seeds in pool.map(lambda _: [draw_seed() for _ in range(5000)], range(4)) for seed in seeds
            ]
    finally:
        sys.setswitchinterval(before)
    assert len(set(found)) == len(found)
