"""Kernels are compiled once for a machine, and a process that loads them needs no Numba."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from models.compute.forward import Forward
from models.compute.fused import lean
from models.compute.kernel_forward import KernelForward
from models.kernels import library, target
from models.kernels.schemas import KERNELS
from tests.one_maker import one_maker
from tests.unit.models import tiny
from tests.unit.models.kernels.test_bits import BITS

ROOT = Path(__file__).parents[4]
COMPILE = """
import logging, sys
from pathlib import Path
from models.kernels import library

logging.basicConfig(level="INFO", stream=sys.stdout)
name = library.file_name()
library.file_name, library.HERE = lambda *_: name, Path(sys.argv[1])
library.object_code()
"""
COMPUTE = """
from models.kernels import library
from tests.unit.models.kernels.test_bits import bits

assert library.load() is None
print(bits())
"""


@dataclass(frozen=True)
class Compiled:
    """Kernels for a CPU of `kind` in `file`, as the first start of a worker leaves them in its `cache`."""

    kind: str
    cache: Path
    file: Path
    log: str

    @property
    def environment(self):
        return {"XDG_CACHE_HOME": str(self.cache), target.KIND: self.kind}


@pytest.fixture(scope="module")
def compiled(kernels, tmp_path_factory):
    """For the least kind of CPU, since compiling takes twenty seconds, and all kinds must have the same bits. What the
    same code once left stays for the next run.
    """
    del kernels
    kind, empty = target.kinds()[-1].name, tmp_path_factory.mktemp("empty")
    cache = ROOT / "build" / "kernels" / library.version(kind)
    log = cache / "log"
    with one_maker(cache.parent):
        if not log.is_file():
            shutil.rmtree(cache.parent, ignore_errors=True)
            environment = os.environ | {"XDG_CACHE_HOME": str(cache), target.KIND: kind}
            command = [sys.executable, "-W", "ignore", "-c", COMPILE, str(empty)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert not done.returncode, done.stderr
            log.write_text(done.stdout)
    (file,) = (cache / "parley").iterdir()
    return Compiled(kind, cache, file, log.read_text())


def test_a_process_that_loads_them_does_not_import_numba(kernels):
    del kernels
    code = "import sys; from models.kernels import library; print(library.load(), 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "False"]


def test_they_are_compiled_and_kept_where_none_are(compiled, tmp_path, monkeypatch):
    assert "compiled the kernels for this CPU once" in compiled.log
    for name, value in compiled.environment.items():
        monkeypatch.setenv(name, value)
    assert compiled.file.name == library.file_name()
    monkeypatch.setattr(library, "file_name", lambda *_: compiled.file.name)
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setattr(library.subprocess, "run", None)  # it is not called again
    code = library.object_code()
    assert code == compiled.file.read_bytes()
    for kernel in KERNELS:
        assert kernel.symbol.encode() in code


def test_compiled_for_the_least_cpu_they_have_the_same_bits(compiled):
    """As a worker of the same fleet on an older machine has them."""
    command = [sys.executable, "-W", "ignore", "-c", COMPUTE]
    done = subprocess.run(command, env=os.environ | compiled.environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [BITS], done.stderr


def test_where_they_cannot_be_kept_they_are_compiled_at_each_start(tmp_path, monkeypatch, caplog):
    (tmp_path / "parley").write_text("a file where the folder should be")
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def compiled(command, **_how):
        Path(command[-1]).write_bytes(b"code")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(library.subprocess, "run", compiled)
    with caplog.at_level("INFO"):
        assert library.object_code() == b"code"
    assert "compiled anew at each start" in caplog.text


def test_a_compiler_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\nModuleNotFoundError: No module named 'numba'\n")
    monkeypatch.setattr(library.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match=r"^ModuleNotFoundError: No module named 'numba'$"):
        library.object_code()


def raise_that_numba_is_missing():
    raise RuntimeError("No module named 'numba'")


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("target.why_not", lambda: "this CPU lacks avx2"),
        ("library.object_code", raise_that_numba_is_missing),
    ],
)
def test_without_them_a_step_is_a_script_of_torch(monkeypatch, caplog, place, what):
    name, function = place.split(".")
    monkeypatch.setattr({"target": target, "library": library}[name], function, what)
    monkeypatch.setattr(library, "_load", library._load.__wrapped__)
    with caplog.at_level("INFO"):
        found = lean(tiny.model("llama"))
    assert not found.by_kernels
    assert found.forward.original_name == Forward.__name__
    assert "computed by torch's operations" in caplog.text


def test_with_them_it_is_a_script_of_kernels(kernels):
    del kernels
    assert lean(tiny.model("llama")).forward.original_name == KernelForward.__name__


def test_an_old_cpu_is_told_what_it_lacks(monkeypatch):
    monkeypatch.setattr(target, "_flags", lambda: {"avx", "fma"})
    monkeypatch.setattr(target.platform, "machine", lambda: "x86_64")
    assert target.why_not() == "this CPU lacks avx2, bmi2, f16c"
    monkeypatch.setattr(target, "_flags", lambda: {"avx2", "fma", "bmi2", "f16c", "avx512f"})
    assert target.why_not() is None
    assert target.kind().name == "x86-64-v3"
    monkeypatch.setattr(target.platform, "machine", lambda: "riscv64")
    assert "riscv64" in target.why_not()
