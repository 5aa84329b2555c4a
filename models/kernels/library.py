"""The kernels as operations `torch.ops.parley`: compiled once for a machine, loaded without Numba.

A start finds the object file beside this module, where an installation may have put it (`python -m
models.kernels.build`), or in the user's cache; else it compiles one, which takes 20 seconds. It is named after what
it was made from: these sources, LLVM and the kind of CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

from models.machine.measurements import cache_folder

log = logging.getLogger(__name__)

HERE = Path(__file__).parent
_ROOT = HERE.parents[1]
_SPACE = b"parley"
_alone = threading.Lock()
_held: list[Any] = []
"""Code that torch calls as long as the process lives."""


def load() -> str | None:
    """Register the kernels, once; returns why there are none, or None."""
    with _alone:
        return _load()


@cache
def _load() -> str | None:
    try:
        from models.kernels import target

        reason = target.why_not()
        if reason is None:
            _register(object_code(), target.machine())
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        reason = str(error) or type(error).__name__
    if reason is not None:
        log.info("steps are computed by torch's operations, since there are no kernels: %s", reason)
    return reason


@cache
def version(kind: str) -> str:
    """Eight digits that differ where the code of kernels may differ."""
    import llvmlite

    made_from = hashlib.sha256(f"{llvmlite.__version__} {kind}".encode())
    for source in sorted(HERE.glob("*.py")):
        made_from.update(source.read_bytes())
    return made_from.hexdigest()[:8]


def file_name(kind: str = "") -> str:
    """That of the kind of CPU of this name; by default, of this one."""
    from models.kernels import target

    return f"kernels-{version(kind or target.kind().name)}.o"


def object_code() -> bytes:
    """Raises what a compiler that does not run raises."""
    for folder in (HERE, cache_folder()):
        if (folder / file_name()).exists():
            return (folder / file_name()).read_bytes()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as private:
        made = Path(private) / file_name()
        command = [sys.executable, "-P", "-m", "models.kernels.build", str(made)]
        done = subprocess.run(  # noqa: S603 - our own command line
            command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(_ROOT)}
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["the compiler died"])[-1])
        code = made.read_bytes()
    log.info("compiled the kernels for this CPU once, in %.1f s", time.perf_counter() - began)
    _keep(code)
    return code


def _keep(code: bytes) -> None:
    """For the next start; whole or not at all."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache_folder(), delete=False) as unfinished:
            unfinished.write(code)
        Path(unfinished.name).replace(cache_folder() / file_name())
    except OSError as error:
        log.info("the kernels are compiled anew at each start, since they cannot be kept: %s", error)


def _register(code: bytes, machine: Any) -> None:
    import llvmlite.binding as llvm

    from models.kernels.schemas import KERNELS

    torch_library = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
    llvm.load_library_permanently(torch_library)
    linker = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    linker.add_object_file(llvm.ObjectFileRef.from_data(code))
    linker.finalize_object()
    _held.append(linker)
    abi = ctypes.CDLL(torch_library)
    defined, implemented = ctypes.c_void_p(), ctypes.c_void_p()
    _call(abi.aoti_torch_library_init_def, _SPACE, b"kernels", 0, ctypes.byref(defined))
    _call(abi.aoti_torch_library_init_impl, _SPACE, b"CPU", b"kernels", 0, ctypes.byref(implemented))
    for kernel in KERNELS:
        _call(abi.aoti_torch_library_def, defined, kernel.schema.encode())
        address = ctypes.c_void_p(linker.get_function_address(kernel.symbol))
        _call(abi.aoti_torch_library_impl, implemented, kernel.name.encode(), address)


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments):
        raise RuntimeError(f"torch refused {function.__name__}")
