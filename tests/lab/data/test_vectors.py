from __future__ import annotations

import gzip
import os

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mollifier_lab.data import vectors
from mollifier_lab.data.folder import DataError, cache_folder
from tests.lab.data import makers


def put(tmp_path, text: str | bytes, name: str = "v.txt"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("dimension", [1, 3, 100])
@pytest.mark.parametrize("header", [False, True])
def test_words_and_numbers_come_out_as_they_are(tmp_path, dimension, header, monkeypatch):
    monkeypatch.setattr(vectors, "PIECE", 1000)  # lines that lie across two pieces
    words, values, text = makers.vectors(200, dimension)
    path = put(tmp_path, f"200 {dimension}\n{text}" if header else text)
    table = vectors.read_vectors(path)
    assert table.words == words
    assert table.vectors.dtype == np.float32
    assert np.array_equal(table.vectors, values)


def test_ordinary_lines_take_the_quick_way(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors._Reader, "_parse_line", None)
    words, values, text = makers.vectors(50, 4)
    table = vectors.read_vectors(put(tmp_path, "50 4\n" + text.replace("\n", " \r\n")))
    assert table.words == words
    assert np.array_equal(table.vectors, values)


def test_gzip_windows_lines_trailing_spaces_and_no_last_line_end(tmp_path):
    words, values, text = makers.vectors(50, 4)
    for number, raw in enumerate(
        (gzip.compress(text.encode()), text.replace("\n", "\r\n"), text.replace("\n", " \n"), text[:-1])
    ):
        table = vectors.read_vectors(put(tmp_path, raw, "v.txt.gz" if number == 0 else "v.txt"))
        assert table.words == words
        assert np.array_equal(table.vectors, values)


def test_unusual_but_right_lines(tmp_path):
    table = vectors.read_vectors(put(tmp_path, "a 1 2\nb  3\t4e-1\nß -.5 +1E2\n1 7 8\n"))
    assert table.words == ["a", "b", "ß", "1"]
    assert np.allclose(table.vectors, [[1, 2], [3, 0.4], [-0.5, 100], [7, 8]])


def test_entities_are_dropped_and_the_first_of_two_counts(tmp_path):
    table = vectors.read_vectors(put(tmp_path, "5 2\nENTITY/Cat 9 9\na 1 2\nb 3 4\na 5 6\nENTITY/Dog 9 9\n"))
    assert table.words == ["a", "b"]
    assert table.vectors.tolist() == [[1, 2], [3, 4]]


def test_no_break_spaces_and_line_separators_belong_to_the_word(tmp_path):
    table = vectors.read_vectors(put(tmp_path, "a\u00a0b 1 2\nc\u2028d 3 4\ne\u0085 5 6\n"))
    assert table.words == ["a\u00a0b", "c\u2028d", "e\u0085"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, found 2 fields"),
        ("a 1 2\nb 1 2 3\nc 1\n", "line 2: expected a word and 2 numbers, found 4 fields"),
        ("2 2\na 1 2\nb 1\n", "line 3: expected a word and 2 numbers"),
        ("a 1 2\n\nb 1 2\n", "line 2: .*found 0 fields"),
        ("a 1 2\n 1 2\n", "line 2: .*found 2 fields"),
        ("a 1 2\nb 1 x2\n", "line 2: 'x2' is not a number"),
        ("a 1 2\nb 1 1,5\n", "line 2: '1,5' is not a number"),
        ("a 1 2\nb 1 nan\n", "line 2: a number is not finite"),
        ("a 1 2\nb -inf 0\n", "line 2: a number is not finite"),
        ("a 1 2\nb 1e99 0\n", "line 2: a number is not finite"),
        (b"a 1 2\nb 1 2\n\xff\xfe 1 2\n", "line 3: the word is not UTF-8 text"),
        ("3 2\na 1 2\nb 1 2\n", "announces 3 words, but it has 2; is it cut"),
        ("a\n", "line 1: expected a word and its numbers"),
        ("5 0\n", "line 1: expected a word and its numbers"),
        ("", "has no word vectors"),
        ("0 3\n", "has no word vectors"),
        ("ENTITY/A 1 2\n", "has no word vectors"),
        (bytes(6 << 20), "not a text of word vectors"),
    ],
)
def test_damage_is_told_with_its_line(tmp_path, text, message):
    path = put(tmp_path, text)
    with pytest.raises(DataError, match=message) as error:
        vectors.read_vectors(path)
    assert str(path) in str(error.value)


