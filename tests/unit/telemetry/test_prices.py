from __future__ import annotations

import pytest

from app.policy.file import Policy, PriceRule
from app.prices import FREE, PriceList, Prices
from app.settings import Settings
from models.interface.generation import Usage


def test_a_price_is_found_by_version_then_by_name_then_by_the_star() -> None:
    prices = Prices.parse("demo@1=1/2, demo=3/4, *=5/6")
    assert prices.find("demo@1").prompt == 1
    assert prices.find("demo@2").prompt == 3
    assert prices.find("other@1").prompt == 5
    assert Prices.parse("demo=1/2").find("other@1") is FREE


def test_cached_tokens_have_their_own_price_where_one_is_given() -> None:
    usage = Usage(prompt_tokens=3000, completion_tokens=500, cached_tokens=1000)
    assert Prices.parse("m=2/4").find("m").of(usage) == pytest.approx(3 * 2 + 0.5 * 4)
    assert Prices.parse("m=2/4/0.5").find("m").of(usage) == pytest.approx(2 * 2 + 1 * 0.5 + 0.5 * 4)


@pytest.mark.parametrize("text", ["demo", "demo=1", "=1/2", "demo=a/b", "demo=1/2/3/4", "demo=-1/2", "demo=nan/1"])
def test_what_is_no_price_stops_the_start_with_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="is not a price; write MODEL=PROMPT/ANSWER"):
        Settings(_env_file=None, prices=text)


def test_the_policys_prices_stand_above_the_settings_and_follow_its_changes() -> None:
    settings = Settings(_env_file=None, prices="small=1/1,large=5/5")
    usage = Usage(1000, 1000, 500)
    prices = PriceList(settings.prices, Policy(prices={"small": PriceRule(prompt=2, answer=4, cached=1)}))
    assert prices.cost("small@1", usage, is_cached=False) == 1 + 0.5 + 4
    assert prices.cost("small@1", usage, is_cached=True) == 0
    assert prices.cost("large@1", usage, is_cached=False) == 10
    assert prices.saved("small@1", usage, default="large@1", is_cached=False) == 4.5
    assert prices.saved("small@1", usage, default="large@1", is_cached=True) == 5.5
    assert prices.saved("large@1", usage, default="small@1", is_cached=False) == 0
    prices.use(Policy())
    assert prices.cost("small@1", usage, is_cached=False) == 2
