"""Where an order is, and what can be done about it."""

from __future__ import annotations

from tests.demo_model.customer import Customer, Skill, Turn
from tests.demo_model.wording import wording

_TEXTS = wording("orders")

_ON_ITS_WAY = "Your order {order} is on its way and should arrive in 2 to 3 days."
_CANCELLED = "I have cancelled order {order}. You will get your money back in 5 to 7 days."
_ASK = "I am happy to check that. Could you please give me your order number?"
_ASK_TO_CANCEL = "I can cancel it for you. Could you please give me your order number?"


def status(customer: Customer) -> list[Turn]:
    order = customer.tells_order()
    asked = customer.says(_TEXTS["status"], order=order, item=customer.picks_item())
    if customer.has_tool:
        return [customer.looks_up(asked, order)]
    return [customer.turn(asked, customer.by_name(_ON_ITS_WAY.format(order=order)), order, skill=Skill.ECHO)]


def status_without_number(customer: Customer) -> list[Turn]:
    known = customer.facts.get("order number")
    asked = customer.says(_TEXTS["status_of_it" if known and customer.chance(0.4) else "status_without_number"])
    if known and not customer.cancelled and customer.has_tool:
        return [customer.looks_up(asked, known)]
    if known and not customer.cancelled:
        answer = customer.by_name(_ON_ITS_WAY.format(order=known))
        return [customer.turn(asked, answer, known, skill=Skill.NUMBER)]
    if known:
        return []
    order = customer.tells_order()
    given = customer.says(_TEXTS["given"], order=order)
    if customer.has_tool:
        return [customer.turn(asked, _ASK), customer.looks_up(given, order)]
    answer = customer.by_name(_ON_ITS_WAY.format(order=order))
    return [customer.turn(asked, _ASK), customer.turn(given, answer, order, skill=Skill.ECHO)]


def cancel(customer: Customer) -> list[Turn]:
    order = customer.tells_order()
    asked = customer.says(_TEXTS["cancel"], order=order)
    return [_cancels(customer, asked, order, Skill.ECHO)]


def cancel_that(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["cancel_that"])
    known = customer.facts.get("order number")
    if known and customer.cancelled:
        return []
    if known:
        return [_cancels(customer, asked, known, Skill.NUMBER)]
    order = customer.tells_order()
    given = customer.says(_TEXTS["given"], order=order)
    return [customer.turn(asked, _ASK_TO_CANCEL), _cancels(customer, given, order, Skill.ECHO)]


def wrong_item(customer: Customer) -> list[Turn]:
    order, item = customer.tells_order(), customer.picks_item()
    asked = customer.says(_TEXTS["wrong_item"], order=order, item=item)
    answer = f"I am sorry about that. I will send you the right {item} for order {order} today."
    return [customer.turn(asked, answer, item, order, skill=Skill.ECHO)]


def _cancels(customer: Customer, asked: str, order: str, skill: Skill) -> Turn:
    customer.cancelled = True
    return customer.turn(asked, customer.by_name(_CANCELLED.format(order=order)), order, skill=skill)
