"""What holds a conversation together."""

from __future__ import annotations

from tests.demo_model.customer import Customer, Turn
from tests.demo_model.topics.memory import HELP
from tests.demo_model.wording import wording

_TEXTS = wording("chat")


def hello(customer: Customer) -> list[Turn]:
    return [customer.turn(customer.says(_TEXTS["hello"]), f"Hello! {HELP}")]


def how_are_you(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["how_are_you"])
    return [customer.turn(asked, f"I am fine, thank you. {HELP}")]


def thanks(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["thanks"])
    name = customer.facts.get("name")
    answer = f"You are welcome, {name}. Have a nice day!" if name else "You are welcome. Have a nice day!"
    return [customer.turn(asked, answer)]


def fine(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["fine"])
    return [customer.turn(asked, "Is there anything else I can help you with?")]


def angry(customer: Customer) -> list[Turn]:
    asked = customer.says(_TEXTS["angry"])
    return [customer.turn(asked, "I am sorry that you are not happy with us. I will do my best to help you.")]
