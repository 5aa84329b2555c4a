"""What customers tell about themselves, and whether it is remembered."""

from __future__ import annotations

from models.demo import words
from models.demo.customer import Customer, Skill, Turn
from models.demo.wording import wording

_TEXTS = wording("memory")
_PHRASED = {phrased["label"]: phrased for phrased in _TEXTS["phrased"]}

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
    return _unknown(customer, asked, "name")


def asks_order(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["asks_order"])
    if order := customer.facts.get("order number"):
        return [customer.turn(asked, f"Your order number is {order}.", order, skill=Skill.NUMBER)]
    return _unknown(customer, asked, "order number")


def tells_order(customer: Customer) -> list[Turn]:
    return [_noted(customer, "order number", customer.tells_order(), Skill.ECHO)]


def tells_fact(customer: Customer) -> list[Turn]:
    label, value = _fact(customer)
    customer.facts[label] = value
    return [_noted(customer, label, value, Skill.REST)]


def remembers_number(customer: Customer) -> list[Turn]:
    number = words.number(customer.rng) if customer.chance(0.5) else str(customer.rng.randint(1, 99))
    customer.facts["number"] = number
    told = customer.says(_TEXTS["remembers_number"], value=number)
    return [customer.turn(told, f"Thank you, I have noted that your number is {number}.", number)]


def asks_number(customer: Customer) -> list[Turn]:
    """The number that has no other name, or else that of the order."""
    asked = customer.says(_TEXTS["asks_number"])
    for label in ("number", "order number"):
        if number := customer.facts.get(label):
            return [customer.turn(asked, f"Your {label} is {number}.", number, skill=Skill.NUMBER)]
    return _unknown(customer, asked, "number")


def asks_fact(customer: Customer) -> list[Turn]:
    told = [label for label in customer.facts if label not in {"name", "order number"}]
    label = customer.rng.choice(told) if told and customer.chance(0.8) else _fact(customer)[0]
    asked = customer.says(_wordings(customer, label, "asks"), label=label)
    if value := customer.facts.get(label):
        skill = Skill.NUMBER if value.isdecimal() else Skill.REST
        return [customer.turn(asked, f"Your {label} is {value}.", value, *_said(label, asked), skill=skill)]
    return _unknown(customer, asked, label)


def _noted(customer: Customer, label: str, value: str, skill: Skill) -> Turn:
    told = customer.says(_wordings(customer, label, "tells"), label=label, value=value)
    answer = f"Thank you, I have noted that your {label} is {value}."
    return customer.turn(told, answer, *_said(label, told), value, skill=skill)


def _unknown(customer: Customer, asked: str, label: str) -> list[Turn]:
    """Most often nothing, so that what was told is asked for as often as what was not."""
    if customer.chance(0.6):
        return []
    answer = f"You have not told me your {label} yet."
    return [customer.turn(asked, answer, *_said(label, asked), skill=Skill.DECLINE)]


def _said(label: str, text: str) -> tuple[str, ...]:
    return (label,) if label in text else ()


def _wordings(customer: Customer, label: str, act: str) -> list[str]:
    """How `label` is told or asked for: as any label is, or in words of its own."""
    own: dict[str, list[str]] = _PHRASED.get(label, {})
    return own[act] if own and customer.chance(0.5) else _TEXTS[f"{act}_fact"]


def _fact(customer: Customer) -> tuple[str, str]:
    """Something to tell: a label and its value. Many labels are made up, so that any label works."""
    rng = customer.rng
    if customer.chance(0.5):
        label = f"{words.invented(rng)} number" if customer.chance(0.25) else rng.choice(_TEXTS["numbers"])
        return label, str(rng.randint(1, 99)) if customer.chance(0.4) else words.number(rng)
    label = (
        words.invented(rng) if customer.chance(0.25) else rng.choice([*_TEXTS["things"], *_PHRASED, "favourite colour"])
    )
    if label in {"age", "phone number"}:
        return label, str(rng.randint(10, 99)) if label == "age" else words.number(rng)
    makers = (
        lambda: words.colour(rng),
        lambda: words.city(rng),
        lambda: words.name(rng, customer.vocabulary),
        lambda: words.item(rng, customer.vocabulary),
        lambda: words.invented(rng),
    )
    value = rng.choice(makers)()
    return label, value.lower() if customer.style.lower else value
