"""`parley replay`: past turns asked again of another model."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click
import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from app.commands.erasures import AskedErasures, erasures_from_now
from app.commands.moment import Moment, check_period
from app.commands.served_models import check_model
from app.commands.stored_turns import TurnFilter, stored_turns
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, partitions_of, producer, start, stop
from app.policy.check import read_policy
from app.policy.file import PolicyError
from app.policy.foreign import EgressRules
from app.process.printable import printable_json
from app.reader import Answer, TokenReader
from app.settings import Settings
from app.wire.codec import encode
from app.wire.control import Cancel
from app.wire.ids import new_request_id
from app.wire.request import Message, Priority, Request, Role
from app.wire.turn import Turn
from models.interface.generation import FinishReason

ERASED = "left out: they were erased meanwhile"
_CANCEL_S = 3.0
_ANSWERED = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS})


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of a turn: its own answer beside the new one. `error` is the code of an answer that failed."""

    request_id: str
    user_id: str
    conversation_id: str
    tenant: str | None
    prompt: str
    former_model_version: str
    former_answer: str
    model_version: str | None
    answer: str
    finish_reason: str | None
    usage: dict[str, int] | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Way:
    """How the turns are asked again. `topic`: where what comes of it goes; None: standard output."""

    model: str
    system: str | None
    max_tokens: int | None
    topic: str | None
    limit: int | None
    at_once: int


