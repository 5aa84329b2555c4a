"""Sentences with labelled private values (numbers with right checksums, names of many languages) and with traps (wrong
checksums, order numbers, versions, dates).
"""

from __future__ import annotations

import random
import string

import phonenumbers

from app.private.value import PrivateValue

_FIRST = ("Anna", "James", "Jürgen", "María", "José", "Olga", "Wei", "Fatima", "Ahmed", "Priya", "Yuki", "Søren")
_LAST = ("Schmidt", "Smith", "Müller", "García", "Ivanova", "Zhang", "Hassan", "Patel", "Tanaka", "Nielsen", "Yılmaz")
_FRAMES = (
    "My name is {PERSON} and my mail is {EMAIL_ADDRESS}.",
    "Please call {PERSON} back at {PHONE_NUMBER}.",
    "I paid with card {CREDIT_CARD}, but the order 4500012345 never came.",
    "Refund it to {IBAN_CODE} please, thanks, {PERSON}",
    "The server {IP_ADDRESS} has not answered since version 10.2.1 of the app.",
    "Hi, {PERSON} here. Send the invoice to {EMAIL_ADDRESS} instead of my old address.",
    "Is {PHONE_NUMBER} your number? I am {PERSON}.",
    "Where is my order 77812345? I ordered it on 2026-05-01 for 129.99 euros.",
    "May I ask if the Will of 2019 was delivered in June?",
    "The reference {WRONG_CARD} is not a card, and {WRONG_IBAN} is not an account.",
    "why does python 3.11.7 say error 404 at line 1024",
)
_COUNTRIES = {"DE": 18, "FR": 23, "GB": 18, "NL": 14}


class Sentences:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def next(self) -> tuple[str, set[PrivateValue]]:
        """A sentence and the values that it contains."""
        frame = self._chance.choice(_FRAMES)
        labels: set[PrivateValue] = set()
        for _, kind, _, _ in string.Formatter().parse(frame):
            if kind:
                value = getattr(self, kind.lower())()
                frame = frame.replace("{" + kind + "}", value, 1)
                if not kind.startswith("WRONG"):
                    labels.add(PrivateValue(kind, value))
        return frame, labels

    def person(self) -> str:
        return f"{self._chance.choice(_FIRST)} {self._chance.choice(_LAST)}"

    def email_address(self) -> str:
        name = self._chance.choice(("anna.s", "j_smith", "info+shop", "x99"))
        domain = self._chance.choice(("example.com", "mail.example.org", "firma.de"))
        return f"{name}{self._chance.randint(1, 99)}@{domain}"

    def phone_number(self) -> str:
        number = phonenumbers.example_number_for_type(
            self._chance.choice(("US", "GB", "DE", "FR")), phonenumbers.PhoneNumberType.MOBILE
        )
        form = self._chance.choice((phonenumbers.PhoneNumberFormat.INTERNATIONAL, phonenumbers.PhoneNumberFormat.E164))
        return phonenumbers.format_number(number, form)

    def credit_card(self) -> str:
        digits = [4, *(self._chance.randint(0, 9) for _ in range(14))]
        text = "".join(map(str, [*digits, _luhn(digits)]))
        return " ".join(text[at : at + 4] for at in range(0, 16, 4)) if self._chance.random() < 0.5 else text

    def wrong_card(self) -> str:
        card = self.credit_card()
        return card[:-1] + str((int(card[-1]) + 1) % 10)

    def iban_code(self) -> str:
        country, length = self._chance.choice([*_COUNTRIES.items()])
        letters = "ABCD" if country in {"GB", "NL"} else ""
        account = letters + "".join(str(self._chance.randint(0, 9)) for _ in range(length - len(letters)))
        number = int("".join(str(int(one, 36)) for one in account + country + "00"))
        return f"{country}{98 - number % 97:02d}{account}"

    def wrong_iban(self) -> str:
        iban = self.iban_code()
        return iban[:-1] + str((int(iban[-1]) + 1) % 10)

    def ip_address(self) -> str:
        return ".".join(str(self._chance.randint(1, 254)) for _ in range(4))


def _luhn(digits: list[int]) -> int:
    doubled = [sum(divmod(2 * digit, 10)) if at % 2 == 0 else digit for at, digit in enumerate(digits)]
    return -sum(doubled) % 10
