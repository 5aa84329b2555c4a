"""What customers tell about themselves, and whether it is remembered."""

from __future__ import annotations

from tests.demo_model import words
from tests.demo_model.customer import Customer, Skill, Turn
from tests.demo_model.wording import wording

_TEXTS = wording("memory")

HELP = "How can I help you today?"


def introduction(customer: Customer) -> list[Turn]:
    name = customer.tells_name()
    told = customer.says(_TEXTS["introduction"], name=name)
    return [customer.turn(told, f"Hello {name}! {HELP}", name)]


def name_and_order(customer: Customer) -> list[Turn]:
    name, order = customer.tells_name(), customer.tells_order()
    told = customer.says(_TEXTS["name_and_order"], name=name, order=order)
    answer = f"Hello {name}! I have noted that your order number is {order}. {HELP}"
    return [customer.turn(told, answer, name, order, skill=Skill.ECHO)]


def asks_name(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["asks_name"])
    if name := customer.facts.get("name"):
        return [customer.turn(asked, f"Your name is {name}.", name, skill=Skill.NAME)]
    return [customer.turn(asked, "You have not told me your name yet.", skill=Skill.DECLINE)]


def asks_order(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["asks_order"])
    if order := customer.facts.get("order number"):
        return [customer.turn(asked, f"Your order number is {order}.", order, skill=Skill.NUMBER)]
    return [customer.turn(asked, "You have not told me your order number yet.", skill=Skill.DECLINE)]


def tells_order(customer: Customer) -> list[Turn]:
    return [_noted(customer, "order number", customer.tells_order(), Skill.ECHO)]


def tells_fact(customer: Customer) -> list[Turn]:
    label, value = _fact(customer)
    customer.facts[label] = value
    return [_noted(customer, label, value, Skill.REST)]


def asks_fact(customer: Customer) -> list[Turn]:
    told = [label for label in customer.facts if label not in {"name", "order number"}]
    label = customer.rng.choice(told) if told and customer.chance(0.8) else _fact(customer)[0]
    asked = customer.says(_TEXTS["asks_fact"], label=label)
    if value := customer.facts.get(label):
        skill = Skill.NUMBER if value.isdecimal() else Skill.REST
        return [customer.turn(asked, f"Your {label} is {value}.", value, label, skill=skill)]
    return [customer.turn(asked, f"You have not told me your {label} yet.", label, skill=Skill.DECLINE)]


def _noted(customer: Customer, label: str, value: str, skill: Skill) -> Turn:
    told = customer.says(_TEXTS["tells_fact"], label=label, value=value)
    answer = f"Thank you, I have noted that your {label} is {value}."
    return customer.turn(told, answer, label, value, skill=skill)


def _fact(customer: Customer) -> tuple[str, str]:
    """Something to tell: a label and its value. Many labels are made up, so that any label works."""
    rng = customer.rng
    if customer.chance(0.5):
        label = f"{words.invented(rng)} number" if customer.chance(0.25) else rng.choice(_TEXTS["numbers"])
        return label, str(rng.randint(1, 99)) if customer.chance(0.4) else words.number(rng)
    label = words.invented(rng) if customer.chance(0.3) else rng.choice(_TEXTS["things"])
    makers = (
        lambda: words.colour(rng),
        lambda: words.city(rng),
        lambda: words.name(rng, customer.vocabulary),
        lambda: words.item(rng, customer.vocabulary),
        lambda: words.invented(rng),
    )
    value = rng.choice(makers)()
    return label, value.lower() if customer.style.lower else value
