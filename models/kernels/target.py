"""For which CPU kernels are compiled: one kind for all that are alike, so that all of them compute the same bits."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

CPUS = {"x86_64": "x86-64-v3", "aarch64": "generic"}
_NEEDED = {"x86_64": {"avx2", "fma", "bmi2", "f16c"}, "aarch64": set[str]()}


def why_not() -> str | None:
    """Why no kernel can be compiled for this machine, or None."""
    kind = platform.machine()
    if not sys.platform.startswith("linux") or kind not in CPUS:
        return f"there are none for {sys.platform} on {kind}"
    if missing := _NEEDED[kind] - _flags():
        return f"this CPU lacks {', '.join(sorted(missing))}"
    return None


def cpu() -> str:
    return CPUS[platform.machine()]


def machine() -> Any:
    """LLVM's description of it, by which code is generated and linked."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu(), features="", opt=3, reloc="pic", codemodel="jitdefault", jit=True)


def _flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
