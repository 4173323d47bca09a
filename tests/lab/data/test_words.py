from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st

from mollifier_lab.data import words
from mollifier_lab.data.folder import DataError
from tests.lab.data import makers


def spelled(part: words.WordSet, alphabet: str) -> list[str]:
    """Back from numbers to words."""
    return [
        "".join(alphabet[number - words.FIRST] for number in row[:length])
        for row, length in zip(part.characters.tolist(), part.lengths.tolist(), strict=True)
    ]


def test_a_split_is_a_partition_with_words_and_vectors_together(tmp_path):
    names, values, text = makers.vectors(300, 5)
    (tmp_path / "glove.mine.txt").write_text(text)
    data = words.load(tmp_path, valid=40, test=30)
    parts = (data.train, data.valid, data.test)
    assert [len(part) for part in parts] == [230, 40, 30]
    assert sorted(word for part in parts for word in part.words) == sorted(names)
    place = {name: number for number, name in enumerate(names)}
    for part in parts:
        assert torch.equal(part.vectors, torch.from_numpy(values[[place[word] for word in part.words]]))
        assert spelled(part, data.alphabet) == part.words
        assert part.vectors.dtype == torch.float32
        assert part.lengths.dtype == torch.int64
    assert [place[word] for word in data.train.words] == sorted(place[word] for word in data.train.words)


def test_the_split_depends_on_its_seed_alone(tmp_path):
    (tmp_path / "glove.mine.txt").write_text(makers.vectors(100, 2)[2])
    first, again, other = (words.load(tmp_path, valid=20, test=20, seed=seed) for seed in (0, 0, 1))
    assert first.test.words == again.test.words != other.test.words


def test_limit_and_longest(tmp_path):
    names, _, text = makers.vectors(200, 2)
    path = tmp_path / "any name.txt"
    path.write_text(text)
    data = words.load(path, limit=120, longest=4, valid=10, test=10)
    found = {word for part in (data.train, data.valid, data.test) for word in part.words}
    assert found == set(names[:100])
    assert data.train.characters.shape == (80, 4)


def test_too_few_words(tmp_path):
    (tmp_path / "glove.mine.txt").write_text(makers.vectors(20, 2)[2])
    with pytest.raises(DataError, match="20 words are too few for valid=10 and test=10"):
        words.load(tmp_path, valid=10, test=10)
    with pytest.raises(DataError, match="too few"):
        words.load(tmp_path, valid=-1, test=1)


def test_the_alphabet_is_of_the_training_words_the_frequent_first(tmp_path):
    (tmp_path / "glove.mine.txt").write_text("bbb 1\nab 1\nca 1\n漢é 1\n")
    data = words.load(tmp_path, valid=1, test=1)
    count = {letter: sum(word.count(letter) for word in data.train.words) for letter in "".join(data.train.words)}
    assert list(data.alphabet) == sorted(count, key=lambda letter: (-count[letter], letter))
    assert data.characters == len(count) + 2
    numbers = torch.cat([part.characters.flatten() for part in (data.train, data.valid, data.test)])
    assert int(numbers.max()) < data.characters
    strange = [
        letter for part in (data.valid, data.test) for word in part.words for letter in word if letter not in count
    ]
    assert int((numbers == words.UNKNOWN).sum()) == len(strange) > 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text("ab漢🙂z", min_size=1, max_size=6), max_size=6),
    st.text("zb漢🙂").map(lambda text: "".join(dict.fromkeys(text))),
)
def test_encoding_is_what_a_loop_would_do(names, alphabet):
    table, lengths = words.encode(names, alphabet)
    assert lengths.tolist() == [len(name) for name in names]
    width = max(map(len, names), default=0)
    rows = [[alphabet.find(letter) + 2 if letter in alphabet else 1 for letter in name] for name in names]
    assert table.tolist() == [row + [0] * (width - len(row)) for row in rows]


def test_a_batch_is_as_wide_as_its_longest_word():
    table, lengths = words.encode(["a", "bb", "a" * 9], "ab")
    part = words.WordSet(["a", "bb", "a" * 9], table, lengths, torch.arange(3.0).view(3, 1))
    characters, found, vectors = part.batch(torch.tensor([1, 0]))
    assert characters.tolist() == [[3, 3], [2, 0]]
    assert characters.dtype == torch.int64
    assert found.tolist() == [2, 1]
    assert vectors.tolist() == [[1.0], [0.0]]
