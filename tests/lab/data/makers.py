"""Small real files in the canonical formats."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np

from mollifier_lab.data.sources import File


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file(name: str, data: bytes) -> File:
    """The facts of a file with this content."""
    return File(name, sha256(data), size=len(data))


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of every file below a folder: what must not change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    """An idx file, not yet gzipped."""
    head = [0x800 + array.ndim if magic is None else magic, *array.shape]
    return np.array(head, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def mnist(folder: Path, train: int = 12, test: int = 5) -> dict[str, np.ndarray]:
    """The four files of a tiny MNIST; the arrays in them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(0)
    arrays = {}
    for part, count in (("train", train), ("t10k", test)):
        arrays[f"{part}-images-idx3-ubyte.gz"] = random.randint(0, 256, (count, 28, 28))
        arrays[f"{part}-labels-idx1-ubyte.gz"] = random.randint(0, 10, count)
    for name, array in arrays.items():
        (folder / name).write_bytes(gzip.compress(idx(array)))
    return arrays


def cifar10(folder: Path, per_file: int = 6) -> np.ndarray:
    """The six files of a tiny CIFAR-10; their records (6, per_file, 3073)."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(1)
    records = random.randint(0, 256, (6, per_file, 3073), dtype=np.uint8)
    records[..., 0] %= 10
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / f"{name}.bin").write_bytes(records[number].tobytes())
    return records


def ptb(folder: Path, **texts: str) -> None:
    """Three texts; without any given, small ones."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"train": " the cat <unk> \n the dog \n", "valid": " the bird \n", "test": " dog \n"} | texts
    for part, text in texts.items():
        (folder / f"ptb.{part}.txt").write_text(text)


def vectors(count: int, dimension: int, seed: int = 0) -> tuple[list[str], np.ndarray, str]:
    """Words, their vectors, and both as GloVe text."""
    values = np.random.RandomState(seed).randn(count, dimension).astype(np.float32).round(5)
    words = [f"w{'abcdefgh'[number % 8]}{number}" for number in range(count)]
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(words, values, strict=True)]
    return words, values, "".join(lines)


def tar(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A .tar.gz of files, or of whatever a TarInfo says."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()
