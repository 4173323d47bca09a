"""The version matrix of the workflow: ``nox`` runs all of it with the current Python, ``nox --list`` lists the sessions.

``nox -s "library(newest)" -- tests/convert`` runs some of the tests only. The newest torch is the one in constraints.txt. The oldest
is downloaded with its CUDA packages, which are gigabytes.
"""

import re
from pathlib import Path

import nox

TORCH = {
    "oldest": re.search(r"^OLDEST \?= (\S+)", Path("Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1],
    "newest": re.search(r"^torch==(\S+)", Path("constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[1],
}
TESTS = ("hatchling", "hypothesis", "matplotlib", "psutil", "pytest", "pytest-xdist", "rich", "scipy", "sybil", "transformers")
nox.options.default_venv_backend = "venv"  # uv would take the torch with CUDA packages


@nox.session
@nox.parametrize("torch", [nox.param(name, id=name) for name in TORCH])
def library(session: nox.Session, torch: str) -> None:
    """Run the library's tests on one version of torch, without the laboratory and the integrations, whose dependencies choose theirs."""
    pins = Path(session.create_tmp()) / "constraints.txt"
    lines = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    pins.write_text("\n".join([line for line in lines if not line.startswith("torch==")]), encoding="utf-8")
    session.env["PIP_CONSTRAINT"] = str(pins.resolve())
    session.install(f"torch=={TORCH[torch]}", *TESTS)
    session.install("--no-deps", ".")
    ignored = ("--ignore", "tests/lab", "--ignore", "tests/integrations", "--ignore", "tests/docs")
    tests = session.posargs or ["tests"]
    session.run("python", "-m", "pytest", "-q", "-n", "2", *tests, *ignored, env={"OMP_NUM_THREADS": "1"})
