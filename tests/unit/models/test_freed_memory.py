"""What a start frees goes back to the system, also beneath blocks that stay."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, sys
from contextlib import nullcontext
from models.freed_memory import large_blocks_returned

def resident():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))) >> 10

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.free(library.malloc(30 << 20))  # glibc keeps blocks of up to this size from now on
before = resident()
with large_blocks_returned() if sys.argv[1:] else nullcontext():
    blocks = []
    for _ in range(200):
        blocks += [library.malloc(1 << 20), library.malloc(1 << 10)]
        ctypes.memset(blocks[-2], 1, 1 << 20)
    for block in blocks[::2]:
        library.free(block)
    print(resident() - before)
"""


def kept_mb(*arguments: str) -> int:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_blocks_that_are_freed_between_others_are_given_back() -> None:
    assert kept_mb() > 150, "the C library gives them back anyway"
    assert kept_mb("returned") < 50
