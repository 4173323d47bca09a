"""Download a data set from the first public address that answers, check it, and give a file its name only when it is complete."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mollifier_lab import files
from mollifier_lab.data.archive import extract
from mollifier_lab.data.folder import DataError, check, locate
from mollifier_lab.data.sources import Archive, File, Source, source

if TYPE_CHECKING:
    from rich.progress import Progress

TIMEOUT = 30.0
PIECE = 1 << 16


def fetch(
    name: str,
    folder: Path,
    *,
    sources: Source | None = None,
    progress: bool = True,
    force: bool = False,
    timeout: float = TIMEOUT,
) -> Path:
    """Download the missing files of a data set into a folder, and return where `locate` finds them.

    Good files are kept as they are. The addresses are tried in turn; one that sends nothing for `timeout` seconds has failed.

    Args:
        name: The set, as in `sources.SOURCES`.
        folder: The data folder. The files go into its subfolder with the set's name, or next to existing files.
        sources: Facts about the set that replace the published ones, for example a mirror of your own.
        progress: Whether to draw a bar on the terminal.
        force: Whether to replace existing files that are wrong.
        timeout: Seconds to wait for a server's next bytes.

    Raises:
        DataError: If an existing file is wrong (it is not changed), or if no address returned the right bytes.
    """
    facts = sources or source(name)
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; expected the folder for {facts.title}")
    reports = check(name, folder, facts)
    if (wrong := [report for report in reports if report.status == "wrong"]) and not force:
        listed = "\n  ".join(f"{report.path}: {report.detail}" for report in wrong)
        raise DataError(
            f"{facts.title}: these files are not the published ones and were left as they are:\n  {listed}\n"
            f"Move them away, or replace them: mollifier data {name} --force"
        )
    needed = {report.path for report in reports if report.status != "ok"}
    if needed:
        place = next(iter(needed)).parent
        wanted = tuple(file for file in facts.files if place / file.name in needed)
        if {place / file.name for file in wanted} != needed:
            raise DataError(
                f"{facts.title}: {wrong[0].path} is from another source and cannot be downloaded; move it away"
            )
        try:
            place.mkdir(parents=True, exist_ok=True)
            _sweep(place)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=place) as stage, _bars(progress) as bars:
                _bring(facts, wanted, Path(stage), folder, bars, timeout)
                for file in wanted:
                    files.settle(Path(stage) / file.name, place / file.name)
        except OSError as error:
            raise DataError(f"{facts.title}: cannot write to {place}: {error}") from error
    return locate(name, folder, facts)


def _sweep(place: Path) -> None:
    """Remove what a killed process left behind a day ago or more; what is younger may still be in use."""
    for stage in place.glob(".fetch-*"):
        if not stage.is_symlink() and time.time() - stage.stat().st_mtime > 86_400:  # a link is not ours
            shutil.rmtree(stage, ignore_errors=True)


def _bring(
    facts: Source, wanted: tuple[File, ...], stage: Path, folder: Path, bars: Progress | None, timeout: float
) -> None:
    """Put the requested files, checked, on the stage: one by one, and what is then still missing from the archive."""
    failures: list[str] = []
    for file in wanted if facts.mirrors else ():
        addresses = tuple(mirror + file.name for mirror in facts.mirrors)
        failures += _download(addresses, file.name, file.checksum, stage, bars, timeout)
    left = tuple(file for file in wanted if not (stage / file.name).exists())
    if left and facts.archive:
        archive = facts.archive
        path = _at_hand(archive, folder / facts.name) or _at_hand(archive, folder)
        if path is None:
            failures += _download(archive.addresses, archive.name, archive.checksum, stage, bars, timeout)
            path = stage / archive.name
        if path.exists():
            extract(path, archive, left, stage)
            left = ()
    if left:
        listed = "\n  ".join(failures)
        raise DataError(
            f"{facts.title}: {', '.join(file.name for file in left)} could not be downloaded; nothing was changed.\n  {listed}\n"
            f"Try again later, or get the files in another way, put them into {folder / facts.name} and check them: "
            f"mollifier data {facts.name} --from {shlex.quote(str(folder))}"
        )


def _at_hand(archive: Archive, folder: Path) -> Path | None:
    """Return the archive, if the user already has it."""
    path = folder / archive.name
    return path if path.is_file() and files.matches(path, archive.checksum) else None


def _download(
    addresses: tuple[str, ...], name: str, checksum: str | None, stage: Path, bars: Progress | None, timeout: float
) -> list[str]:
    """Download from the first address that returns the right bytes; return what went wrong if none does."""
    import pooch  # type: ignore[import-untyped]
    import requests

    pooch.get_logger().setLevel("WARNING")
    failures = []
    for address in addresses:
        downloader = pooch.HTTPDownloader(
            progressbar=_Bar(bars, name) if bars else False,
            chunk_size=PIECE,
            timeout=(timeout, timeout),
            headers={"Accept-Encoding": "identity"},  # a .gz must arrive unchanged
        )
        try:
            pooch.retrieve(address, known_hash=checksum, fname=name, path=stage, downloader=downloader)
        except requests.RequestException as error:
            failures.append(f"{address}: {error}")
        except ValueError:
            failures.append(f"{address}: returned bytes that are not the published ones ({checksum})")
        else:
            return []
    return failures


@contextmanager
def _bars(wanted: bool) -> Iterator[Progress | None]:
    """Return where progress is drawn: on the terminal's error stream, so that output can be piped."""
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield bars


class _Bar:
    """The bar of one download, with the interface that pooch expects."""

    def __init__(self, bars: Progress, name: str) -> None:
        self._bars, self._task = bars, bars.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        """The total number of bytes; the server sends it when it answers."""
        return self._bars.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._bars.update(self._task, total=size or None)

    def update(self, size: int) -> None:
        """Add a number of bytes."""
        self._bars.advance(self._task, size)

    def reset(self) -> None:
        """Go back to 0: pooch sets the exact size at the end."""
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        """Keep the full bar."""
