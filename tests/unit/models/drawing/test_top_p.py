"""What top_k and top_p keep without a sort, as Triton's interpreter computes it, is what the sorted way keeps."""

import os
import subprocess
import sys

# A process of its own, because Triton interprets all or nothing.
CHECK = """
import torch
from models.drawing import top_p as ways
from models.drawing.likeliest import likeliest
from models.drawing.sampler import filter_scores

assert ways.can_do_without_sorting(torch.device('cpu'))
for seed in range(4):
    torch.manual_seed(seed)
    width = 700
    scores = (3 * torch.randn(6, width)).bfloat16().float()  # half precision has equal scores in plenty
    scores[1] = 0.0
    scores[2, 5:] = -torch.inf
    most = torch.tensor([width, width, width, 20, width, 1]).unsqueeze(1)
    top_p = torch.tensor([0.9, 0.5, 0.99, 0.8, 0.0, 1.0]).unsqueeze(1)
    min_p = torch.tensor([0.0, 0.0, 0.1, 0.05, 0.0, 0.0]).unsqueeze(1)
    values, order = likeliest(scores, width)
    theirs = torch.full_like(scores, -torch.inf).scatter(1, order, filter_scores(values, most, top_p, min_p))
    assert torch.equal(ways.filter_all(scores, most, top_p, min_p), theirs), seed

ways.can_do_without_sorting.cache_clear()
ways.kept = lambda scores, *_: torch.ones_like(scores, dtype=torch.bool)
assert not ways.can_do_without_sorting(torch.device('cpu'))
"""

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from models.drawing.lowest_score import BLOCK, _find_lowest

types = {'order': '*i32', 'weights': '*fp64', 'limits': '*fp64', 'lowest': '*i64', 'above': '*fp64', 'width': 'i32'}
source = ASTSource(_find_lowest, types | {'BLOCK': 'constexpr'}, constexprs={'BLOCK': BLOCK})
for capability in (80, 90):
    options = {'enable_fp_fusion': True, 'num_warps': 16}
    assert triton.compile(source, target=GPUTarget('cuda', capability, 32), options=options).asm['cubin']
"""


def run(code: str, **environment: str) -> None:
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_what_is_kept_without_a_sort_is_what_the_sorted_way_keeps() -> None:
    run(CHECK, TRITON_INTERPRET="1")


def test_the_kernel_compiles_for_gpus(tmp_path) -> None:
    run(COMPILE, TRITON_CACHE_DIR=str(tmp_path))
