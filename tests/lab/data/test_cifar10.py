from __future__ import annotations

import numpy as np
import pytest
import torch

from mollifier_lab.data import cifar10
from mollifier_lab.data.folder import DataError
from tests.lab.data import makers


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_sets_are_the_records(tmp_path):
    records = makers.cifar10(tmp_path / "cifar-10-batches-bin")
    data = cifar10.load(tmp_path, valid=10, per_file=6)
    assert (len(data.train), len(data.valid), len(data.test)) == (20, 10, 6)
    assert data.train.inputs.shape == (20, 3, 32, 32)
    assert data.train.inputs.dtype == torch.uint8
    # channel by channel, row by row: the byte of (colour, y, x) is 1 + 1024 colour + 32 y + x
    assert data.test.inputs[2, 1, 5, 7] == records[5, 2, 1 + 1024 + 32 * 5 + 7]
    assert np.array_equal(data.test.labels.numpy(), records[5, :, 0])
    seen = {
        (int(label), image.numpy().tobytes())
        for part in (data.train, data.valid)
        for image, label in zip(part.inputs, part.labels, strict=True)
    }
    assert seen == {(int(record[0]), record[1:].tobytes()) for record in records[:5].reshape(-1, 3073)}


def test_the_split_depends_on_its_seed_alone(tmp_path):
    makers.cifar10(tmp_path)
    first, again, other = (cifar10.load(tmp_path, valid=10, seed=seed, per_file=6) for seed in (0, 0, 1))
    assert torch.equal(first.valid.inputs, again.valid.inputs)
    assert not torch.equal(first.valid.inputs, other.valid.inputs)


@pytest.mark.parametrize("size", [0, 3073 * 5, 3073 * 6 - 1, 3073 * 6 + 1])
def test_a_file_of_the_wrong_size(tmp_path, size):
    makers.cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(size))
    before = makers.state(tmp_path)
    with pytest.raises(
        DataError, match=rf"data_batch_3\.bin: {size:,} bytes, expected 18,438; .*mollifier data cifar10"
    ):
        cifar10.load(tmp_path, valid=10, per_file=6)
    assert makers.state(tmp_path) == before


def test_the_published_size_is_expected_unless_told(tmp_path):
    makers.cifar10(tmp_path)
    with pytest.raises(DataError, match="expected 30,730,000"):
        cifar10.load(tmp_path)


def test_a_label_that_is_none(tmp_path):
    records = makers.cifar10(tmp_path)
    records[1, 4, 0] = 10
    (tmp_path / "data_batch_2.bin").write_bytes(records[1].tobytes())
    with pytest.raises(DataError, match=r"data_batch_2\.bin: image 4 has label 10"):
        cifar10.load(tmp_path, valid=10, per_file=6)


def test_the_pickled_version_is_not_read(tmp_path):
    makers.cifar10(tmp_path)
    for path in tmp_path.iterdir():
        path.rename(path.with_suffix(""))
    with pytest.raises(DataError, match=r"data_batch_1\.bin.* not found"):
        cifar10.load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_augmented_image_is_a_shifted_and_perhaps_mirrored_one(dtype):
    images = torch.randint(1, 256, (400, 3, 32, 32), generator=generator(), dtype=torch.uint8).to(dtype)
    out = cifar10.augment(images, generator(1))
    assert out.dtype == dtype
    padded = torch.zeros(400, 3, 40, 40, dtype=dtype)
    padded[:, :, 4:36, 4:36] = images
    ways = [(top, left, mirrored) for top in range(9) for left in range(9) for mirrored in (False, True)]
    hits = torch.stack(
        [
            ((out.flip(-1) if mirrored else out) == padded[:, :, top : top + 32, left : left + 32]).flatten(1).all(1)
            for top, left, mirrored in ways
        ]
    )
    assert (hits.sum(0) == 1).all()
    assert int(hits.any(1).sum()) > 120  # of 162 ways: all happen, and the draws do not hang together
    seen = [way for way, hit in zip(ways, hits.any(1).tolist(), strict=True) if hit]
    assert {top for top, _, _ in seen} == {left for _, left, _ in seen} == set(range(9))
    assert {mirrored for _, _, mirrored in seen} == {False, True}


def test_augmentation_depends_on_the_generator_alone():
    images = torch.randint(256, (8, 3, 32, 32), generator=generator(), dtype=torch.uint8)
    kept = images.clone()
    torch.manual_seed(1)
    first = cifar10.augment(images, generator(5))
    torch.manual_seed(2)
    assert torch.equal(first, cifar10.augment(images, generator(5)))
    assert not torch.equal(first, cifar10.augment(images, generator(6)))
    assert torch.equal(images, kept)
    assert cifar10.augment(images[:0], generator()).shape == (0, 3, 32, 32)


def test_normalise():
    images = torch.tensor([0, 128, 255], dtype=torch.uint8).view(3, 1, 1, 1).expand(3, 3, 2, 2)
    out = cifar10.normalise(images)
    assert out.dtype == torch.float32
    for channel, (mean, std) in enumerate(zip(cifar10.MEAN, cifar10.STD, strict=True)):
        expected = [(value / 255 - mean) / std for value in (0, 128, 255)]
        assert out[:, channel, 1, 1].tolist() == pytest.approx(expected, abs=1e-6)
