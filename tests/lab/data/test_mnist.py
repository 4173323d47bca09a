from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from mollifier_lab.data import mnist
from mollifier_lab.data.folder import DataError
from tests.lab.data import makers

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def test_the_sets_are_the_files_in_order(tmp_path):
    arrays = makers.mnist(tmp_path / "mnist")
    data = mnist.load(tmp_path, valid=4)
    images = torch.cat([data.train.inputs, data.valid.inputs])
    labels = torch.cat([data.train.labels, data.valid.labels])
    assert (len(data.train), len(data.valid), len(data.test)) == (8, 4, 5)
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    assert np.array_equal(images.numpy(), arrays[IMAGES])
    assert np.array_equal(labels.numpy(), arrays[LABELS])
    assert np.array_equal(data.test.inputs.numpy(), arrays["t10k-images-idx3-ubyte.gz"])
    assert np.array_equal(data.test.labels.numpy(), arrays["t10k-labels-idx1-ubyte.gz"])
    data.train.inputs[0] = 7  # may be written to, as any tensor


def test_too_few_images_for_the_split(tmp_path):
    makers.mnist(tmp_path)
    with pytest.raises(DataError, match="valid=10000: expected a number from 0 to 11"):
        mnist.load(tmp_path)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (makers.idx(np.zeros((12, 28, 28)), magic=0x801), "found magic 0x801"),
        (makers.idx(np.zeros((12, 28, 28)), magic=0xD03), "found magic 0xd03"),
        (makers.idx(np.zeros((12, 28, 27))), r"sizes \[12, 28, 27\]"),
        (makers.idx(np.zeros((12, 28, 28)))[:-1], "announces 9,408 bytes.*contains less"),
        (makers.idx(np.zeros((12, 28, 28))) + b"x", "announces 9,408 bytes.*contains more"),
        (makers.idx(np.zeros((12, 28, 28)))[:14], "expected an idx file"),
        (b"", "found magic None"),
        (makers.idx(np.zeros((11, 28, 28))), "11 train images, but 12 labels"),
    ],
)
def test_images_of_the_wrong_form(tmp_path, raw, message):
    makers.mnist(tmp_path)
    (tmp_path / IMAGES).write_bytes(gzip.compress(raw))
    with pytest.raises(DataError, match=message):
        mnist.load(tmp_path, valid=4)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[: len(data) // 2], lambda _: b"<html>", lambda _: b""]
)
def test_a_damaged_file_is_named_and_left_alone(tmp_path, damage):
    makers.mnist(tmp_path)
    path = tmp_path / IMAGES
    path.write_bytes(damage(path.read_bytes()))
    before = makers.state(tmp_path)
    with pytest.raises(DataError, match=f"{IMAGES}: .*download it again: mollifier data mnist"):
        mnist.load(tmp_path, valid=4)
    assert makers.state(tmp_path) == before


def test_a_label_that_is_no_digit(tmp_path):
    makers.mnist(tmp_path)
    (tmp_path / LABELS).write_bytes(gzip.compress(makers.idx(np.full(12, 10))))
    with pytest.raises(DataError, match="labels from 0 to 9"):
        mnist.load(tmp_path, valid=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_an_error_of_ours_or_harmless(tmp_path, data):
    """Whatever byte is changed, or wherever the file is cut: right numbers or a DataError, never anything else."""
    array = np.arange(5 * 4).reshape(5, 2, 2)
    raw = bytearray(gzip.compress(makers.idx(array), mtime=0))
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        raw = raw[:at]
    path = tmp_path / "x.gz"
    path.write_bytes(bytes(raw))
    try:
        found = mnist.read_idx(path, (2, 2))
    except DataError:
        return
    assert np.array_equal(found, array)
