import pytest
import torch

from models.drawing.logprobs import logprobs_of

WIDTHS = [1, 5, 511, 512, 513, 50_257, 151_936]


def scores(rows, width, dtype=torch.float32):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(width)).to(dtype)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_log_probabilities_are_those_of_torch(width, dtype):
    logits = scores(3, width, dtype)
    rows, tokens, most = [2, 0], [width - 1, width // 2], min(20, width)
    found = logprobs_of(logits, rows, tokens, 20, ranked=True)
    for at, row in enumerate(rows):
        expected = logits[row].float().log_softmax(dim=-1)
        order = logits[row].float().sort(descending=True, stable=True).indices
        assert torch.equal(found.own[at], expected[tokens[at]])
        assert found.best_tokens[at].tolist() == order[:most].tolist()
        assert torch.equal(found.best[at], expected[order[:most]])
        assert found.ranks[at] == 1 + (logits[row] > logits[row, tokens[at]]).sum()


def test_a_row_has_the_same_log_probabilities_alone_and_among_others():
    logits = scores(33, 50_257, torch.bfloat16)
    together = logprobs_of(logits, range(33), [7] * 33, 20)
    for row in range(33):
        alone = logprobs_of(logits, [row], [7], 5)
        assert torch.equal(alone.own, together.own[row : row + 1])
        assert alone.pairs() == [together.pairs()[row][:5]]


def test_without_rivals_there_are_none():
    found = logprobs_of(scores(2, 9), [0, 1], [3, 4], 0)
    assert found.pairs() == [(), ()]
    assert not found.ranks.numel()


def test_hostile_rows_hurt_no_other():
    """Rows that are no numbers, out of order and twice, of logits that are not contiguous."""
    logits = scores(20, 50_257).repeat_interleave(2, dim=1)[:, ::2]
    logits[1], logits[2, 5:], logits[3, 7] = torch.nan, -torch.inf, -0.0
    assert not logits.is_contiguous()
    rows = [19, 1, 0, 2, 2, *range(3, 19), 0]
    found = logprobs_of(logits, rows, [4] * len(rows), 7, ranked=True)
    for at, row in enumerate(rows):
        if row == 1:
            assert found.own[at].isnan()
            continue
        expected = logits[row].log_softmax(dim=-1)
        order = logits[row].sort(descending=True, stable=True).indices[:7]
        assert torch.equal(found.own[at], expected[4])
        assert found.best_tokens[at].tolist() == order.tolist()
        assert found.ranks[at] == 1 + (logits[row] > logits[row, 4]).sum()
