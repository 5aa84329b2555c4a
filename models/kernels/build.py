"""Compile all kernels into one object file: `python -m models.kernels.build [FILE]`, by default beside this module.
With `--all-kinds`, into one for each kind of CPU that a machine like this may have, as an image needs them.

In a process of its own, because Numba takes 150 MB that a worker never needs again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from models.kernels import target
from models.kernels.boxing import DECLARATIONS, boxed, called, forms_of, worker_name
from models.kernels.library import HERE, file_name
from models.kernels.schemas import (
    ADD_NORM,
    ATTEND,
    DRAW,
    GATE,
    KERNELS,
    MULTIPLY,
    QUANTIZE,
    ROTATE,
    SCALE,
    Kernel,
    NumberForm,
)

# Numba reads these when it is imported.
os.environ |= {"NUMBA_CPU_NAME": target.kind().name, "NUMBA_CPU_FEATURES": target.kind().features}

from numba import types

from models.kernels import attention, draw, gate, int8, multiply, norm, rotary
from models.kernels.memory import BFLOAT16, FLOAT32, Cells
from models.kernels.worker import Worker

_WORKERS: dict[Kernel, Worker] = {
    ADD_NORM: norm.worker_of,
    ROTATE: rotary.worker_of,
    ATTEND: attention.worker_of,
    GATE: gate.worker_of,
    QUANTIZE: int8.quantizer_of,
    SCALE: int8.scaler_of,
    MULTIPLY: multiply.worker_of,
    DRAW: draw.worker_of,
}
_CELLS = {
    NumberForm.FLOAT32: (FLOAT32, FLOAT32),
    NumberForm.BFLOAT16: (BFLOAT16, BFLOAT16),
    NumberForm.NARROW_CACHE: (FLOAT32, BFLOAT16),
}
_ARGUMENTS = (types.int64,) * 3


def object_code() -> bytes:
    machine = target.machine()
    texts, modules = [DECLARATIONS], []
    for kernel in KERNELS:
        for form in forms_of(kernel):
            native, module = _compiled(kernel, *_CELLS[form])
            modules.append(module)
            texts.append(called(worker_name(kernel, form), native))
        texts.append(boxed(kernel))
    whole = llvm.parse_assembly("\n".join(texts))
    for module in modules:
        whole.link_in(module)
    exported = {kernel.symbol for kernel in KERNELS}
    for function in whole.functions:
        if not function.is_declaration and function.name not in exported:
            function.linkage = "internal"
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(whole, passes)
    code: bytes = machine.emit_object(whole)
    return code


def _compiled(kernel: Kernel, cells: Cells, cache: Cells) -> tuple[str, Any]:
    """The name of the worker among Numba's functions, and their module."""
    worker = _WORKERS[kernel](cells, cache)
    name: str = worker.overloads[_ARGUMENTS].fndesc.llvm_func_name
    return name, llvm.parse_assembly(worker.inspect_llvm(_ARGUMENTS))


def main(file: Path) -> None:
    """Write `file` whole or not at all, and remove those of other versions beside it."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(object_code())
    unfinished.replace(file)
    current = {file.name, *(file_name(kind.name) for kind in target.kinds())}
    for other in file.parent.glob("kernels-*.o"):
        if other.name not in current:
            other.unlink(missing_ok=True)


def build_all_kinds() -> None:
    """Each in a process of its own: Numba compiles for one CPU."""
    for kind in target.kinds():
        command = [sys.executable, "-m", "models.kernels.build"]
        subprocess.run(command, env=os.environ | {target.KIND: kind.name}, check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    if sys.argv[1:] == ["--all-kinds"]:
        build_all_kinds()
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / file_name())
