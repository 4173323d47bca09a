"""What `tests.lab.fuzz` does to files, JSON documents and command lines."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import torch

from mollifier_lab import checkpoint

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3.5, 0.25, 1e308, -1e400, float("nan"), 2**63, 10**30, "", "x", "\ud800", "0", "parity", [], [[]], [None], {}, {"a": 1}, "a" * 300,
]  # fmt: skip
BYTES = [
    b"", b"\x00", b"\xff\xfe", b"null", b"[" * 50_000, b'{"a":' * 50_000, b"{}", b"[]", b"\n", b"NaN\n", b"9" * 5000, b"{\n" * 10,
]  # fmt: skip
WORDS = [
    "", "-1", "0", "1", "2", "inf", "nan", "1e400", "9" * 30, "18446744073709551615", "100000", "x", "\udcff", "a=b", "lr=", "=", "lr=nan", "lr=1e400",
    "width=0", "k=-1", "plain:", "plain:lr=x", "plain", "mollified", "gates", "parity", "ptb", "--", "-", "--help", "/dev/null", "/dev/zero",
    "/nowhere/at/all", "~nobody-here", "é", ",", "1,1", "3,", "64-true", "sgd", "linear", "train", "valid", "quick", "paper",
]  # fmt: skip
FLAGS = {
    "train": "--seed --label --method --preset --config --lr --gain --momentum --width --depth --bits --samples --batch --epochs --updates --evaluate-every "
    "--save-every --k --horizon --schedule --v --loss-average --stop-at --then --p-min --anneal-every --push --c --survival --dropout --weight-std --clip "
    "--weight-decay --optimizer --converged --kind --activation --threads --precision --data --nodes --devices --strategy --accelerator --no-copy --out "
    "--tags --note --logger --import --dry-run --allow-other-data --front-width",
    "compare": "--methods --seeds --preset --set --search-set --search-seed --best --threads --workers --backend --address --data --out "
    "--grid --pruner --search --tags --note --logger --import --dry-run",
    "search": "--method --trials --preset --set --seed --storage --threads --workers --backend --address --data --out --pruner --import --dry-run",
    "report": "--out --import", "ls": "--tag --import", "note": "--tags", "frontier": "--draw --out --depths --workers", "resume": "--data --threads --precision --accelerator", "tasks": "--markdown", "methods": "", "figures": "--dpi", "data": "--from --data",
    "reproduce": "--out --data --workers",
}  # fmt: skip
# several processes are not for here: they take seconds to start, and wait for the machines that they are told of
ELSEWHERE = {("--workers", "2"), ("--nodes", "2"), ("--devices", "2")}
MANY = (
    "--seed",
    "--threads",
    "--workers",
    "--devices",
    "--nodes",
    "--seeds",
    "--trials",
)  # refuse what others would try


def mutate(path: Path, pick: random.Random) -> str:
    """Damage a file: its bytes, its JSON, the file as such, or the contents of a checkpoint, with a right checksum. Return what was done."""
    data = path.read_bytes()
    how = pick.choice(["cut", "flip", "replace", "inside", "inside", "inside", "inside", "remove", "folder", "double"])
    if how == "inside" and path.suffix == ".pt":
        return forge(path, pick)
    if how == "inside" and path.suffix in (".json", ".jsonl"):
        lines = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        at = pick.randrange(len(lines)) if lines else 0
        found = json.loads(lines[at]) if lines else {}
        what = change(found, pick)
        lines[at : at + 1] = [json.dumps(found)]
        path.write_text("\n".join(lines) + "\n")
        return what
    if how == "remove":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "replace":
        path.write_bytes(pick.choice(BYTES))
    elif how == "double":
        path.write_bytes(data + data)
    elif how == "flip" and data:
        at = pick.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << pick.randrange(8))]) + data[at + 1 :])
    else:
        path.write_bytes(data[: pick.randrange(len(data) + 1)])
    return how


def forge(path: Path, pick: random.Random) -> str:
    """A checkpoint with something of another type or shape in it, and with a right checksum."""
    state = torch.load(io.BytesIO(path.read_bytes()), weights_only=True)
    inside, names = state, []
    while isinstance(inside, dict) and inside:
        name = pick.choice(sorted(inside, key=str))
        names.append(str(name))
        if isinstance(inside[name], dict) and inside[name] and pick.random() < 0.8:
            inside = inside[name]
            continue
        if pick.random() < 0.3:
            del inside[name]
        else:  # no number in place of a number: that a run could have saved, too
            inside[name] = pick.choice(["x", None, [], {}, torch.zeros(7, 3)])
        break
    state.pop("format", None)
    update = int(path.name.split("-")[1])
    state.pop("update", None)
    path.unlink()
    checkpoint.save(path.parent, update, state)
    return f"forged {'.'.join(names)}"


def change(found: Any, pick: random.Random) -> str:
    """Change, add or remove one value somewhere in a JSON document, in place."""
    if isinstance(found, dict) and found:
        name = pick.choice(sorted(found))
        inside = found[name]
        if isinstance(inside, dict | list) and inside and pick.random() < 0.7:
            return f"{name}.{change(inside, pick)}"
        if pick.random() < 0.2:
            del found[name]
            return f"{name} removed"
        found[name] = pick.choice(ODD)
        return f"{name}={found[name]!r:.60}"
    if isinstance(found, list) and found:
        at = pick.randrange(len(found))
        found[at] = pick.choice(ODD)
        return f"{at}={found[at]!r:.60}"
    return "nothing to change"


def odd_flags(command: str, pick: random.Random) -> tuple[dict[str, str | None], list[str]]:
    """Up to three flags with odd values (None: without one), and words that belong to no flag."""
    flags: dict[str, str | None] = {}
    loose: list[str] = []
    for _ in range(pick.randint(1, 3)):
        flag, word = pick.choice(FLAGS[command].split() or [""]), pick.choice(WORDS)
        if (flag, word) in ELSEWHERE or (word == "100000" and flag not in MANY):
            continue
        if not flag or pick.random() < 0.1:
            loose.append(word)
        else:
            flags[flag] = None if pick.random() < 0.1 else word
    return flags, loose
