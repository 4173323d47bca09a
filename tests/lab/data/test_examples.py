from __future__ import annotations

import pytest
import torch

from mollifier_lab.data.examples import Examples, check_share, shuffle
from mollifier_lab.data.folder import DataError


def test_a_shuffle_is_a_permutation_fixed_by_its_seed():
    order = shuffle(1000, 3)
    assert torch.equal(order.sort().values, torch.arange(1000))
    assert torch.equal(order, shuffle(1000, 3))
    assert not torch.equal(order, shuffle(1000, 4))
    assert order[:5].tolist() == [642, 762, 909, 199, 586]


def test_inputs_and_labels_stay_together():
    examples = Examples(torch.arange(10), torch.arange(10) * 2)
    some = examples[shuffle(10, 0)]
    assert torch.equal(some.labels, some.inputs * 2)
    assert len(examples[3:5]) == 2


@pytest.mark.parametrize("wanted", [-1, 5, 6])
def test_a_split_must_leave_something(wanted):
    check_share("valid", 4, 5)
    with pytest.raises(DataError, match=f"valid={wanted}: expected a number from 0 to 4"):
        check_share("valid", wanted, 5)
