"""What a good request gets."""

from __future__ import annotations

import asyncio

from app.wire.codec import decode, encode
from app.wire.event import EventType, TokenEvent
from app.wire.request import Request
from models.interface.generation import FinishReason
from models.served.paced import BytePrompts, word
from tables import records
from tests.integration.worker.client import PATIENCE_S, Client


async def test_an_answer_is_tokens_in_order_one_end_and_one_turn(client: Client) -> None:
    user = client.user()
    answer = await client.asked(user, "hello", max_tokens=7)
    assert answer.end is not None
    assert answer.end.finish_reason is FinishReason.LENGTH
    prompt = BytePrompts().build("", (), "hello").ids
    assert answer.tokens == tuple(word(prompt, index)[0] for index in range(7))
    assert answer.end.usage is not None
    assert (answer.end.usage.prompt_tokens, answer.end.usage.completion_tokens) == (len(prompt), 7)
    (turn,) = await client.turns_of(user, 1)
    assert (turn.prompt, turn.answer, turn.finish_reason) == ("hello", answer.text, FinishReason.LENGTH)
    assert turn.timing is not None
    assert turn.timing.requested_at <= (turn.timing.first_token_at or 0) <= (turn.timing.finished_at or 0)


async def test_the_next_prompt_builds_on_the_turns_before(client: Client) -> None:
    user = client.user()
    first = await client.asked(user, "one", max_tokens=3)
    second = await client.asked(user, "two", max_tokens=3)
    expected = BytePrompts().build("", [("one", first.text)], "two").ids
    assert second.end is not None
    assert second.end.usage is not None
    assert second.end.usage.prompt_tokens == len(expected)


async def test_conversations_of_one_user_do_not_know_of_each_other(client: Client) -> None:
    user = client.user()
    await client.asked(user, "one", max_tokens=3, conversation_id="a")
    other = await client.asked(user, "one", max_tokens=3, conversation_id="b")
    assert other.end is not None
    assert other.end.usage is not None
    assert other.end.usage.prompt_tokens == len(BytePrompts().build("", (), "one").ids)


async def test_messages_are_the_whole_context_and_the_last_user_message_is_the_turn(client: Client) -> None:
    user = client.user()
    await client.asked(user, "before", max_tokens=3)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "now"}]
    answer = await client.answer(user, await client.ask(user, None, messages=messages, max_tokens=3))
    assert answer.end is not None
    assert answer.end.usage is not None
    assert answer.end.usage.prompt_tokens == len("\nsystem: be brief\nuser: now")
    assert [turn.prompt for turn in await client.turns_of(user, 2)] == ["before", "now"]


async def test_requests_of_a_conversation_are_answered_one_after_the_other(client: Client) -> None:
    user = client.user()
    ids = [await client.ask(user, f"question {number}", max_tokens=10) for number in range(5)]
    for request_id in ids:
        await client.answer(user, request_id)
    ends: list[str] = []
    open_request: str | None = None
    for record in await client.records("tokens"):
        event = decode(TokenEvent, record.value, record.headers)
        if event.user_id != user or event.request_id is None:
            continue
        assert open_request in {None, event.request_id}, "two answers of one conversation at once"
        open_request = None if event.is_end else event.request_id
        if event.is_end:
            ends.append(event.request_id)
    assert ends == ids
    assert [turn.request_id for turn in await client.turns_of(user, 5)] == ids


async def test_a_long_queue_of_one_user_delays_no_other(client: Client) -> None:
    busy = client.user()
    other = client.user_of(client.partition(busy))
    for _ in range(100):
        await client.ask(busy, "again", max_tokens=100)
    answer = await client.asked(other, "me too", max_tokens=2)
    assert answer.end is not None
    ended = sum(one.end is not None for (user, _), one in client.reader.rule.answers.items() if user == busy)
    assert ended < 50
    await client.send("controls", {"type": "erase", "user_id": busy}, busy)


async def test_a_request_id_that_was_used_gets_no_second_answer(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "hello", max_tokens=4)
    await client.answer(user, request_id)
    await client.ask(user, "something else", max_tokens=4, request_id=request_id)
    await client.asked(user, "after it", max_tokens=4)
    assert [turn.prompt for turn in await client.turns_of(user, 2)] == ["hello", "after it"]


async def test_a_cancel_in_mid_answer_keeps_what_was_said(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "go on for ever", max_tokens=5000)
    await client.begun(user, request_id, tokens=3)
    await client.cancel(user, request_id)
    await client.cancel(user, request_id)
    answer = await client.answer(user, request_id)
    assert answer.end is not None
    assert answer.end.finish_reason is FinishReason.CANCELLED
    (turn,) = await client.turns_of(user, 1)
    assert turn.answer == answer.text
    assert len(answer.tokens) >= 3


