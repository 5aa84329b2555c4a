"""Past turns as requests that ask another model again, each with the turns before it as its context.

Such a request has the lowest priority; it is not remembered, not indexed and not taken from the response cache. Its
conversation is `replay-ID` with the id of the request that it repeats, by which the two answers are joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable

from app.commands.erasures import erasures_from_now
from app.commands.served_models import check_model
from app.commands.stored_turns import TurnFilter, stored_turns
from app.kafka.clients import partitions_of
from app.settings import Settings
from app.wire.ids import MAX_NAME_LENGTH, new_request_id
from app.wire.request import Message, Priority, Request, Role
from app.wire.turn import Turn


async def past_requests(
    settings: Settings, choice: TurnFilter, users: frozenset[str] | None, model: str
) -> AsyncIterator[Request]:
    """Without what is erased, also meanwhile. Raises `WrongUseError` if no worker serves the model, `KafkaError` and
    `KafkaUnusableError`.
    """
    topic = settings.topic("requests")
    await check_model(settings, (await partitions_of(settings.cluster, [topic]))[topic], model)
    async with erasures_from_now(settings) as erasures:
        async for stored in stored_turns(settings, choice, _context_ms(settings)):
            before: dict[tuple[str, str], deque[Turn]] = {}
            for turn in stored.turns:
                earlier = before.setdefault(
                    (turn.user_id, turn.conversation_id), deque(maxlen=settings.conversation_turns)
                )
                is_chosen = choice.includes(turn) and (users is None or turn.user_id in users)
                is_chosen = is_chosen and not stored.has_later(turn)
                if (
                    is_chosen
                    and _can_be_asked_again(turn)
                    and not await erasures.include(turn.user_id, turn.conversation_id)
                ):
                    yield request_of(turn, earlier, model)
                if turn.answer:
                    earlier.append(turn)


def _context_ms(settings: Settings) -> int:
    """How far back the first of the turns lies that a conversation may have remembered."""
    return int(settings.conversation_ttl_s * 1000) * max(1, settings.conversation_turns)


def _can_be_asked_again(turn: Turn) -> bool:
    """Not without its prompt, or with calls, whose tools and results are not on `turns`, or if the guard refused it."""
    return bool(turn.prompt) and not turn.tool_calls and not turn.is_refused


def request_of(turn: Turn, before: Iterable[Turn], model: str) -> Request:
    messages: list[Message] = []
    for one in before:
        messages += [Message(Role.USER, one.prompt), Message(Role.ASSISTANT, one.answer)]
    return Request(
        request_id=new_request_id(),
        user_id=turn.user_id,
        conversation_id=f"replay-{turn.request_id}"[:MAX_NAME_LENGTH],
        messages=(*messages, Message(Role.USER, turn.prompt)),
        model=model,
        priority=Priority.BATCH,
        tenant=turn.tenant,
        store=False,
        cache=False,
        recall=0,
    )
