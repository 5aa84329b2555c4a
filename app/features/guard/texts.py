"""The texts of requests, turns and rounds of calls: those that the guard reads, and those with placeholders."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from msgspec.structs import replace

from app.answering.dialogue import Dialogue
from app.delivery.accepted import Accepted
from app.features.programs.history import is_step_name
from app.private.forms import MaskedForm
from app.private.json_text import is_json, parts_of
from app.private.mask import Mask
from app.private.value import PrivateValue
from app.process.off_loop import off_loop
from app.wire.event import RecalledTurn
from app.wire.request import Message, Request, TemplateValues
from app.wire.response_format import ResponseFormat
from app.wire.turn import Turn
from models.interface.chat import ChatMessage
from tables.records import KeptTurn
from tables.tool_calls import ToolRound, ToolRounds


def texts_of_request(request: Request) -> list[str]:
    """All texts of the request that a model reads."""
    texts = [request.prompt or ""]
    texts += (one for one in (request.chat_template_kwargs or {}).values() if isinstance(one, str))
    for message in request.messages or ():
        texts += (message.text, message.name or "", message.reasoning_content or "")
        texts += (json_text(call.function.arguments) for call in message.tool_calls or ())
    texts += (one.content for one in request.tool_results or ())
    return [text for text in texts if text]


async def texts_to_read(accepted: Accepted, rounds: ToolRounds, turns: Sequence[KeptTurn] = ()) -> list[str]:
    """The texts of the request, of its rounds of calls, and of these turns."""

    def read() -> list[str]:
        older = (text for turn in turns for text in texts_of_turn(turn))
        return [*texts_of_request(accepted.request), *texts_of_rounds(rounds), *older]

    steps = chain(rounds.steps, *((*turn.before, *turn.steps) for turn in turns))
    size = len(accepted.record.value or b"") + size_of(turn.prompt + turn.answer for turn in turns)
    arguments = sum(len(call.arguments) for step in steps for call in step.calls)
    return await off_loop(size + arguments, read)


def texts_of_turn(turn: KeptTurn) -> list[str]:
    steps = (text for one in (*turn.before, *turn.steps) for text in _texts_of_message(one))
    return [text for text in (turn.prompt, turn.answer, *steps) if text]


def texts_of_rounds(rounds: ToolRounds) -> list[str]:
    return [text for one in rounds.steps for text in _texts_of_message(one) if text]


def size_of(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def _texts_of_message(message: ChatMessage) -> Iterator[str]:
    yield json_text(message.content) if is_step_name(message.name) else message.content
    yield message.name
    yield message.reasoning
    yield from (json_text(call.arguments) for call in message.calls)


def json_text(text: str) -> str:
    """The strings, names and numbers in JSON text, a line each; text that is no JSON as it is."""
    return "\n".join(parts_of(text)) if is_json(text) else text


async def hidden(dialogue: Dialogue, mask: Mask) -> Dialogue:
    """All that the model gets to read, with placeholders. `dialogue.request` is hidden already."""

    def hide() -> Dialogue:
        return dataclasses.replace(
            dialogue,
            memory=tuple(hidden_turn(turn, mask) for turn in dialogue.memory),
            recalled=tuple(
                replace(one, prompt=mask.hide(one.prompt), answer=mask.hide(one.answer)) for one in dialogue.recalled
            ),
            rounds=_hidden_rounds(dialogue.rounds, mask),
            written=mask.hide(dialogue.written),
            mask=mask,
        )

    older = chain[KeptTurn | RecalledTurn](dialogue.memory, dialogue.recalled)
    size = size_of(turn.prompt + turn.answer for turn in older) + len(dialogue.written)
    steps = chain(dialogue.rounds.steps, *((*turn.before, *turn.steps) for turn in dialogue.memory))
    return await off_loop(size + size_of(one.content for one in steps), hide)


async def hidden_request_of(accepted: Accepted, mask: Mask) -> Request:
    return await off_loop(len(accepted.record.value or b""), partial(hidden_request, accepted.request, mask))


def hidden_request(request: Request, mask: Mask) -> Request:
    if not mask:
        return request
    messages = None if request.messages is None else tuple(_hidden_message(one, mask) for one in request.messages)
    results = None
    if request.tool_results is not None:
        results = tuple(replace(one, content=mask.hide(one.content)) for one in request.tool_results)
    return replace(
        request,
        prompt=None if request.prompt is None else mask.hide(request.prompt),
        messages=messages,
        tool_results=results,
        stop=None if request.stop is None else tuple(map(mask.hide, request.stop_strings)),
        response_format=_hidden_format(request.response_format, mask),
        chat_template_kwargs=_hidden_values(request.chat_template_kwargs, mask),
    )


def _hidden_values(values: TemplateValues | None, mask: Mask) -> TemplateValues | None:
    if values is None:
        return None
    return {name: mask.hide(value) if isinstance(value, str) else value for name, value in values.items()}


def _hidden_message(message: Message, mask: Mask) -> Message:
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
        reasoning_content=None if message.reasoning_content is None else mask.hide(message.reasoning_content),
        tool_calls=calls,
    )


def _hidden_format(form: ResponseFormat | None, mask: Mask) -> ResponseFormat | None:
    if form is None:
        return None
    if form.choices is not None:
        return replace(form, choices=tuple(map(mask.hide, form.choices)))
    if form.regex is not None:
        return replace(form, regex=MaskedForm(mask).regex(form.regex))
    if form.json_schema is not None:
        return replace(
            form, json_schema=replace(form.json_schema, schema_=MaskedForm(mask).schema(form.json_schema.schema_))
        )
    return form


def hidden_turn(turn: KeptTurn, mask: Mask) -> KeptTurn:
    return replace(
        turn,
        prompt=mask.hide(turn.prompt),
        answer=mask.hide(turn.answer),
        steps=hidden_steps(turn.steps, mask),
        before=hidden_steps(turn.before, mask),
    )


def hidden_steps(steps: Sequence[ChatMessage], mask: Mask) -> tuple[ChatMessage, ...]:
    if not mask:
        return tuple(steps)
    return tuple(
        dataclasses.replace(
            one,
            content=mask.hide(one.content),
            name=mask.hide(one.name),
            reasoning=mask.hide(one.reasoning),
            calls=tuple(dataclasses.replace(call, arguments=mask.hide_json(call.arguments)) for call in one.calls),
        )
        for one in steps
    )


def _hidden_rounds(rounds: ToolRounds, mask: Mask) -> ToolRounds:
    return replace(rounds, rounds=tuple(_hidden_round(one, mask) for one in rounds.rounds)) if rounds.rounds else rounds


def _hidden_round(one: ToolRound, mask: Mask) -> ToolRound:
    calls = tuple(dataclasses.replace(call, arguments=mask.hide_json(call.arguments)) for call in one.calls)
    outcomes = tuple(replace(result, content=mask.hide(result.content)) for result in one.outcomes)
    words = tuple(replace(added, text=mask.hide(added.text)) for added in one.words)
    text, reasoning = mask.hide(one.text), mask.hide(one.reasoning)
    return replace(one, text=text, calls=calls, outcomes=outcomes, reasoning=reasoning, words=words)


def indexed_turn(turn: Turn, secret: bytes, values: Iterable[PrivateValue]) -> Turn:
    """A record of `turns` with placeholders instead of these values, as the index has it."""
    mask = Mask(secret, turn.user_id, values)
    return replace(turn, prompt=mask.hide(turn.prompt), answer=mask.hide(turn.answer))
