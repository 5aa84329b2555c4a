"""What a model sees of a request: its texts, with placeholders for private values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from msgspec.structs import replace

from agents.off_loop import off_loop
from app.delivery.inflight import InFlightRequest
from app.wire.request import Message, Request
from app.wire.response_format import ResponseFormat
from models.chat import ChatMessage
from models.private.forms import Form
from models.private.json_text import is_json, parts_of
from models.private.mask import Mask
from tables.records import Turn
from tables.tool_calls import ToolRounds


def texts_of_request(request: Request) -> list[str]:
    """All texts of the request that a model reads."""
    texts = [request.prompt or ""]
    for message in request.messages or ():
        texts += (message.text, message.name or "")
        texts += (json_text(call.function.arguments) for call in message.tool_calls or ())
    texts += (one.content for one in request.tool_results or ())
    return [text for text in texts if text]


async def texts_to_read(inflight: InFlightRequest, memory: Sequence[Turn] = ()) -> list[str]:
    """The texts of the request, of its rounds of calls, and of these turns."""

    def read() -> list[str]:
        older = (text for turn in memory for text in texts_of_turn(turn))
        return [*texts_of_request(inflight.request), *texts_of_rounds(inflight.rounds), *older]

    steps = chain(inflight.rounds.steps, *((*turn.before, *turn.steps) for turn in memory))
    size = len(inflight.record.value or b"") + size_of(turn.prompt + turn.answer for turn in memory)
    arguments = sum(len(call.arguments) for step in steps for call in step.calls)
    return await off_loop(size + arguments, read)


def texts_of_turn(turn: Turn) -> list[str]:
    steps = (text for one in (*turn.before, *turn.steps) for text in _texts_of_message(one))
    return [text for text in (turn.prompt, turn.answer, *steps) if text]


def texts_of_rounds(rounds: ToolRounds) -> list[str]:
    return [text for one in rounds.steps for text in _texts_of_message(one) if text]


def size_of(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def _texts_of_message(message: ChatMessage) -> Iterator[str]:
    yield message.content
    yield message.name
    yield from (json_text(call.arguments) for call in message.calls)


def json_text(text: str) -> str:
    """The strings, names and numbers in JSON text, a line each; text that is no JSON as it is."""
    return "\n".join(parts_of(text)) if is_json(text) else text


async def seen_by_model(inflight: InFlightRequest) -> Request:
    """The request with placeholders; made once for each mask."""
    if inflight.seen is None or inflight.seen[0] is not inflight.mask:
        mask, request = inflight.mask, inflight.request
        inflight.seen = mask, await off_loop(len(inflight.record.value or b""), partial(seen_request, request, mask))
    return inflight.seen[1]


def seen_now(inflight: InFlightRequest) -> Request:
    """The same, after the model's prompt has been built."""
    if inflight.seen is None or inflight.seen[0] is not inflight.mask:
        inflight.seen = inflight.mask, seen_request(inflight.request, inflight.mask)
    return inflight.seen[1]


def seen_request(request: Request, mask: Mask) -> Request:
    if not mask:
        return request
    messages = None if request.messages is None else tuple(_seen_message(one, mask) for one in request.messages)
    results = None
    if request.tool_results is not None:
        results = tuple(replace(one, content=mask.hide(one.content)) for one in request.tool_results)
    return replace(
        request,
        prompt=None if request.prompt is None else mask.hide(request.prompt),
        messages=messages,
        tool_results=results,
        stop=None if request.stop is None else tuple(map(mask.hide, request.stop_strings)),
        response_format=_seen_format(request.response_format, mask),
    )


def _seen_message(message: Message, mask: Mask) -> Message:
    calls = message.tool_calls
    if calls is not None:
        calls = tuple(
            replace(call, function=replace(call.function, arguments=mask.hide_json(call.function.arguments)))
            for call in calls
        )
    return replace(
        message,
        content=None if message.content is None else mask.hide(message.content),
        name=None if message.name is None else mask.hide(message.name),
        tool_calls=calls,
    )


def _seen_format(form: ResponseFormat | None, mask: Mask) -> ResponseFormat | None:
    if form is None:
        return None
    if form.choices is not None:
        return replace(form, choices=tuple(map(mask.hide, form.choices)))
    if form.regex is not None:
        return replace(form, regex=Form(mask).regex(form.regex))
    if form.json_schema is not None:
        return replace(form, json_schema=replace(form.json_schema, schema_=Form(mask).schema(form.json_schema.schema_)))
    return form


def seen_turns(turns: Sequence[Turn], mask: Mask) -> tuple[Turn, ...]:
    return tuple(seen_turn(turn, mask) for turn in turns) if mask else tuple(turns)


def seen_turn(turn: Turn, mask: Mask) -> Turn:
    return replace(
        turn,
        prompt=mask.hide(turn.prompt),
        answer=mask.hide(turn.answer),
        steps=seen_steps(turn.steps, mask),
        before=seen_steps(turn.before, mask),
    )


def seen_steps(steps: Sequence[ChatMessage], mask: Mask) -> tuple[ChatMessage, ...]:
    if not mask:
        return tuple(steps)
    return tuple(
        dataclasses.replace(
            one,
            content=mask.hide(one.content),
            name=mask.hide(one.name),
            calls=tuple(dataclasses.replace(call, arguments=mask.hide_json(call.arguments)) for call in one.calls),
        )
        for one in steps
    )
