"""The GPU's attention kernel, computed by Triton's interpreter on the CPU: the numbers are checked without a GPU."""

import importlib.util
import os
import subprocess
import sys

# A process of its own, because Triton interprets all or nothing, and the kernel's file alone: what else its package
# brings takes many times longer to read in than all that is checked here.
CHECK = """
import runpy, sys, torch
paged_decode = runpy.run_path(sys.argv[1])['paged_decode']

def check(heads, kv, size, window, cap):
    torch.manual_seed(0)
    lengths = torch.tensor([1, 16, 17, 130])
    rows, page, pages = len(lengths), 16, 60
    table = torch.randperm(pages - 1)[: rows * 9].view(rows, 9) + 1
    keys, values = torch.randn(2, pages, page, kv, size)
    keys[0], values[0] = torch.nan, torch.nan  # nobody's page must not be read
    query = torch.randn(rows, heads, size)
    how = {'scale': 0.3, 'window': window or None, 'cap': cap or None}
    found = paged_decode(query, keys, values, table, lengths, splits=2, **how)
    for row, length in enumerate(lengths.tolist()):
        begin = max(0, length - window) if window else 0
        k = keys[table[row]].reshape(-1, kv, size)[begin:length].repeat_interleave(heads // kv, dim=1)
        v = values[table[row]].reshape(-1, kv, size)[begin:length].repeat_interleave(heads // kv, dim=1)
        scores = torch.einsum("hd,nhd->hn", query[row], k) * 0.3
        scores = (scores / cap).tanh() * cap if cap else scores
        torch.testing.assert_close(found[row], torch.einsum("hn,nhd->hd", scores.softmax(-1), v), atol=1e-4, rtol=1e-4)


for shape in [(4, 4, 16, 0, 0), (6, 2, 24, 0, 0), (4, 2, 32, 20, 0), (4, 2, 16, 0, 5)]:
    check(*shape)
"""


def test_single_tokens_attend_their_own_pages_and_nothing_else():
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    file = importlib.util.find_spec("models.engine.paged_decode").origin
    arguments = [sys.executable, "-W", "error", "-c", CHECK, file]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
