from __future__ import annotations

import pytest
import torch

from mollifier_lab.data import ptb
from mollifier_lab.data.folder import DataError
from tests.lab.data import makers


def test_numbers_by_frequency_then_alphabet(tmp_path):
    makers.ptb(tmp_path / "ptb", train=" b a b \n\n c <unk> b \n", valid=" a unheard \n", test=" c ")
    data = ptb.load(tmp_path)
    # three line ends and three b; '<' sorts before the letters
    assert data.vocabulary.words == ("<eos>", "b", "<unk>", "a", "c")
    assert data.vocabulary.counts == (3, 3, 1, 1, 1)
    assert data.train.tolist() == [1, 3, 1, 0, 0, 4, 2, 1, 0]
    assert data.valid.tolist() == [3, 2, 0]
    assert data.test.tolist() == [4, 0]
    assert data.train.dtype == torch.int64
    assert [data.vocabulary.words[number] for number in data.train.tolist()][:3] == ["b", "a", "b"]


def test_a_word_that_nothing_stands_for(tmp_path):
    makers.ptb(tmp_path, train=" the cat \n", test=" cat \n")
    with pytest.raises(DataError, match=r"ptb\.valid\.txt: the word 'bird' is not in the training text"):
        ptb.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b" \n \n"])
def test_an_empty_file(tmp_path, content):
    makers.ptb(tmp_path)
    (tmp_path / "ptb.train.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"ptb\.train\.txt: is empty; .*mollifier data ptb"):
        ptb.load(tmp_path)


def test_a_file_that_is_no_text(tmp_path):
    makers.ptb(tmp_path)
    (tmp_path / "ptb.test.txt").write_bytes(b"the \xff\xfe cat\n")
    before = makers.state(tmp_path)
    with pytest.raises(DataError, match=r"ptb\.test\.txt: is not UTF-8 text \(byte 4\)"):
        ptb.load(tmp_path)
    assert makers.state(tmp_path) == before


def test_batchify_keeps_the_order_in_each_row():
    rows = ptb.batchify(torch.arange(103), 5)
    assert rows.shape == (5, 20)
    assert torch.equal(rows.flatten(), torch.arange(100))


@pytest.mark.parametrize("batch", [0, -1, 6, 10])
def test_batchify_of_too_little(batch):
    with pytest.raises(DataError, match=f"10 words cannot be cut into {batch} parts"):
        ptb.batchify(torch.arange(10), batch)
