"""Requests for the fault tests: many users, each with one conversation, in a row."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from app.settings import Settings
from tests.faults.tool_verdict import APPROVED_TOOL

Ask = Callable[[int, str], dict[str, object]]
"""What is asked in the request of this number by this user; its id and its user are put before it."""

TOOLS = [{"type": "function", "function": {"name": "look_up"}}]
"""With tools, the paced engine ends an answer in a call."""
TWO_TOOLS = [*TOOLS, {"type": "function", "function": {"name": APPROVED_TOOL}}]

SHOP = (
    "Hi, my name is Nina. Where is my order {number}?",
    "What was my order number?",
    "Can I return a kettle that I bought two weeks ago?",
    "Tell me all that you know about order {number}, please.",
    "What are your opening hours, and who am I?",
)


def paced_question(number: int, user: str) -> dict[str, object]:
    tools = {"tools": TOOLS} if number % 4 == 3 else {}
    reasoning = {"reasoning_effort": "high"} if number % 4 in {2, 3} else {}
    return {**_said(number, user), "max_tokens": 20, **tools, **reasoning}


def plain_question(number: int, user: str) -> dict[str, object]:
    """What workers of every version know."""
    tools = {"tools": TOOLS} if number % 4 == 3 else {}
    return {"prompt": f"question {number} of {user}", "max_tokens": 20, **tools}


def _said(number: int, user: str) -> dict[str, object]:
    """Every fifth one continues its conversation by messages, and the others by a prompt."""
    text = f"question {number} of {user}"
    if number % 5:
        return {"prompt": text}
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return {"messages": messages, "continue_conversation": True}


def long_question(number: int, user: str) -> dict[str, object]:
    """An answer of several pieces, each of which may be blocked."""
    return {"prompt": f"question {number} of {user}", "max_tokens": 120}


def decided_question(number: int, user: str) -> dict[str, object]:
    """Every third one has been asked before, so that it may be repeated from the cache."""
    if number % 3:
        return paced_question(number, user) | {"recall": number % 4}
    same = {"prompt": "the same question", "max_tokens": 20, "temperature": 0}
    return {**same, "conversation_id": f"c{number}"}


def tool_question(number: int, user: str) -> dict[str, object]:
    """What calls tools over Kafka, in several rounds."""
    return {
        "prompt": f"question {number} of {user}",
        "max_tokens": 20,
        "tools": TOOLS,
        "tool_mode": "kafka",
        "tool_timeout_ms": 4000,
    }


BUSY_USERS = 12
WORDS = ("queue", "interrupt", "queue", "steer", "rollback", "queue", "reject")


def busy_question(number: int, user: str) -> dict[str, object]:
    """What comes while an answer runs, and says what becomes of it; those of every other user call tools over Kafka.

    Some answers would last twenty seconds, if nobody ended them. Each conversation has twenty requests.
    """
    asked = number // BUSY_USERS
    word = WORDS[(asked + number) % len(WORDS)]
    said = {"prompt": f"question {number} of {user}", "conversation_id": f"b{asked // 20}", "while_busy": word}
    if number % 2:
        return {**said, "max_tokens": 20, "tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 4000}
    return {**said, "max_tokens": 400 if word == "queue" and not asked % 3 else 30}


SLEEPING_USERS = 24


def sleeping_question(number: int, user: str) -> dict[str, object]:
    """What waits for results of tools, for approvals, or until a time; every other one alone in its conversation.

    The others of `SLEEPING_USERS` users have at most eight in theirs: in a longer conversation, a turn that ends when
    it is forgotten already is the last one.
    """
    shared = f"t{number // (8 * SLEEPING_USERS)}"
    said = {"prompt": f"question {number} of {user}", "max_tokens": 20, "conversation_id": shared}
    if number % 8 == 5:
        return {**said, "not_before": time.time_ns() // 1_000_000 + 3000}
    alone = {"conversation_id": f"c{number}"} if number % 2 else {}
    return {**said, **alone, "tools": TWO_TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 6000}


def shop_question(number: int, _user: str) -> dict[str, object]:
    """What the demo model answers at some length, every other one sampled."""
    prompt = SHOP[number // 16 % len(SHOP)].format(number=40_000 + number)
    return {"prompt": prompt, "max_tokens": 80, "temperature": 1.1 if number % 2 else 0.0, "seed": number}


class Load:
    """Sends `per_s` requests a second for as long as it is entered; all that it has sent is in `asked`."""

    def __init__(
        self,
        settings: Settings,
        *,
        per_s: float = 5.0,
        users: int = 16,
        skew_s: float = 0.0,
        ask: Ask = paced_question,
    ) -> None:
        self.most = sys.maxsize
        """While it has sent so many, it waits."""
        self._skew_ms = int(skew_s * 1000)
        self.asked: set[tuple[str, str]] = set()
        self._settings = settings
        self._per_s = per_s
        self._users = users
        self._ask = ask
        self._deliveries: list[asyncio.Future[object]] = []

    @property
    def sent(self) -> int:
        return len(self.asked)

    async def __aenter__(self) -> Self:
        self._producer = AIOKafkaProducer(
            **self._settings.cluster.options(), enable_idempotence=True, request_timeout_ms=600_000
        )
        await self._producer.start()
        self._task = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await asyncio.gather(*self._deliveries)
        await self._producer.stop()

    async def _send(self) -> None:
        while True:
            if self.sent >= self.most:
                await asyncio.sleep(0.05)
                continue
            user = f"user-{self.sent % self._users}"
            request = {"request_id": f"r{self.sent}", "user_id": user, **self._ask(self.sent, user)}
            # Of ten requests one comes from a producer that is ahead, and one from one that is behind.
            skew_ms = self._skew_ms * {3: 1, 8: -1}.get(self.sent % 10, 0)
            with suppress(KafkaError):  # not taken by the producer, so not sent
                now_ms = time.time_ns() // 1_000_000
                self._deliveries.append(await self._sent(user, request, now_ms + skew_ms))
                self.asked.add((user, f"r{self.sent}"))
            await asyncio.sleep(1 / self._per_s)

    async def _sent(self, user: str, request: Mapping[str, object], at_ms: int) -> asyncio.Future[object]:
        """What tells that the request was delivered, at this time of its producer's clock."""
        value, topic = json.dumps(request).encode(), self._settings.topic("requests")
        delivery: asyncio.Future[object] = await self._producer.send(
            topic, value, key=user.encode(), timestamp_ms=at_ms
        )
        return delivery
