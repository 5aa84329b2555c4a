"""What anybody may know about the shop."""

from __future__ import annotations

from tests.demo_model.customer import Customer, Turn
from tests.demo_model.wording import wording

_TEXTS = wording("shop")


def question(customer: Customer) -> list[Turn]:
    known = customer.rng.choice(_TEXTS["faq"])
    return [customer.turn(customer.says(known["asked"]), known["answer"])]


def stock(customer: Customer) -> list[Turn]:
    item = customer.picks_item()
    asked = customer.says(_TEXTS["stock"], item=item)
    return [customer.turn(asked, f"I cannot see our stock and prices. Please search for {item} in our shop.", item)]


def overview(customer: Customer) -> list[Turn]:
    if customer.chance(0.3):
        return [customer.turn(customer.says(_TEXTS["steps"]), _TEXTS["return_steps"])]
    return [customer.turn(customer.says(_TEXTS["everything"]), _TEXTS["overview"])]
