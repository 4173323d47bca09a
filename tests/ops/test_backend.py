"""Which backend there has to be, and what it says of itself."""

import os
import shutil
import subprocess
import sys

import torch
from torch import nn

import mollifier
from mollifier import kernels, ops
from mollifier.ops import _build

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
    level = torch.tensor(0.5)
    empty = torch.ops.mollifier.unit(
        torch.randn(3, 4), None, torch.ones(4), level, level, torch.tensor([1]), [3.0, 1.0, 0.0, 0.0, 0.0], 20.0, False, -1, False, False, False
    )
    assert empty[0].shape == (3, 4)
print(mollifier.kernels.info().backend)
print(mollifier.kernels.info().why)
print(len([w for w in said if "mollifier" in str(w.message)]))
"""


def run(**environment):
    """A real process; its backend, the reason, and how many warnings it gave."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith("MOLLIFIER_")} | environment
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    backend, *why, warnings = done.stdout.splitlines()
    return backend, "\n".join(why), int(warnings)


def test_the_kernels_are_there_where_they_were_compiled():
    off = os.environ.get("MOLLIFIER_KERNELS", "").lower() in ("off", "0", "no", "reference")
    there = "MOLLIFIER_LIBRARY" in os.environ or any(_build.BUILT.glob("*.so"))
    new = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
    assert (ops.info().backend == "native") == (there and new and not off), ops.info().why


def test_off_is_off_and_silent():
    assert run(MOLLIFIER_KERNELS="off") == ("reference", "MOLLIFIER_KERNELS=off", 0)


def test_no_library_means_the_reference_and_one_warning(tmp_path):
    backend, why, warnings = run(MOLLIFIER_LIBRARY=str(tmp_path / "nowhere.so"))
    assert (backend, warnings) == ("reference", 1)
    assert "does not load" in why


def test_a_damaged_library_means_the_reference_and_one_warning(tmp_path):
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a library")
    backend, why, warnings = run(MOLLIFIER_LIBRARY=str(damaged))
    assert (backend, warnings) == ("reference", 1)
    assert "does not load" in why


def test_a_library_of_other_sources_is_not_loaded(tmp_path, monkeypatch):
    compilers = shutil.which("c++") or shutil.which("g++")
    if compilers is None:  # nothing to build one with
        return
    source, library = tmp_path / "other.cpp", tmp_path / "other.so"
    source.write_text(
        'extern "C" const char* mollifier_sources() { return "others"; } extern "C" const char* mollifier_register(const char*) { return 0; }'
    )
    subprocess.run([compilers, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    backend, why, warnings = run(MOLLIFIER_LIBRARY=str(library))
    assert (backend, warnings) == ("reference", 1)
    assert "is not of these sources" in why


def test_what_the_cpu_can_do_chooses_the_build():
    if ops.info().backend == "native" and len(_build.variants()) == 3 and (_build.BUILT / "default.so").exists():
        assert run(ATEN_CPU_CAPABILITY="default")[:2] == ("native", "compiled for default")


def test_what_does_not_sample_does_not_change_from_call_to_call():
    model = mollifier.mollify(nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 2)), level=0.5)
    x = torch.randn(5, 4)
    torch.manual_seed(1)
    first = model.eval()(x)
    assert torch.equal(first, model(x))


def test_info_says_what_serves():
    info = kernels.info()
    assert info == ops.info()
    assert str(info).startswith(f"{info.backend}: {info.why}")
    assert any(line.startswith(info.backend) for line in info.serves)
    assert all(line.startswith(("native", "reference")) for line in info.serves)
