from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mollifier_lab.data import pentomino
from mollifier_lab.data.folder import DataError, cache_folder

# seed, count, scenes of three equal shapes, and the sha256 of images, labels and hints: from a port of the authors' program
PUBLISHED = [
    (
        735128712, 80_000, 40_199,
        "91d00f643e8f6d4adbbf69059837d07572ad2a7fa5b58125460e07e595cd9141",
        "a9c054b993b51618556147493b02f78d291fa5daae04aa4ac8cbc601d381fceb",
        "96cab30ae4d1915fc8eff06b24236e16a3daae480a60ffe7a205052a5e4864ca",
    ),
    (
        975168712, 40_000, 20_129,
        "4da66fd29443a4a43cf2b2c6223e246bb1d02f34e8789af6f0a32e52596d6903",
        "e2a29021a70595f8efa8deaba5588232db220f80debe66abe103d77c61ccb7e5",
        "6b9b69b9581be94fd5211c91419f48ff9b4056def69eea2ca53bd4b3f696472c",
    ),
    (
        112168712, 20_000, 10_108,
        "5285220eaa2afbf7cca41a3b6d1ff2ab6614ab109ca2810030c96ecbfdc12eb5",
        "18531e92c2289166d996689614f3cc400f34817b07b28f958f4854a6a0a87b61",
        "df6912aad7c05f97ea2ac9212f7dc8439d3623db78ba947a1a538dd152c8d6e2",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "count", "same", "images", "labels", "hints"), PUBLISHED)
def test_the_nine_hashes(seed, count, same, images, labels, hints):
    made = pentomino.generate(count, seed)
    assert [array.shape for array in made] == [(count, 4096), (count, 1), (count, 64)]
    assert [array.dtype for array in made] == [np.uint8, np.uint8, np.int8]
    assert int((made[1] == 10).sum()) == same
    assert [hashlib.sha256(array.tobytes()).hexdigest() for array in made] == [images, labels, hints]


def directly(count: int, seed: int):
    """The same thing as it reads: one draw after the other, one scene after the other."""
    random = np.random.RandomState(seed)

    def ri(low: int, high: int) -> int:
        return int(random.randint(low, high + 1))

    shapes = [np.array([[cell == "x" for cell in row] for row in text.split()], np.uint8) for text in pentomino.SHAPES]
    images, labels, hints = [], [], []
    while len(images) < count:
        if ri(0, 1):
            index = [ri(0, 9)] * 3
            label = 10
        else:
            one = label = ri(0, 9)
            two = ri(0, 9)
            while two == one:
                two = ri(0, 9)
            index = [one, two, two]
        turns, scales, blocks = (
            [ri(0, 3) for _ in range(3)],
            [ri(1, 2) for _ in range(3)],
            [ri(0, 63) for _ in range(3)],
        )
        image, collider = np.zeros((64, 64), np.uint8), np.zeros((80, 80), np.uint8)
        hint = np.full(64, -1, np.int8)
        for number, turn, scale, block in zip(index, turns, scales, blocks, strict=True):
            shape = shapes[number]
            for _ in range(turn):
                shape = shape.T[:, ::-1]
            mask = np.zeros((shape.shape[0] + 2, shape.shape[1] + 2), np.uint8)
            for y, x in np.argwhere(shape):
                mask[y : y + 3, x : x + 3] = 1
            shape, mask = (part.repeat(scale, 0).repeat(scale, 1) for part in (shape, mask))
            y, x = 8 * (block // 8), 8 * (block % 8)
            image[y : y + shape.shape[0], x : x + shape.shape[1]] += shape
            collider[y + 8 - scale :, x + 8 - scale :][: mask.shape[0], : mask.shape[1]] += mask
            hint[block] = number
        if collider[8:72, 8:72].max() < 2:
            images.append(image.ravel())
            labels.append([label])
            hints.append(hint)
    return np.array(images), np.array(labels, np.uint8), np.array(hints)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 60))
def test_equal_to_the_direct_way(seed, count):
    for quick, direct in zip(pentomino.generate(count, seed), directly(count, seed), strict=True):
        assert np.array_equal(quick, direct)


def test_pieces_of_any_size_join_without_a_seam(monkeypatch):
    whole = pentomino.generate(500, 7)
    for size in (1, 7, 100):
        monkeypatch.setattr(pentomino, "CHUNK", size)
        for array, expected in zip(pentomino.generate(500, 7), whole, strict=True):
            assert np.array_equal(array, expected)


def test_fewer_are_the_first_of_more():
    few, many = pentomino.generate(10, 3), pentomino.generate(300, 3)
    assert all(np.array_equal(a, b[:10]) for a, b in zip(few, many, strict=True))
    assert [array.shape for array in pentomino.generate(0, 3)] == [(0, 4096), (0, 1), (0, 64)]
    with pytest.raises(DataError, match="count must be 0 or more, got -1"):
        pentomino.generate(-1, 3)


def test_there_are_eighty_patterns():
    pixels = pentomino._patterns()[0].view(np.uint8).reshape(80, 64)
    assert len(np.unique(pixels, axis=0)) == 80
    assert sorted(set(pixels.sum(1).tolist())) == [5, 20]


def test_the_splits_and_their_file(monkeypatch):
    made = pentomino.load("valid")
    assert made.images.shape == (10_000, 4096)
    assert (made.images.dtype, made.labels.dtype, made.hints.dtype) == (torch.uint8, torch.uint8, torch.int8)
    (path,) = (cache_folder() / "pentomino").iterdir()

    # from here on, only the file can know
    monkeypatch.setattr(pentomino, "generate", None)
    valid, test = pentomino.load("valid"), pentomino.load("test")
    for name in ("images", "labels", "hints"):
        assert torch.equal(getattr(valid, name), getattr(made, name))
    assert int(valid.same.sum() + test.same.sum()) == 10_108
    assert len(valid) == len(test) == 10_000
    both = torch.cat([valid.images, test.images]).numpy()
    assert hashlib.sha256(both.tobytes()).hexdigest() == PUBLISHED[2][3]
    assert path.stat().st_size < 12_000_000
    with pytest.raises(DataError, match="split='all'"):
        pentomino.load("all")


def test_a_damaged_file_is_made_again_with_a_note():
    pentomino.load("test")
    (path,) = (cache_folder() / "pentomino").iterdir()
    good = path.read_bytes()
    images, labels, hints = pentomino.generate(*pentomino.HELD_OUT)
    images[5, 7] ^= 1
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1

    def another() -> None:
        with path.open("wb") as out:
            np.savez(out, images=np.packbits(images, axis=1), labels=labels, hints=hints)

    for damage in (
        lambda: path.write_bytes(good[:-1000]),
        lambda: path.write_bytes(flipped),
        lambda: path.write_bytes(b""),
        another,
    ):
        damage()
        with pytest.warns(UserWarning, match="is damaged .* and is generated again"):
            assert int(pentomino.load("test").same.sum()) == 5_095
        assert path.read_bytes() == good
    assert os.listdir(path.parent) == [path.name]


def test_the_file_is_kept_where_the_user_says(tmp_path, monkeypatch):
    pentomino.load("valid", tmp_path)
    assert not any(tmp_path.iterdir())  # MOLLIFIER_CACHE is set here
    monkeypatch.delenv("MOLLIFIER_CACHE")
    pentomino.load("valid", tmp_path)
    assert os.listdir(tmp_path / "pentomino") == ["20000-112168712.npz"]
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="could not be kept"):
        assert len(pentomino.load("valid", tmp_path / "file")) == 10_000
