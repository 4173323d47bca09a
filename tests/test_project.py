"""Facts about the project that are written in several places agree, and the small commands work."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mollifier

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    assert re.search(r"^version: (\S+)$", read("CITATION.cff"), re.MULTILINE)[1] == mollifier.__version__


def test_the_oldest_torch_is_the_same_everywhere() -> None:
    oldest = re.search(r"^OLDEST \?= (\S+)$", read("Makefile"), re.MULTILINE)[1]
    allowed = re.search(r'^dependencies = \["torch>=([\d.]+)"\]', read("pyproject.toml"), re.MULTILINE)[1]
    assert oldest.startswith(f"{allowed}.")


def test_actions_are_pinned_to_a_commit() -> None:
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    used = [found for path in workflows for found in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))]
    assert len(used) > 10
    assert [name for name in used if not re.fullmatch(r"\$/\S+|\S+@[0-9a-f]{40}", name)] == []


def test_a_release_needs_every_other_workflow() -> None:
    needed = re.search(r"needs: \[(.*)\]", read(".github/workflows/release.yml"))[1].split(", ")
    others = {path.stem for path in (ROOT / ".github/workflows").glob("*.yml")} - {"release"}
    assert set(needed) == others


def test_what_to_paste_into_a_bug_report() -> None:
    done = subprocess.run([sys.executable, "-m", "mollifier"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"mollifier {mollifier.__version__}\ntorch {torch.__version__}")
    assert "kernels:" in done.stdout


@pytest.mark.parametrize(("asked", "installs"), [({}, False), ({"CI": "true"}, True), ({"BROWSER": "1"}, True)])
def test_system_packages_are_installed_only_where_asked_for(
    tmp_path: Path, asked: dict[str, str], installs: bool
) -> None:
    # a path with make, a root's id and an apt-get that writes down how it was called, and without Chromium
    for tool in ("make", "sh", "bash"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    for tool, script in {"apt-get": f'echo "$@" >> {tmp_path}/calls', "id": "echo 0"}.items():
        (tmp_path / tool).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / tool).chmod(0o755 | stat.S_IXUSR)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "BROWSER", "PATH", "MAKEFLAGS")}
    done = subprocess.run(
        ["make", "browser"],
        cwd=ROOT,
        env=kept | asked | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (tmp_path / "calls").exists() == installs
    assert ("SKIPPED" in done.stdout) != installs


def test_every_package_has_its_folder_of_tests() -> None:
    missing = []
    for package, tests in (("mollifier", ROOT / "tests"), ("mollifier_lab", ROOT / "tests" / "lab")):
        source = ROOT / "src" / package
        folders = {path.parent.relative_to(source) for path in source.rglob("*.py")}
        missing += [str(tests / each) for each in sorted(folders) if not list((tests / each).glob("test_*.py"))]
    assert missing == []
