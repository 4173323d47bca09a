"""Which backend there has to be, and what it says of itself."""

import os
import shutil
import subprocess
import sys

import torch
from torch import nn

import mollifier
from mollifier import kernels

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch, mollifier
    from torch import nn
    assert not said, "the import itself must be silent"
    model = nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 1))
    model = mollifier.mollify(model, level=0.5)
    for _ in range(3):
        model(torch.randn(3, 4)).sum().backward()
        mollifier.nn.MollifiedLSTM(3, 4)(torch.randn(5, 2, 3))[0].sum().backward()
print(mollifier.kernels.info().backend)
print(mollifier.kernels.info().why)
print(len([w for w in said if "mollifier" in str(w.message)]))
"""


def run(tmp_path, **environment):
    """A real process with its own cache; its backend, the reason, and how many warnings it gave."""
    settings = {**os.environ, "MOLLIFIER_CACHE": str(tmp_path / "cache"), **environment}
    settings.pop("MOLLIFIER_KERNELS", None)
    settings.update({key: value for key, value in environment.items() if key == "MOLLIFIER_KERNELS"})
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    backend, *why, warnings = done.stdout.splitlines()
    return backend, "\n".join(why), int(warnings)


def test_the_kernels_are_there_where_a_compiler_is():
    off = os.environ.get("MOLLIFIER_KERNELS", "").lower() in ("off", "0", "no", "eager")
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    expected = not off and any(shutil.which(name) for name in compilers)
    assert (kernels.info().backend == "native") == expected, kernels.info().why


def test_off_is_off_and_silent(tmp_path):
    assert run(tmp_path, MOLLIFIER_KERNELS="off") == ("reference", "MOLLIFIER_KERNELS=off", 0)


def test_eager_can_be_asked_for_and_is_silent(tmp_path):
    assert run(tmp_path, MOLLIFIER_KERNELS="eager") == ("eager", "MOLLIFIER_KERNELS=eager", 0)
    assert not (tmp_path / "cache").exists()  # nothing is built for nothing


def test_no_compiler_means_eager_and_one_warning(tmp_path):
    backend, why, warnings = run(tmp_path, CXX="/nonexistent/c++")
    assert (backend, warnings) == ("eager", 1)
    assert "/nonexistent/c++" in why


def test_no_compiler_on_the_path_means_eager_and_one_warning(tmp_path):
    backend, why, warnings = run(tmp_path, PATH=str(tmp_path), CXX="")
    assert (backend, warnings) == ("eager", 1)
    assert "no C++ compiler was found" in why


def test_a_compiler_that_fails_means_eager_and_one_warning(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo broken 1.0 && exit 0\necho out of order >&2\nexit 1\n')
    broken.chmod(0o755)
    backend, why, warnings = run(tmp_path, CXX=str(broken))
    assert (backend, warnings) == ("eager", 1)
    assert "out of order" in why
    assert not list((tmp_path / "cache").glob("*.so"))


def test_a_compiler_that_makes_rubbish_means_eager_and_one_warning(tmp_path):
    broken = tmp_path / "broken"
    lines = ["#!/bin/sh", '[ "$1" = --version ] && echo broken 1.0 && exit 0']
    lines += ['while [ "$1" != -o ]; do shift; done', 'echo rubbish > "$2"']
    broken.write_text("\n".join(lines) + "\n")
    broken.chmod(0o755)
    backend, why, warnings = run(tmp_path, CXX=str(broken))
    assert (backend, warnings) == ("eager", 1)
    assert "do not load" in why


def test_a_cache_that_cannot_be_written_means_eager_and_one_warning(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    backend, why, warnings = run(tmp_path)
    assert (backend, warnings) == ("eager", 1)
    assert "cache folder" in why or "no C++ compiler" in why or "does not run" in why


def test_eager_and_native_are_the_same_in_expectation():
    # what does not sample does not depend on the backend
    model = mollifier.mollify(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)), level=0.5)
    x = torch.randn(5, 4)
    torch.manual_seed(1)
    first = model.eval()(x)
    assert torch.equal(first, model(x))


def test_info_says_what_serves():
    info = kernels.info()
    assert str(info).startswith(f"{info.backend}: {info.why}")
    assert any(line.startswith(info.backend) for line in info.serves)
    assert all(line.startswith(("native", "eager", "reference")) for line in info.serves)
