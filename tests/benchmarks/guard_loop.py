"""How long the largest requests hold the event loop under `[guard]`: `python -m tests.benchmarks.guard_loop`.

Each request is read, hidden, made into a job, and kept, as in a worker, with Presidio's patterns. Beside it, a timer of
5 ms tells how late the loop is: that counts other threads and the rest of the machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import string
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agents.jobs import job_of, prompt_of
from agents.masking import Masking, kept_turn

from app.delivery.inflight import InFlightRequest
from app.features.guard.guard import Guard
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.settings import Settings
from app.wire.request import Message, MessageToolCall, Role
from app.wire.tools import FunctionCall
from models.generation import Delta
from models.paced import paced
from models.prompts import PromptTooLong
from tables.records import Turn
from tests.loop_steps import LongestStep, longest_step
from tests.unit.agents.guarded import PATTERNS, answer_of, partition_with_secret
from tests.unit.agents.inflight_requests import inflight_of

MAILS = [f"{''.join(letters)}@b.co" for letters in itertools.product(string.ascii_lowercase, repeat=3)]
_SETTINGS = Settings(_env_file=None)
_SERVING = paced(10.0)


def _messages(count: int, values: int, padding: str = "") -> tuple[Message, ...]:
    mails = iter(MAILS)
    texts = [" ".join(itertools.islice(mails, values)) + padding for _ in range(count)]
    return tuple(Message(Role.ASSISTANT if at % 2 else Role.USER, text) for at, text in enumerate(texts))


def _calls(count: int, values: int) -> tuple[Message, ...]:
    """Calls with objects of numbers and addresses, about 1 MB in 16 of them, and their results."""
    arguments = json.dumps({mail: [1.5, {"to": mail, "n": list(range(30))}] for mail in MAILS[:values]})
    calls = tuple(MessageToolCall(f"c{at}", FunctionCall("f", arguments)) for at in range(count))
    results = (Message(Role.TOOL, "done", tool_call_id=call.id) for call in calls)
    return (Message(Role.USER, "hello"), Message(Role.ASSISTANT, tool_calls=calls), *results)


SHAPES: dict[str, dict[str, Any]] = {
    "a prompt of 30 KB with 500 values": {"prompt": " ".join(f"please write to them: {one}," for one in MAILS[:500])},
    "2,047 messages with 2 values each": {"prompt": None, "messages": _messages(2047, 2)},
    "2,047 messages with 3 values each": {"prompt": None, "messages": _messages(2047, 3)},
    "1 MB in 1,001 messages": {"prompt": None, "messages": _messages(1001, 1, " word" * 190)},
    "1 MB in the arguments of 16 calls": {"prompt": None, "messages": _calls(16, 420)},
    "1 MB in one message": {"prompt": "ab " * 330_000},
}


def masking() -> Masking:
    rules = GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS",), timeout_s=600)
    return Masking(Guard(Policy(guard=rules), lambda _rules: PATTERNS))


async def pass_through(part: Masking, inflight: InFlightRequest) -> LongestStep:
    """What a worker does with the texts of a request, and of an answer of 300 values."""
    partition = partition_with_secret()
    with longest_step() as longest:
        await part.look(partition, inflight, ())
        with suppress(PromptTooLong):  # its texts have been hidden
            job_of(inflight, await prompt_of(inflight, (), _SERVING, _SETTINGS), _SERVING, _SETTINGS)
        answer, _log = answer_of(inflight)
        await answer.say(Delta(0, (7,), " ".join(MAILS[:300])))
        await asyncio.sleep(0)
        await part.settle(partition, inflight, answer)
        kept_turn(Turn("r1", inflight.request.question, answer.text, 1), inflight)
        await asyncio.sleep(0)  # the step ends
    return longest


async def _late(note: Callable[[float], None]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        note(time.perf_counter() - began - 0.005)


async def main(rounds: int) -> None:
    part = masking()
    print("| request | values | longest step, ms of the loop's thread | ms that passed | the loop was late by, ms |")
    print("|---|---|---|---|---|")
    for name, values in SHAPES.items():
        for _ in range(rounds):
            inflight, late = inflight_of(**values), [0.0]
            timer = asyncio.ensure_future(_late(late.append))
            longest = await pass_through(part, inflight)
            timer.cancel()
            count = len(inflight.plan.private or ())
            step = f"{1000 * longest.cpu_s:.1f} | {1000 * longest.wall_s:.1f} | {1000 * max(late):.1f}"
            print(f"| {name} | {count} | {step} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(main(parser.parse_args().rounds))
