from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

from models import prepacked
from models.prepacked import AT_MOST, CLEARLY, pays, prepack, product

WEIGHT = torch.randn(48, 32, generator=torch.Generator().manual_seed(1)).bfloat16()
BIAS = torch.randn(48, generator=torch.Generator().manual_seed(2)).bfloat16()


def prepacked_or_skip() -> list[torch.Tensor]:
    try:
        packed = prepack(WEIGHT)
        product(torch.ones(2, 32).bfloat16(), WEIGHT, None, packed)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"this CPU or torch has no prepacked products: {error}")
    return packed


@pytest.mark.parametrize("bias", [None, BIAS], ids=["without bias", "with bias"])
@pytest.mark.parametrize("rows", [1, 2, 8, 33, 300])
def test_product_is_that_of_the_plain_weight(rows: int, bias: torch.Tensor | None) -> None:
    given = torch.randn(rows, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = product(given, WEIGHT, bias, prepacked_or_skip())
    torch.testing.assert_close(found, linear(given, WEIGHT, bias), rtol=0.02, atol=0.05)


@pytest.mark.parametrize(("slower", "expected"), [(CLEARLY + 0.01, True), (CLEARLY - 0.01, False)])
def test_weights_are_prepacked_where_that_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, slower: float, expected: bool
) -> None:
    times = iter([slower, 1.0])
    monkeypatch.setattr(prepacked, "prepack", lambda weight: [weight])
    monkeypatch.setattr(prepacked, "seconds", lambda work: next(times))
    assert pays(WEIGHT, WEIGHT.nbytes) is expected


@pytest.mark.parametrize(("weight", "size"), [(WEIGHT.float(), 1), (WEIGHT, AT_MOST + 1)], ids=["float32", "large"])
def test_other_weights_are_not_measured(monkeypatch: pytest.MonkeyPatch, weight: torch.Tensor, size: int) -> None:
    monkeypatch.setattr(prepacked, "seconds", lambda work: pytest.fail("it was measured"))
    assert not pays(weight, size)


def test_cpu_without_such_products_keeps_plain_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_weight: torch.Tensor) -> list[torch.Tensor]:
        raise RuntimeError("not supported")

    monkeypatch.setattr(prepacked, "prepack", missing)
    assert not pays(WEIGHT, WEIGHT.nbytes)
