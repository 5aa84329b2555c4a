"""How well private values are found, and what hiding them costs: `python -m tests.benchmarks.masking`.

Sentences are generated with labelled values (numbers with right checksums, names of many languages) and with traps
(wrong checksums, order numbers, versions, dates). A value counts as found if kind and text are exactly right.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import string
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import phonenumbers

from app.features.guard.analyzer import Analyzer
from app.features.guard.turns import Asker
from app.policy.guard_rules import GuardRules
from app.private.mask import Mask
from app.private.value import PrivateValue

_ASKER = Asker("a user")
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
_PATTERNS = ("EMAIL_ADDRESS", "PHONE_NUMBER", "CREDIT_CARD", "IBAN_CODE", "IP_ADDRESS")


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


async def quality(analyzer: Analyzer, kinds: tuple[str, ...], count: int) -> None:
    """Print precision and recall by kind."""
    sentences, right, found, there = Sentences(1), Counter[str](), Counter[str](), Counter[str]()
    for number in range(count):
        text, labels = sentences.next()
        labels = {one for one in labels if one.kind in kinds}
        values = {*await analyzer.find([f"{text} "], _ASKER)}
        right.update(one.kind for one in values & labels)
        found.update(one.kind for one in values)
        there.update(one.kind for one in labels)
        if number % 1000 == 999:
            print(f"  {number + 1} of {count} sentences")
    print(f"  {'entity':<16}{'precision':>10}{'recall':>10}{'labelled':>10}")
    for kind in kinds:
        precision, recall = right[kind] / max(1, found[kind]), right[kind] / max(1, there[kind])
        print(f"  {kind:<16}{precision:>10.3f}{recall:>10.3f}{there[kind]:>10}")


async def costs(analyzer: Analyzer) -> None:
    """Print what a request pays: analysis of its own 100 characters, and hiding known values in its history."""
    sentences = Sentences(2)
    for size in (1_000, 30_000):
        texts, values = [], set[PrivateValue]()
        while sum(map(len, texts)) < size:
            text, labels = sentences.next()
            texts.append(text)
            values |= labels
        history = " ".join(texts)
        hide = [_ms(partial(_hide, values, history)) for _ in range(100)]
        begin = time.perf_counter()
        await analyzer.find([history], _ASKER)
        print(
            f"  history of {size:,} characters, {len(values)} values: hide p50 {_at(hide, 0.5):.2f} ms, p99 "
            f"{_at(hide, 0.99):.2f} ms; analyzed for the first time {1000 * (time.perf_counter() - begin):.0f} ms"
        )
    new = []
    for _ in range(300):
        text, _labels = sentences.next()
        begin = time.perf_counter()
        await analyzer.find([f"{text} {random.random()}"], _ASKER)
        new.append(1000 * (time.perf_counter() - begin))
    print(f"  a new prompt of one sentence: p50 {_at(new, 0.5):.1f} ms, p99 {_at(new, 0.99):.1f} ms")


def _hide(values: set[PrivateValue], text: str) -> str:
    return Mask(b"s", "u", values).hide(text)


def _ms(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - begin)


def _at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=5000)
    count = parser.parse_args().sentences
    for title, kinds in (("with spaCy", (*_PATTERNS, "PERSON")), ("patterns alone", _PATTERNS)):
        print(title)
        analyzer = Analyzer(GuardRules(pii="mask", pii_entities=kinds))
        await quality(analyzer, kinds, count)
        await costs(analyzer)


if __name__ == "__main__":
    asyncio.run(main())
