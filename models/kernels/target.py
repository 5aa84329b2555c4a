"""For which kind of CPU kernels are compiled. All kinds compute the same bits, as their order is written down."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

_AVX2 = frozenset({"avx2", "fma", "bmi2", "f16c"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@dataclass(frozen=True, slots=True)
class Cpu:
    """A kind of CPU, as LLVM names it. `holds_many`: 32 vectors of 16 numbers instead of 16 vectors of 8 at most."""

    name: str
    needed: frozenset[str] = frozenset()
    features: str = ""
    holds_many: bool = False


KIND = "PARLEY_KERNELS_KIND"
"""Of a process that compiles for another CPU than its own (build.py)."""
KINDS = {
    "x86_64": (Cpu("x86-64-v4", _AVX512, "-prefer-256-bit", holds_many=True), Cpu("x86-64-v3", _AVX2)),
    "aarch64": (Cpu("generic"),),
}
"""The best one first."""


def why_not() -> str | None:
    """Why no kernel can be compiled for this machine, or None."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in KINDS:
        return f"there are none for {sys.platform} on {machine}"
    if missing := KINDS[machine][-1].needed - _flags():
        return f"this CPU lacks {', '.join(sorted(missing))}"
    return None


def kinds() -> tuple[Cpu, ...]:
    """Those of this machine's architecture."""
    return KINDS[platform.machine()]


def kind() -> Cpu:
    """The best of which this CPU is, or the one that `KIND` names."""
    flags, named = _flags(), os.environ.get(KIND)
    return next(one for one in kinds() if (one.name == named if named else one.needed <= flags))


def machine() -> Any:
    """LLVM's description of it, by which code is generated and linked."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target, cpu = llvm.Target.from_default_triple(), kind()
    return target.create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )


def _flags() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
