"""What is broken, unwanted or to be paid back."""

from __future__ import annotations

from tests.demo_model.customer import Customer, Turn
from tests.demo_model.wording import wording

_TEXTS = wording("returns")


def send_back(customer: Customer) -> list[Turn]:
    item = customer.picks_item()
    asked = customer.says(_TEXTS["send_back"], item=item)
    answer = f"You can return the {item} within 30 days. I will send you a return label by email."
    return [customer.turn(asked, customer.by_name(answer), item)]


def broken(customer: Customer) -> list[Turn]:
    item = customer.picks_item()
    asked = customer.says(_TEXTS["broken"], item=item)
    choice = f"I am sorry that your {item} does not work. Would you like a replacement or a refund?"
    if customer.chance(0.5):
        wanted = customer.says(_TEXTS["replacement"])
        done = f"I have ordered a new {item} for you. It will arrive in 3 to 5 days."
    else:
        wanted = customer.says(_TEXTS["refund"])
        done = f"I have started the refund for your {item}. It takes 5 to 7 days."
    return [customer.turn(asked, choice, item), customer.turn(wanted, done, item)]


def refund(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["where_refund"])
    return [customer.turn(asked, "A refund takes 5 to 7 days after your parcel has come back to us.")]
