"""Read and write tags and notes of a run or a study. They are for people, and no result depends on them. No torch here.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> add(folder, "first,wide", "the learning rate of the paper")
>>> read(folder)
Notes(tags=('first', 'wide'), texts=('the learning rate of the paper',))
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from mollifier_lab.errors import LabError
from mollifier_lab.files import write_atomically
from mollifier_lab.json_files import read_object

NAME = "notes.json"


@dataclass(frozen=True)
class Notes:
    """The tags and notes of a folder."""

    tags: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __add__(self, other: Notes) -> Notes:
        return Notes(tuple(dict.fromkeys((*self.tags, *other.tags))), (*self.texts, *other.texts))


def read(folder: Path) -> Notes:
    """Read the tags and notes of a folder, if there are any.

    Raises:
        LabError: If the file is not understood.
    """
    path = folder / NAME
    try:
        found = read_object(path)
        return Notes(tuple(map(str, found["tags"])), tuple(map(str, found["texts"])))
    except FileNotFoundError:
        return Notes()
    except (KeyError, TypeError, OSError) as error:
        raise LabError(f"{path}: not understood ({error!r}); remove it, or correct it") from None
    except LabError as error:
        raise LabError(f"{error}; remove it, or correct it") from None


def add(folder: Path, tags: str = "", text: str = "") -> None:
    """Add tags, separated by commas, and a note. A tag that exists already is not added again."""
    new = Notes(tuple(tag.strip() for tag in tags.split(",") if tag.strip()), (text.strip(),) if text.strip() else ())
    if new != Notes():
        write_atomically(folder / NAME, (json.dumps(asdict(read(folder) + new), indent=2) + "\n").encode())


def above(folder: Path, root: Path) -> Notes:
    """Return the notes of a folder and of all folders above it, up to a root: the notes of a study apply to its runs."""
    chain = [folder, *folder.parents]
    upto = chain[: chain.index(root) + 1] if root in chain else [folder]
    found = Notes()
    for each in reversed(upto):
        found += read(each)
    return found
