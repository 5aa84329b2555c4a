"""`parley replay`: past requests asked again, beside a worker that repeats the prompt."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

from app.commands.replay import ERASED
from app.delivery.commits.changelog import changelog_topic
from app.delivery.commits.handover import Handover, encode_metadata
from app.kafka.clients import consumer
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.control import Cancel
from app.wire.request import Priority
from models.interface.generation import FinishReason
from tables.erasures import Scope
from tables.records import Table
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


async def test_a_kafka_that_hangs_keeps_nobody_from_leaving(
    start_kafka: Callable[..., KafkaCluster], terminal: Terminal
) -> None:
    cluster = await asyncio.to_thread(start_kafka)
    terminal = terminal.having(broker=cluster.broker_setting)
    await create_topics(terminal.settings)
    await write(terminal.settings, turn("ann", "1", "wait here", "1", NOW))
    async with scripted_worker(terminal.settings) as worker, terminal.start("replay", "small") as process:
        await until(lambda: bool(worker.requests))
        cluster.nodes[0].suspend()
        process.terminate()
        done = await ended(process)
        cluster.nodes[0].resume()
    assert (done.code, done.out) == (0, "")
    assert "goes on: Kafka does not take its cancel" in done.err


async def test_a_reader_who_leaves_ends_it_without_a_word(settings: Settings, terminal: Terminal) -> None:
    await write(settings, *(turn("ann", f"{number}", "one two", "1", NOW) for number in range(3)))
    async with scripted_worker(settings), terminal.start("replay", "small", "--at-once", "1") as process:
        assert process.stdout is not None
        process.stdout._transport.close()  # type: ignore[attr-defined]
        assert process.stderr is not None
        errors = await asyncio.wait_for(process.stderr.read(), 60)
        assert (await process.wait(), errors) == (1, b"")


async def test_a_topic_that_is_not_there_is_named(terminal: Terminal) -> None:
    """`parley topics create` would not help: it does not know the topic."""
    done = await terminal.run("replay", "small", "--topic", "not-there")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("Error: the topic 'not-there' does not exist: create it first")


async def test_a_topic_that_parley_reads_is_refused(settings: Settings, terminal: Terminal, tmp_path: Path) -> None:
    policy = '[[intake]]\ntopic = "theirs"\nfields = { prompt = "text" }\nuser_id = "u"\n'
    (tmp_path / "policy.toml").write_text(policy)
    terminal = terminal.having(policy=tmp_path / "policy.toml")
    for topic in (settings.topic("turns"), settings.topic("audit"), changelog_topic(settings, Table.ERASED)):
        done = await terminal.run("replay", "small", "--topic", topic)
        why = f"--topic: {topic!r} is a topic of Parley's own; name another one"
        assert (done.code, done.out, done.err) == (2, "", f"Error: {why}\n")
    unnamed = await terminal.run("replay", "small", "--topic", "no topic")
    assert (unnamed.code, unnamed.err) == (2, "Error: --topic: is no name of a Kafka topic; name another one\n")
    done = await terminal.run("replay", "small", "--topic", "theirs")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'theirs' is the topic of an intake" in done.err


async def test_a_model_that_no_worker_serves_is_refused_before_anything_is_asked(
    settings: Settings, terminal: Terminal
) -> None:
    await write(settings, turn("ann", "1", "hello there", "Hi", NOW - 1))
    await _state(settings, "demo", "small")
    async with scripted_worker(settings) as worker:
        for unknown in ("nope", "smal", "Small"):
            done = await terminal.run("replay", unknown)
            why = f"no worker serves a model {unknown!r}; there are demo, small"
            assert (done.code, done.out, done.err) == (2, "", f"Error: {why}\n")
        assert worker.requests == []
        for known in ("small", "default", "auto", "small@0a1b"):
            done = await terminal.run("replay", known)
            assert (done.code, done.err) == (0, "1 answered\n")
    assert [one.model for one in worker.requests] == ["small", "default", "auto", "small@0a1b"]


async def _state(settings: Settings, *models: str) -> None:
    """What an owner commits."""
    owned = TopicPartition(settings.topic("requests"), 0)
    committing = AIOKafkaConsumer(**settings.cluster.options(), group_id=settings.group, enable_auto_commit=False)
    committing.assign([owned])
    await committing.start()
    await committing.commit({owned: OffsetAndMetadata(0, encode_metadata(Handover(0, models=models)))})
    await committing.stop()


async def test_a_period_without_any_time_is_wrong_use(terminal: Terminal) -> None:
    for command in (["replay", "small"], ["search", "--user", "ann", "parcel"]):
        done = await terminal.run(*command, "--since", "1h", "--until", "2h")
        assert (done.code, done.out) == (2, "")
        assert done.err.endswith("--until must be later than --since: no time lies between them\n")
