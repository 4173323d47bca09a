"""Where runs are made, as arguments and as flags."""

import dataclasses
from pathlib import Path

import pytest

from mollifier_lab.pool import Pool
from mollifier_lab.pool_options import PoolOptions, pool_flags


def test_flags_name_what_is_not_the_default() -> None:
    where: PoolOptions = {"data": Path("a folder"), "workers": 3, "backend": "dask", "address": "tcp://h:1", "threads": 2, "logger": "mlflow"}  # fmt: skip
    words = pool_flags(where)
    assert words == ["--data", "a folder", "--workers", "3", "--backend", "dask", "--address", "tcp://h:1", "--threads", "2", "--logger", "mlflow"]  # fmt: skip
    assert pool_flags({"workers": 1, "backend": "loky", "show": False}) == pool_flags({}) == []


def test_every_argument_is_one_of_a_pool() -> None:
    assert set(PoolOptions.__annotations__) == {field.name for field in dataclasses.fields(Pool)} - {"pruning"}


def test_a_pool_finds_its_data_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Pool(data=Path("here")).data == tmp_path / "here"
    assert Pool().data is None
