"""`parley_client.agents`: what a function's next command is, whichever process has read the records before."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from parley_client.agents import AgentRequest, Agents, Step, StepError

REQUEST = {"request_id": "r", "user_id": "u", "conversation_id": "c", "prompt": "hi", "agent": "desk", "tenant": None}
Past = list[tuple[dict[str, Any], Any]]


class Desk:
    """An agent of three steps; `began` counts how often its function did."""

    def __init__(self) -> None:
        self.began = 0
        self.ran: list[str] = []
        self.agents = Agents()
        self.agents.agent("desk")(self.run)

    async def run(self, step: Step, request: AgentRequest) -> str | None:
        self.began += 1
        await step.say(f"You say {request.prompt}.")
        number = await step.run(lambda: self._noted(step.key))
        try:
            await step.call("pay", {"amount": number})
        except StepError as error:
            return f"It failed: {error}."
        return None

    def _noted(self, key: str) -> int:
        self.ran.append(key)
        return 7

    async def next(self, past: Past, name: str = "agent:desk", left_s: float = 60.0) -> dict[str, Any] | None:
        steps = [{"n": at + 1, "command": command, "outcome": outcome} for at, (command, outcome) in enumerate(past)]
        call = {
            "tool_call_id": f"call_{len(past)}",
            "name": name,
            "arguments": json.dumps({"request": {**REQUEST, "messages": []}, "steps": steps}),
            "request_id": "r",
            "user_id": "u",
            "expires_at": (time.time() + left_s) * 1000,
        }
        answered = await self.agents.next(json.dumps(call).encode(), [("traceparent", b"t"), ("other", b"o")])
        if answered is None:
            return None
        value, headers = answered
        record = json.loads(value)
        assert (record["tool_call_id"], record["request_id"], record["user_id"]) == (f"call_{len(past)}", "r", "u")
        assert headers == [("traceparent", b"t")]
        command: dict[str, Any] = json.loads(record["content"])
        return command


SAID = ({"command": "say", "text": "You say hi."}, None)
RAN = ({"command": "result"}, 7)
CALL = {"command": "call", "name": "pay", "arguments": {"amount": 7}}


async def test_a_run_waits_in_memory_and_goes_on() -> None:
    desk = Desk()
    assert await desk.next([]) == SAID[0]
    assert await desk.next([SAID]) == {"command": "result", "value": 7}
    assert await desk.next([SAID, RAN]) == CALL
    assert await desk.next([SAID, RAN, (CALL, "paid")]) == {"command": "end"}
    assert (desk.began, desk.ran) == (1, ["u/r/2"])


async def test_another_process_goes_on_behind_the_recorded_steps() -> None:
    desk = Desk()
    assert await desk.next([SAID, RAN]) == CALL
    assert (desk.began, desk.ran) == (1, [])


async def test_a_record_that_is_read_again_gets_the_same_command() -> None:
    desk = Desk()
    await desk.next([])
    assert await desk.next([SAID]) == await desk.next([SAID]) == {"command": "result", "value": 7}
    assert desk.ran == ["u/r/2"]
    assert await desk.next([]) == SAID[0]
    assert desk.began == 2


async def test_records_that_are_read_at_once_disturb_no_run() -> None:
    desk = Desk()
    found = await asyncio.gather(desk.next([SAID]), desk.next([]), desk.next([SAID]), desk.next([SAID, RAN]))
    assert [one and one["command"] for one in found] == ["result", "say", "result", "call"]


async def test_a_failed_step_is_an_exception_and_a_returned_text_is_said() -> None:
    desk = Desk()
    said = {"command": "say", "text": "It failed: rejected by desk/ali."}
    failed = (CALL, "error: rejected by desk/ali")
    assert await desk.next([SAID, RAN, failed]) == said
    assert await desk.next([SAID, RAN, failed, (said, None)]) == {"command": "end"}


@pytest.mark.parametrize(
    ("past", "message"),
    [
        ([({"command": "say", "text": "A secret."}, None)], "step 1, say, has another text now"),
        ([SAID, ({"command": "sleep", "seconds": 1}, None)], "step 2 was sleep, and is result now"),
        ([SAID, RAN, ({**CALL, "name": "refund"}, "")], "step 3 was call refund, and is call pay now"),
        ([SAID, RAN, (CALL, "paid"), SAID], "step 4 was say, and is end now"),
    ],
)
async def test_another_step_than_the_recorded_one_ends_the_answer(past: Past, message: str) -> None:
    command = await Desk().next(past)
    assert command == {"command": "fail", "message": f"{message}: the program has changed"}


async def test_a_function_that_catches_everything_does_not_hide_it() -> None:
    agents = Agents()

    @agents.agent("desk")
    async def desk(step: Step, _request: AgentRequest) -> None:
        for text in ("one", "two"):
            try:
                await step.say(text)
            except Exception:  # noqa: BLE001 - as programs do
                continue

    command = await agents.command(
        "desk", {"request": REQUEST, "steps": [{"n": 1, "command": SAID[0], "outcome": None}]}
    )
    assert command is not None
    assert command["command"] == "fail"


async def test_what_is_raised_is_told_by_its_type_alone() -> None:
    agents = Agents()

    @agents.agent("desk")
    async def desk(_step: Step, _request: AgentRequest) -> None:
        raise ValueError("a secret")

    command = await agents.command("desk", {"request": REQUEST, "steps": []})
    assert command == {"command": "fail", "message": "the program has failed (ValueError)"}


async def test_steps_are_made_one_after_another() -> None:
    agents = Agents()

    @agents.agent("desk")
    async def desk(step: Step, _request: AgentRequest) -> None:
        await asyncio.gather(step.say("one"), step.say("two"))

    first = await agents.command("desk", {"request": REQUEST, "steps": []})
    assert first == {"command": "say", "text": "one"}
    past = [{"n": 1, "command": first, "outcome": None}]
    then = await agents.command("desk", {"request": REQUEST, "steps": past})
    assert then == {"command": "fail", "message": "the program has failed (RuntimeError)"}


async def test_calls_of_others_and_late_ones_are_left_alone() -> None:
    desk = Desk()
    assert await desk.next([], name="agent:other") is None
    assert await desk.next([], name="look_up") is None
    assert await desk.next([], left_s=-1.0) is None
    assert await desk.agents.next(b"{not json", []) is None
    with pytest.raises(ValueError, match="programs read JSON"):
        await desk.agents.next(b"", [("content-type", b"application/x-protobuf")])


async def test_so_many_runs_wait_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley_client.agents.program._MOST_KEPT", 2)
    desk = Desk()
    for number in range(5):
        asked = {"request": {**REQUEST, "request_id": f"r{number}"}, "steps": []}
        await desk.agents.command("desk", asked)
    assert [key for _, key in desk.agents._runs] == ["r3", "r4"]
    assert len(desk.agents._locks) == 2


def test_two_agents_of_one_name_are_a_mistake() -> None:
    desk = Desk()
    with pytest.raises(ValueError, match="there are two agents desk"):
        desk.agents.agent("desk")(desk.run)
