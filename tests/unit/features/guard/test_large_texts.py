"""The largest requests hold the event loop for some milliseconds, whatever is in them."""

from __future__ import annotations

import asyncio
import itertools
import json
import string
from contextlib import suppress
from typing import Any

import pytest

from app.answering.job import job_of, prompt_of
from app.answering.kept import Kept
from app.answering.run import Run
from app.answering.stage import Stage
from app.features.guard.guard import Guard
from app.features.guard.masking import Masking
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.settings import Settings
from app.wire.request import Message, MessageToolCall, Role
from app.wire.tools import FunctionCall
from models.interface.generation import Delta
from models.prompts.builder import PromptTooLong
from models.served.paced import paced
from tables.records import KeptTurn
from tests.loop_steps import LongestStep, longest_step
from tests.unit.answering.runs import run_and_stage_of, unchanged
from tests.unit.delivery.inflight_requests import inflight_of
from tests.unit.features.guard.guarded import PATTERNS, partition_with_secret

MAILS = [f"{''.join(letters)}@b.co" for letters in itertools.product(string.ascii_lowercase, repeat=3)]
_SETTINGS = Settings(_env_file=None)
_MODEL = paced(10.0)


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


MOST_S = 0.25
"""Of processor time: some 50 times what a step takes, and a twentieth of what searching value by value takes."""
TRIES = 3
"""Of which one counts: in a process with many tests, the garbage collector's steps are longer than those looked for."""
SHAPES: dict[str, dict[str, Any]] = {
    "a prompt of 30 KB with 500 values": {"prompt": " ".join(f"please write to them: {one}," for one in MAILS[:500])},
    "2,047 messages with 2 values each": {"prompt": None, "messages": _messages(2047, 2)},
    "2,047 messages with 3 values each": {"prompt": None, "messages": _messages(2047, 3)},
    "1 MB in 1,001 messages": {"prompt": None, "messages": _messages(1001, 1, " word" * 190)},
    "1 MB in the arguments of 16 calls": {"prompt": None, "messages": _calls(16, 420)},
    "1 MB in one message": {"prompt": "ab " * 330_000},
}


def run_with(values: dict[str, Any]) -> tuple[Run, Stage]:
    """The run of such a request, of which masking is the only stage."""
    rules = GuardRules(pii="mask", pii_entities=("EMAIL_ADDRESS",), timeout_s=600)
    masking = Masking(Guard(Policy(guard=rules), lambda _rules: PATTERNS))
    return run_and_stage_of(
        masking, inflight=inflight_of(**values), partition=partition_with_secret(), settings=_SETTINGS
    )


async def pass_through(run: Run, stage: Stage) -> LongestStep:
    """What a worker does with the texts of a request, and of an answer of 300 values."""
    with longest_step() as longest:
        await run.answer.decide(await stage.decide(run.answer.plan, unchanged))
        with suppress(PromptTooLong):  # its texts have been hidden
            dialogue = await run.visible_dialogue()
            prompt = await prompt_of(dialogue, _MODEL, _SETTINGS, run.accepted.at)
            job_of(dialogue, prompt, _MODEL, _SETTINGS)
        await run.answer.write(Delta(0, (7,), " ".join(MAILS[:300])))
        await asyncio.sleep(0)
        await stage.ended()
        stage.leave(Kept(row=KeptTurn("r1", run.accepted.request.question, run.answer.text, 1)))
        await asyncio.sleep(0)  # the step ends
    return longest


@pytest.mark.parametrize("name", SHAPES)
async def test_hiding_values_does_not_hold_the_loop(name: str) -> None:
    for _ in range(TRIES):
        longest = await pass_through(*run_with(SHAPES[name]))
        if 0 < longest.cpu_s < MOST_S:
            return
    pytest.fail(f"it held the loop for {longest.cpu_s} s")
