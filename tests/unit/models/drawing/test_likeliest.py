import pytest
import torch

from models.drawing.likeliest import likeliest


@pytest.mark.parametrize("width", [1, 512, 2_048, 50_257, 151_936])
@pytest.mark.parametrize("levels", [1, 3, 1_000])
def test_of_equal_scores_the_lower_token_comes_first(width, levels):
    scores = torch.randint(levels, (3, width), generator=torch.Generator().manual_seed(width)).float()
    scores[1, ::3] = -torch.inf
    values, order = scores.sort(dim=-1, descending=True, stable=True)
    for count in {1, min(20, width), min(300, width), width}:
        found = likeliest(scores, count)
        assert torch.equal(found[1], order[:, :count])
        assert torch.equal(found[0], values[:, :count])


def test_the_likeliest_are_in_the_order_of_a_stable_sort():
    scores = torch.tensor([[0.0, -0.0, 2.5, -3.0, 2.5, -torch.inf, 0.0, 1e-42]])
    _, order = scores.sort(dim=-1, descending=True, stable=True)
    for count in range(1, 9):
        assert likeliest(scores, count)[1].tolist() == [order[0, :count].tolist()]
