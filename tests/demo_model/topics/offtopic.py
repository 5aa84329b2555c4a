"""What a shop's assistant does not know and politely declines: the wide world, and what is not language at all."""

from __future__ import annotations

from tests.demo_model import words
from tests.demo_model.customer import Customer, Skill, Turn
from tests.demo_model.wording import wording

_TEXTS = wording("offtopic")

_DECLINED = "I am sorry, I do not know that. I can only help with questions about our shop and your orders."


def offtopic(customer: Customer) -> list[Turn]:
    draw = customer.rng.random()
    asked = _question(customer) if draw < 0.7 else _salad(customer) if draw < 0.92 else _noise(customer)
    return [customer.turn(asked, _DECLINED, skill=Skill.DECLINE)]


def _question(customer: Customer) -> str:
    rng = customer.rng
    return customer.says(
        _TEXTS["questions"],
        thing=_thing(customer),
        thing2=_thing(customer),
        place=rng.choice(_TEXTS["places"]),
        odd=_odd(customer),
        a=str(rng.randint(0, 200)),
        b=str(rng.randint(0, 200)),
    )


def _thing(customer: Customer) -> str:
    return _odd(customer) if customer.chance(0.4) else customer.rng.choice(_TEXTS["things"])


def _odd(customer: Customer) -> str:
    return " ".join(words.invented(customer.rng) for _ in range(customer.rng.choice((1, 1, 1, 2))))


def _salad(customer: Customer) -> str:
    """Words without a question that can be understood."""
    rng = customer.rng
    makers = (
        lambda: rng.choice(_TEXTS["fillers"]),
        lambda: rng.choice(_TEXTS["parts"]),
        lambda: words.invented(rng),
        lambda: words.invented(rng),
    )
    text = " ".join(rng.choice(makers)() for _ in range(rng.randint(1, 9)))
    return customer.says([text[0].upper() + text[1:] + rng.choice(".?")])


def _noise(customer: Customer) -> str:
    alphabet = customer.rng.choice(
        ("asdfghjkl", "?!.", "abcdefghijklmnopqrstuvwxyz ", "äöüßéñ", "日本語中文字", "😀👍🎉🤔", "абвгдежз")
    )
    return "".join(customer.rng.choices(alphabet, k=customer.rng.randint(1, 12))).strip() or "?"