def test_a_line_number_far_down(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "PIECE", 500)
    lines = makers.vectors(300, 3)[2].splitlines()
    lines[250] += "9"
    lines[251] = lines[251].replace(" ", " x", 1)
    with pytest.raises(DataError, match="line 252: 'x"):
        vectors.read_vectors(put(tmp_path, "\n".join(lines)))


def test_a_gzip_that_is_cut(tmp_path):
    packed = gzip.compress(makers.vectors(100, 5)[2].encode())
    for raw in (packed[:-30], b"plain text"):
        with pytest.raises(DataError, match="damaged or cut short"):
            vectors.read_vectors(put(tmp_path, raw, "v.gz"))


def test_a_limit_reads_no_further_than_it_must(tmp_path, monkeypatch):
    monkeypatch.setattr(vectors, "PIECE", 500)
    words, values, text = makers.vectors(100, 3)
    path = put(tmp_path, "1000000 3\n" + text + "damaged\n")
    table = vectors.read_vectors(path, limit=7)
    assert table.words == words[:7]
    assert np.array_equal(table.vectors, values[:7])
    with pytest.raises(DataError, match="limit=0"):
        vectors.read_vectors(path, limit=0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text("aß漢x", min_size=1),
            st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_table_survives_writing_and_reading(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("v") / "v.txt"
    path.write_text("".join(f"{word} {a!r} {b!r}\n" for word, (a, b) in rows))
    first: dict[str, list[float]] = {}
    for word, values in rows:
        first.setdefault(word, values)
    table = vectors.read_vectors(path)
    assert dict(zip(table.words, table.vectors.tolist(), strict=True)) == first


def copies():
    return sorted((cache_folder() / "words").glob("*"))


def test_the_copy_is_used_until_the_file_changes(tmp_path, monkeypatch):
    words, values, text = makers.vectors(20, 3)
    path = put(tmp_path, text)
    first = vectors.load_vectors(path)
    (copy,) = copies()
    made = copy.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(vectors, "read_vectors", lambda *_: pytest.fail("the file was read again"))
        again = vectors.load_vectors(path)
    assert again.words == first.words == words
    assert np.array_equal(again.vectors, values)
    assert copy.stat().st_mtime_ns == made
    # the same size and time, other contents
    stamp = path.stat()
    path.write_text(text[:-2] + ("1" if text[-2] != "1" else "2") + "\n")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert not np.array_equal(vectors.load_vectors(path).vectors, values)
    assert len(copies()) == 2


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data.replace(b"wa0", b"wx0"), lambda _: b""]
)
def test_a_damaged_copy_is_made_again_with_a_note(tmp_path, damage):
    words, _, text = makers.vectors(20, 3)
    path = put(tmp_path, text)
    vectors.load_vectors(path)
    (copy,) = copies()
    good = copy.read_bytes()
    copy.write_bytes(damage(good))
    with pytest.warns(UserWarning, match=r"is damaged .*v\.txt is read again"):
        assert vectors.load_vectors(path).words == words
    assert vectors.load_vectors(path).words == words
    assert copies() == [copy]


def test_a_copy_with_a_pickle_in_it_is_not_opened(tmp_path):
    words, _, text = makers.vectors(5, 3)
    path = put(tmp_path, text)
    vectors.load_vectors(path)
    (copy,) = copies()
    with copy.open("wb") as out:
        np.savez(out, words=np.array([{"a": 1}], dtype=object), vectors=np.zeros((1, 3)))
    with pytest.warns(UserWarning, match="is damaged"):
        assert vectors.load_vectors(path).words == words


def test_without_a_writable_cache_it_is_read_all_the_same(tmp_path, monkeypatch):
    words, _, text = makers.vectors(5, 3)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MOLLIFIER_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"no copy of v\.txt could be kept"):
        assert vectors.load_vectors(put(tmp_path, text)).words == words