@click.command(short_help="Ask past requests again of another model.")
@click.argument("model")
@click.option("--since", type=Moment(), default="24h", show_default=True, help="Turns from this time on.")
@click.option("--until", type=Moment(), help="Only before this time.")
@click.option("--tenant", help="Only this tenant; '' for turns without one.")
@click.option("-u", "--user", help="Only this user.")
@click.option("--answered-by", "former", help="Only answers of this model, or this version of one.")
@click.option("--system", help="A system prompt in place of the workers' own.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Of each answer.")
@click.option("--topic", help="Write to this topic, keyed by user, instead of standard output.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="Stop after so many turns.")
@click.option(
    "--at-once", type=click.IntRange(1, 1000), default=16, show_default=True, help="So many are open at once."
)
def replay(since: int, until: int | None, tenant: str | None, user: str | None, former: str | None, **way: Any) -> None:
    """Ask the requests of past turns again of MODEL, each with the turns before it in its conversation.

    Each gives one line of JSON with the former answer and the new one. The requests have the lowest priority, are not
    remembered and not indexed, and count in the usage of their users' tenants. Erased turns are left out.
    """
    check_period(since, until)
    settings, choice, how = settings_of_terminal(), TurnFilter(since, until, tenant, user, former), Way(**way)
    _check_topic(settings, how.topic)
    counts = run(_replay(settings, choice, how))
    note(", ".join(f"{count} {what}" for what, count in counts.items()) or "no such turns")
    if counts.keys() - {"answered", ERASED}:
        raise SystemExit(1)


def _check_topic(settings: Settings, topic: str | None) -> None:
    """Replayed answers may go where an egress of the policy may lead."""
    if topic is None:
        return
    if topic in settings.own_topics():
        raise WrongUseError(f"--topic: {topic!r} is a topic of Parley's own; name another one")
    for mistake in EgressRules(topic=topic, fields={"answer": "answer"}).mistakes():
        raise WrongUseError(f"--{mistake.why}; name another one")
    try:
        intakes = read_policy(settings).intake
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    if topic in {rules.topic for rules in intakes}:
        raise WrongUseError(f"--topic: {topic!r} is the topic of an intake, which would answer the answers")


async def _replay(settings: Settings, choice: TurnFilter, way: Way) -> Counter[str]:
    cluster, topic = settings.cluster, settings.topic
    counts_of = await partitions_of(cluster, [topic("requests"), topic("tokens")])
    if way.topic is not None:
        await partitions_of(cluster, [way.topic], "create it first, with as many partitions as you like")
    await check_model(settings, counts_of[topic("requests")], way.model)
    requests = producer(cluster)
    await start(requests)
    counts: Counter[str] = Counter()
    failure: Exception | None = None
    try:
        async with TokenReader(cluster, topic("tokens")) as tokens, erasures_from_now(settings) as erasures:
            await _Replay(settings, way, requests, tokens, erasures, counts).run(choice)
    except (ExceptionGroup, KafkaError, KafkaUnusableError) as failed:
        failure = _first(failed)
    finally:
        await stop(requests)
    if isinstance(failure, KafkaError | KafkaUnusableError):
        raise KafkaUnusableError(f"the replay has ended after {counts.total()} turns: {failure}")
    if failure is not None:
        raise failure  # a BrokenPipeError, for example, of `parley replay ... | head`
    return counts


def _first(failed: Exception) -> Exception:
    return _first(failed.exceptions[0]) if isinstance(failed, ExceptionGroup) else failed


@dataclass(slots=True)
class _Replay:
    settings: Settings
    way: Way
    requests: AIOKafkaProducer
    tokens: TokenReader
    erasures: AskedErasures
    counts: Counter[str]
    begun: int = 0

    async def run(self, choice: TurnFilter) -> None:
        places = asyncio.Semaphore(self.way.at_once)

        async def ask(turn: Turn, before: Iterable[Turn]) -> None:
            try:
                await self._ask(turn, before)
            finally:
                places.release()

        async with asyncio.TaskGroup() as asking:
            async for _, turns in stored_turns(self.settings, choice, self._context_ms):
                before: dict[tuple[str, str], deque[Turn]] = {}
                for turn in turns:
                    earlier = before.setdefault(
                        (turn.user_id, turn.conversation_id), deque(maxlen=self.settings.conversation_turns + 1)
                    )
                    if turn.answer:
                        earlier.append(turn)
                    if not choice.includes(turn) or not _can_be_asked_again(turn):
                        continue
                    if self.begun == self.way.limit:
                        return
                    self.begun += 1
                    await places.acquire()
                    asking.create_task(ask(turn, [one for one in earlier if one is not turn]))

    @property
    def _context_ms(self) -> int:
        """How far back the first of the turns lies that a conversation may have remembered."""
        return int(self.settings.conversation_ttl_s * 1000) * max(1, self.settings.conversation_turns)

    async def _ask(self, turn: Turn, before: Iterable[Turn]) -> None:
        if await self.erasures.include(turn.user_id, turn.conversation_id):
            self.counts[ERASED] += 1
            return
        request = request_of(turn, before, self.way)
        following = self.tokens.follow(request.user_id, request.request_id)
        try:
            await self._send(self.settings.topic("requests"), request)
            async for update in following:
                answer = update.answer
        except asyncio.CancelledError:
            cancel = Cancel(request_id=request.request_id, user_id=turn.user_id)
            try:
                async with asyncio.timeout(_CANCEL_S):
                    await self._send(self.settings.topic("controls"), cancel)
            except TimeoutError:
                note(f"the request {request.request_id} of {turn.user_id} goes on: Kafka does not take its cancel")
            raise
        finally:
            following.close()
            self.tokens.rule.forget((request.user_id, request.request_id))
        if await self.erasures.include(turn.user_id, turn.conversation_id):
            self.counts[ERASED] += 1
            return
        replayed = replayed_of(turn, answer)
        how = replayed.error or replayed.finish_reason
        self.counts["answered" if how in _ANSWERED else f"ended in {how}"] += 1
        line = msgspec.json.encode(replayed)
        if self.way.topic is None:
            click.echo(printable_json(line))
        else:
            await self.requests.send_and_wait(self.way.topic, line, key=turn.user_id.encode())

    async def _send(self, topic: str, record: Request | Cancel) -> None:
        value, headers = encode(record, self.settings.wire_format)
        await self.requests.send_and_wait(topic, value, key=record.user_id.encode(), headers=headers)


def _can_be_asked_again(turn: Turn) -> bool:
    """Not without its prompt, or with calls, whose tools and results are not on `turns`, or if the guard refused it."""
    return bool(turn.prompt) and not turn.tool_calls and not turn.is_refused


def request_of(turn: Turn, before: Iterable[Turn], way: Way) -> Request:
    """The turn's prompt as a request of its own, whose context are the turns before it."""
    messages = [] if way.system is None else [Message(Role.SYSTEM, way.system)]
    for one in before:
        messages += [Message(Role.USER, one.prompt), Message(Role.ASSISTANT, one.answer)]
    request_id = new_request_id()
    return Request(
        request_id=request_id,
        user_id=turn.user_id,
        conversation_id=f"replay-{request_id}",
        messages=(*messages, Message(Role.USER, turn.prompt)),
        model=way.model,
        max_tokens=way.max_tokens,
        priority=Priority.BATCH,
        tenant=turn.tenant,
        store=False,
        cache=False,
        recall=0,
    )


def replayed_of(turn: Turn, answer: Answer) -> Replayed:
    end = answer.end
    assert end is not None, "the answer has not ended"
    return Replayed(
        request_id=turn.request_id,
        user_id=turn.user_id,
        conversation_id=turn.conversation_id,
        tenant=turn.tenant,
        prompt=turn.prompt,
        former_model_version=turn.model_version,
        former_answer=turn.answer,
        model_version=end.model_version,
        answer=answer.text,
        finish_reason=None if end.finish_reason is None else end.finish_reason.value,
        usage=None if end.usage is None else msgspec.to_builtins(end.usage),
        error=None if end.error is None else end.error.code,
    )
