"""Kernels are compiled once for a machine, and a process that loads them needs no Numba."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.engine.compute.forward import Forward
from models.engine.compute.fused import lean
from models.engine.compute.kernel_forward import KernelForward
from models.kernels import library, target
from models.kernels.schemas import KERNELS
from tests.unit.models import tiny

BITS = "478597be5c6186e765e46438db4a9488db9a7e353cb99da50b9dae2da6771594"
"""Of what kernels make of `given`, on every CPU and with every LLVM. Other bits are other arithmetic: who changes them
changes `KERNELS` in models/arithmetic.py.
"""


def given(*shape, least=-2.0, most=2.0):
    """Numbers that every machine makes alike."""
    count = torch.Size(shape).numel()
    steps = torch.arange(count, dtype=torch.int64) * 7919 % 1009
    return (steps.to(torch.float32) / 1009 * (most - least) + least).view(shape)


def test_its_bits_are_the_same_on_every_cpu(kernels):
    found = hashlib.sha256()
    for dtype in (torch.float32, torch.bfloat16):
        half, tokens, size = int(dtype is torch.bfloat16), 21, 40
        hidden, added, normed = (
            given(tokens, size),
            given(tokens, size).to(dtype),
            torch.empty(tokens, size, dtype=dtype),
        )
        kernels.add_norm(hidden, added, given(size), given(size), normed, tokens, 1, half, size, 2, 1e-6)
        joined, numbers = (
            given(tokens, 6, size).to(dtype),
            torch.tensor([*[0] * tokens, *range(tokens), *range(tokens)]),
        )
        keys, values = (torch.zeros(2, 16, 1, size, dtype=dtype) for _ in range(2))
        angles = given(tokens, size)
        kernels.rotate(
            joined,
            given(size),
            given(size),
            angles,
            angles,
            numbers,
            keys,
            values,
            tokens,
            1,
            half,
            4,
            1,
            size,
            1,
            1e-6,
        )
        groups, out = torch.tensor([[0, 1, tokens, tokens, 0, 0, 0]]), torch.empty(tokens, 4, size, dtype=dtype)
        kernels.attend(
            joined, keys, values, numbers, groups, out, tokens, 1, half, tokens, 4, 1, size, 9, 16, tokens, 1, 0.2, 5.0
        )
        gated = torch.empty(2, tokens, size // 2, dtype=dtype)
        for is_gelu in (0, 1):
            kernels.gate(added, gated[is_gelu], tokens, 1, half, size // 2, is_gelu)
        for one in (hidden, normed, joined, keys, values, out, gated):
            found.update(one.view(torch.uint8).numpy().tobytes())
    assert found.hexdigest() == BITS


def test_a_process_that_loads_them_does_not_import_numba(kernels):
    del kernels
    code = "import sys; from models.kernels import library; print(library.load(), 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "False"]


def test_they_are_compiled_and_kept_where_none_are(kernels, tmp_path, monkeypatch, caplog):
    del kernels
    monkeypatch.setattr(library, "HERE", tmp_path)
    monkeypatch.setattr(library, "file_name", lambda: "kernels-of-this-test.o")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with caplog.at_level("INFO"):
        code = library.object_code()
    assert "compiled the kernels for this CPU once" in caplog.text
    assert [path.name for path in (tmp_path / "cache/parley").iterdir()] == ["kernels-of-this-test.o"]
    monkeypatch.setattr(library.subprocess, "run", None)  # it is not called again
    assert library.object_code() == code
    for kernel in KERNELS:
        assert kernel.symbol.encode() in code


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
    monkeypatch.setattr(target.platform, "machine", lambda: "riscv64")
    assert "riscv64" in target.why_not()
