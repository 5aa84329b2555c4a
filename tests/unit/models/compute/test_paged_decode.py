"""The GPU's attention kernel without a GPU: Triton's interpreter computes its numbers, its compiler the GPU's code."""

import importlib.util
import os
import subprocess
import sys

# A process of its own, because Triton interprets all or nothing, and the kernel's file alone: what else its package
# brings takes many times longer to read in than all that is checked here.
CHECK = """
import runpy, sys, torch
paged_decode = runpy.run_path(sys.argv[1])['paged_decode']

def check(heads, kv, size, window, cap, *lengths):
    torch.manual_seed(0)
    lengths = torch.tensor(lengths or [1, 16, 17, 130])
    rows, page = len(lengths), 16
    width = int(lengths.max()) // page + 1
    pages = rows * width + 4
    table = torch.randperm(pages - 1)[: rows * width].view(rows, width) + 1
    keys, values = torch.randn(2, pages, page, kv, size)
    keys[0], values[0] = torch.nan, torch.nan  # the free page must not be read
    query = torch.randn(rows, heads, size)
    how = {'scale': 0.3, 'window': window or None, 'cap': cap or None}
    found = paged_decode(query, keys, values, table, lengths - 1, splits=2, **how)
    for row, length in enumerate(lengths.tolist()):
        begin = max(0, length - window) if window else 0
        k = keys[table[row]].reshape(-1, kv, size)[begin:length].repeat_interleave(heads // kv, dim=1)
        v = values[table[row]].reshape(-1, kv, size)[begin:length].repeat_interleave(heads // kv, dim=1)
        scores = torch.einsum("hd,nhd->hn", query[row], k) * 0.3
        scores = (scores / cap).tanh() * cap if cap else scores
        torch.testing.assert_close(found[row], torch.einsum("hn,nhd->hd", scores.softmax(-1), v), atol=1e-4, rtol=1e-4)


for shape in [(4, 4, 16, 0, 0), (6, 2, 24, 0, 0), (4, 2, 32, 20, 0), (4, 2, 16, 0, 5)]:
    check(*shape)
check(4, 2, 16, 5, 0, 4097, 1000, 64)
check(4, 2, 16, 200, 30, 4097, 201, 7)
"""


COMPILE = """
import runpy, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

room = runpy.run_path(sys.argv[1])
kernel, block, widest = room['_attend_stretch'], room['BLOCK'], room['WIDEST']
TYPES = {'table': '*i64', 'positions': '*i64', 'out': '*fp32', 'weights': '*fp32', 'scale': 'fp32', 'cap': 'fp32'}
ALIGNED = ('query', 'keys', 'values', 'out', 'weights')

for dtype, width, size, capability in [('bf16', 2, 64, 90), ('bf16', 2, 128, 80), ('fp32', 4, 256, 90)]:
    shape = {'SHARED': 4, 'SIZE': size, 'PAGE': 16, 'HEADS': 8, 'SPLITS': 16, 'BLOCK_HEADS': 16, 'BLOCK_SIZE': size}
    shape['BLOCK'] = block if size * width <= widest else block // 2
    types = {name: TYPES.get(name, 'i32') for name in kernel.arg_names} | dict.fromkeys(shape, 'constexpr')
    types |= dict.fromkeys(('query', 'keys', 'values'), '*' + dtype)
    aligned = {(kernel.arg_names.index(name),): [['tt.divisibility', 16]] for name in ALIGNED}
    source = ASTSource(kernel, types, constexprs=shape, attrs=aligned)
    made = triton.compile(source, target=GPUTarget('cuda', capability, 32), options={'enable_fp_fusion': True})
    assert made.asm['cubin']
    join = room['_join_stretches']
    shape = {'SIZE': size, 'SPLITS': 16, 'BLOCK_SIZE': size}
    types = {'out': '*fp32', 'weights': '*fp32', 'joined': '*' + dtype} | dict.fromkeys(shape, 'constexpr')
    joined = triton.compile(
        ASTSource(join, types, constexprs=shape),
        target=GPUTarget('cuda', capability, 32), options={'enable_fp_fusion': True},
    )
    assert joined.asm['cubin']
    assert made.metadata.shared <= 99 << 10, (dtype, size, made.metadata.shared)  # of the smallest since Ampere
"""


def run(code, **environment):
    file = importlib.util.find_spec("models.compute.paged_decode").origin
    arguments = [sys.executable, "-W", "error", "-c", code, file]
    ended = subprocess.run(
        arguments, env=os.environ | environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_single_tokens_attend_their_own_pages_and_nothing_else():
    run(CHECK, TRITON_INTERPRET="1")


def test_kernel_compiles_for_gpus_and_fits_into_their_shared_memory(tmp_path):
    run(COMPILE, TRITON_CACHE_DIR=str(tmp_path))
