"""What a start frees goes back to the system, also from between blocks that stay; what a step frees is kept."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes
from models.machine.freed_memory import large_blocks_returned

library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def resident():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))) >> 10

def kept():
    before, blocks = resident(), []
    for _ in range(200):
        blocks += [library.malloc(1 << 20), library.malloc(1 << 10)]
        ctypes.memset(blocks[-2], 1, 1 << 20)
    for block in blocks[::2]:
        library.free(block)
    return resident() - before

with large_blocks_returned():
    library.free(library.malloc(30 << 20))
    print(kept())
print(kept())
"""


def test_blocks_that_a_start_frees_between_others_are_given_back_and_those_of_steps_are_kept() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    of_a_start, of_steps = map(int, done.stdout.split())
    assert of_a_start < 50
    assert of_steps > 150