async def test_a_cancel_that_comes_before_its_request_is_remembered(client: Client) -> None:
    user = client.user()
    running = await client.ask(user, "long", max_tokens=5000)
    await client.begun(user, running)
    await client.cancel(user, "not-yet")
    await client.cancel(user, running)  # its end shows that the worker has met the record before it
    await client.answer(user, running)
    await client.ask(user, "hello", request_id="not-yet")
    answer = await client.answer(user, "not-yet")
    assert answer.end is not None
    assert (answer.end.finish_reason, answer.tokens) == (FinishReason.CANCELLED, ())


async def test_a_cancel_of_a_request_that_waits_ends_it_behind_the_one_before_it(client: Client) -> None:
    user = client.user()
    running = await client.ask(user, "long", max_tokens=5000)
    waiting = await client.ask(user, "behind", max_tokens=5)
    await client.begun(user, running)
    await client.cancel(user, waiting)
    await asyncio.sleep(0.2)
    assert (user, waiting) not in client.reader.rule.answers
    await client.cancel(user, running)
    for request_id in (running, waiting):
        answer = await client.answer(user, request_id)
        assert answer.end is not None
        assert answer.end.finish_reason is FinishReason.CANCELLED
    assert [turn.request_id for turn in await client.turns_of(user, 2)] == [running, waiting]


async def test_a_deadline_before_the_start_is_an_error_and_in_mid_answer_an_end(client: Client) -> None:
    user = client.user()
    running = await client.ask(user, "long", max_tokens=5000)
    behind = await client.ask(user, "behind", max_tokens=5, deadline_ms=300)
    other = client.user()
    over = await client.ask(other, "over before it began", max_tokens=5, deadline_ms=0)
    over_behind = await client.ask(user, "over while another runs", max_tokens=5, deadline_ms=0)
    for owner, request_id in ((user, over_behind), (user, behind), (other, over)):
        error = (await client.answer(owner, request_id)).end
        assert error is not None
        assert error.error is not None
        assert (error.type, error.error.code) == (EventType.ERROR, "deadline_exceeded")
    await client.cancel(user, running)
    await client.answer(user, running)
    for deadline_ms in (700, 7_000, 70_000):  # the next one, if a busy machine has not begun before it
        long = await client.ask(user, "long", max_tokens=10_000, deadline_ms=deadline_ms)
        if (answer := await client.answer(user, long)).tokens:
            break
    assert answer.end is not None
    assert answer.end.finish_reason is FinishReason.DEADLINE


async def test_a_prompt_over_the_limit_is_an_error_and_no_dead_letter(client: Client) -> None:
    user = client.user()
    before = len(await client.records("dead-letters"))
    end = (await client.asked(user, "x" * 70_000)).end
    assert end is not None
    assert end.error is not None
    assert end.error.code == "prompt_too_long"
    assert len(await client.records("dead-letters")) == before


async def test_a_model_that_is_not_served_is_an_error(client: Client) -> None:
    end = (await client.asked(client.user(), model="gpt-17")).end
    assert end is not None
    assert end.error is not None
    assert end.error.code == "model_not_found"


async def test_a_request_in_protobuf_is_answered_like_one_in_json(client: Client) -> None:
    user = client.user()
    value, headers = encode(Request(request_id="pb-1", user_id=user, prompt="hello", max_tokens=4), "protobuf")
    await client.send("requests", value, user, list(headers))
    answer = await client.answer(user, "pb-1")
    prompt = BytePrompts().build("", (), "hello").ids
    assert answer.tokens == tuple(word(prompt, index)[0] for index in range(4))


async def test_an_erased_user_is_forgotten_and_stays_so(client: Client) -> None:
    user = client.user()
    await client.asked(user, "my secret", max_tokens=3)
    running = await client.ask(user, "another secret", max_tokens=5000)
    await client.begun(user, running)
    await client.send("controls", {"type": "erase", "user_id": user}, user)
    end = (await client.answer(user, running)).end
    assert end is not None
    assert end.finish_reason is FinishReason.CANCELLED
    topic = f"{client.settings.app_id}-erased-changelog"
    async with asyncio.timeout(PATIENCE_S):
        while not any(row.key == records.key(user) and row.value for row in await client.records(topic)):
            await asyncio.sleep(0.05)
    after = await client.asked(user, "who am I", max_tokens=3)
    assert after.end is not None
    assert after.end.usage is not None
    assert after.end.usage.prompt_tokens == len(BytePrompts().build("", (), "who am I").ids)
    turns = await client.turns_of(user, 3)
    assert [turn.prompt for turn in turns] == ["my secret", "", "who am I"]
    rows = await client.records(f"{client.settings.app_id}-conversations-changelog")
    mine = [row for row in rows if user in row.key.decode()]
    assert any(row.value is None for row in mine), "no tombstone"
