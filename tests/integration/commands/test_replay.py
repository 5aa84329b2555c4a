"""`parley replay`: past requests asked again, beside a worker that repeats the prompt."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from app.commands.replay import ERASED
from app.kafka.clients import consumer
from app.settings import Settings
from app.wire.control import Cancel
from app.wire.request import Priority
from models.generation import FinishReason
from tables.erasures import Scope
from tests.integration.commands.stored import turn, write
from tests.integration.commands.terminal import Terminal, ended
from tests.integration.scripted_worker import scripted_worker
from tests.integration.waiting import until

NOW = time.time_ns() // 1_000_000
"""When the tests are collected, which may be half an hour before they run."""
HOUR_MS = 3_600_000


async def test_each_turn_is_asked_again_with_the_turns_before_it(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("acme/ann", "1", "hello there", "Hi", NOW - 3, tenant="acme"),
        turn("acme/ann", "2", "one two", "Three", NOW - 2, tenant="acme"),
        turn("acme/ann", "3", "fail now", "No", NOW - 1, tenant="acme", conversation_id="other"),
        turn("bob", "1", "forget me", "Why", NOW - 1),
        erasing=(Scope("bob"),),
    )
    async with scripted_worker(settings) as worker:
        done = await terminal.run("replay", "small", "--system", "Be brief.", "--max-tokens", "9", "--at-once", "1")
    lines = {line["request_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert lines.keys() == {"1", "2", "3"}
    assert lines["2"] == {
        "request_id": "2",
        "user_id": "acme/ann",
        "conversation_id": "default",
        "tenant": "acme",
        "prompt": "one two",
        "former_model_version": "big@1",
        "former_answer": "Three",
        "model_version": None,
        "answer": "one two ",
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 0},
        "error": None,
    }
    assert (lines["3"]["answer"], lines["3"]["error"]) == ("", "engine_error")
    assert (done.code, done.err) == (1, "2 answered, 1 ended in engine_error\n")
    by_question = {request.question: request for request in worker.requests}
    asked = by_question["one two"]
    assert [(one.role.value, one.content) for one in asked.messages or ()] == [
        ("system", "Be brief."),
        ("user", "hello there"),
        ("assistant", "Hi"),
        ("user", "one two"),
    ]
    assert (asked.model, asked.max_tokens, asked.tenant) == ("small", 9, "acme")
    assert (asked.priority, asked.store, asked.cache, asked.recall) == (Priority.BATCH, False, False, 0)
    assert len({request.conversation_id for request in worker.requests}) == 3


async def test_turns_before_those_that_are_chosen_are_their_context(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "hello there", "Hi", NOW - 4 * HOUR_MS),
        turn("ann", "2", "one two", "Three", NOW, model_version="old@7"),
        turn("bob", "1", "two three", "Four", NOW - 4 * HOUR_MS),
    )
    async with scripted_worker(settings) as worker:
        for only in (("--since", "2h"), ("--answered-by", "old")):
            done = await terminal.run("replay", "small", *only)
            assert (done.code, done.err) == (0, "1 answered\n")
    assert [[one.content for one in asked.messages or ()] for asked in worker.requests] == [
        ["hello there", "Hi", "one two"]
    ] * 2


@pytest.mark.parametrize("erased", [Scope("ann"), Scope("ann", "default")])
async def test_what_is_erased_during_a_replay_is_not_asked_again(
    settings: Settings, terminal: Terminal, erased: Scope
) -> None:
    await write(settings, turn("ann", "1", "wait here", "1", NOW - 2), turn("ann", "2", "one two", "3", NOW - 1))
    async with scripted_worker(settings) as worker, terminal.start("replay", "small", "--at-once", "1") as process:
        await until(lambda: bool(worker.requests))
        await write(settings, erasing=(erased,))
        (asked,) = worker.requests
        worker.cancelled.setdefault(asked.request_id, asyncio.Event()).set()
        done = await ended(process)
    assert (done.code, done.out, done.err) == (0, "", f"2 {ERASED}\n")
    assert worker.requests == [asked]


async def test_answers_go_to_a_topic_keyed_by_user(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "hello there", "Hi", NOW - 3),
        turn("ann", "2", "look it up", "", NOW - 2, finish_reason=FinishReason.FILTERED),
        turn("bob", "1", "one two", "Three", NOW - 2, model_version="old@7"),
    )
    topic = settings.topic("second-opinions")
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    async with scripted_worker(settings):
        chosen = await terminal.run("replay", "small", "--topic", topic, "--answered-by", "old")
        whole = await terminal.run("replay", "small", "--topic", topic, "--user", "ann")
    assert (chosen.code, chosen.out, chosen.err) == (0, "", "1 answered\n")
    assert (whole.code, whole.out, whole.err) == (0, "", "1 answered\n")
    records = consumer(settings.cluster)
    records.assign([TopicPartition(topic, 0)])
    await records.start()
    await records.seek_to_beginning()
    found = [await records.getone(), await records.getone()]
    await records.stop()
    assert [(one.key, json.loads(one.value)["answer"]) for one in found] == [
        (b"bob", "one two "),
        (b"ann", "hello there "),
    ]


async def test_a_limit_ends_it_and_no_turns_are_no_failure(settings: Settings, terminal: Terminal) -> None:
    await write(settings, *(turn("ann", str(number), "one", "1", NOW - 9 + number) for number in range(5)))
    async with scripted_worker(settings) as worker:
        limited = await terminal.run("replay", "small", "--limit", "2", "--at-once", "1")
        nothing = await terminal.run("replay", "small", "--tenant", "acme")
    assert (limited.code, limited.err, len(worker.requests)) == (0, "2 answered\n", 2)
    assert (nothing.code, nothing.err) == (0, "no such turns\n")


async def test_what_is_open_is_cancelled_by_ctrl_c(settings: Settings, terminal: Terminal) -> None:
    await write(settings, turn("ann", "1", "wait here", "1", NOW))
    async with scripted_worker(settings) as worker, terminal.start("replay", "small") as process:
        await until(lambda: bool(worker.requests))
        process.terminate()
        done = await ended(process)
        (asked,) = worker.requests
        await until(lambda: bool(worker.controls))
    assert (done.code, done.out) == (0, "")
    assert worker.controls == [Cancel(request_id=asked.request_id, user_id="ann")]


async def test_a_topic_that_is_not_there_is_named(terminal: Terminal) -> None:
    done = await terminal.run("replay", "small", "--topic", "not-there")
    assert done.code == 1
    assert "not-there" in done.err
