"""Calls of tools, in the engine: complete, and the same after every interruption."""

from __future__ import annotations

import asyncio
import json

import pytest

from models.interface.generation import Delta, End, FinishReason, Job, Sampling, Stream
from models.tools import FORMATS, ModelTool, ToolChoice, ToolFormat, tool_constraint
from tests.unit.models import tiny
from tests.unit.models.engine.reading import job
from tests.unit.models.tools.test_parser import every_format

PROMPT = tuple(range(10, 30))
TOOLS = [
    ModelTool(
        "order_status",
        "",
        {"properties": {"order": {"enum": ["1", "22"]}, "fast": {"type": "boolean"}}, "required": ["order"]},
    ),
    ModelTool("help", "", {"properties": {}}),
]


def asking(form: ToolFormat, seed: int, generated: tuple[int, ...] = ()) -> Job:
    constraint = tool_constraint(form, TOOLS, ToolChoice.REQUIRED)
    sampling = Sampling(temperature=1.0, seed=seed)
    return job(PROMPT, 320, constraint=constraint, sampling=sampling, tools=form, generated=generated)


Said = tuple[list[int], str, list[tuple[int, str, str]], End]
"""Tokens, text, parts of calls, and the end."""


async def read(engine, asked: Job) -> Said:
    (stream,) = engine.submit([asked])
    return await read_stream(stream, asked)


async def read_stream(stream: Stream, asked: Job) -> Said:
    tokens, text, parts = list(asked.generated), "", []
    async for event in stream:
        if isinstance(event, Delta):
            tokens += event.tokens
            parts += [(part.index, part.name, part.arguments) for part in event.calls]
            text += event.text
        else:
            end = event
            assert isinstance(end, End)
            text += end.text
    return tokens, text, parts, end


def joined(parts: list[tuple[int, str, str]]) -> list[tuple[str, str]]:
    found: dict[int, list[str]] = {}
    for index, name, arguments in parts:
        call = found.setdefault(index, ["", ""])
        call[0] += name
        call[1] += arguments
    return [(name, arguments) for name, arguments in found.values()]


@every_format
@pytest.mark.parametrize("seed", range(3))
async def test_a_resumed_answer_has_the_same_calls(engines, form: ToolFormat, seed: int) -> None:
    engine = await engines(tiny.checkpoint(eos=True, max_position_embeddings=512), max_running=64)
    tokens, text, parts, end = await read(engine, asking(form, seed))
    assert (text, end.reason) == ("", FinishReason.TOOL_CALLS if end.reason is not FinishReason.LENGTH else end.reason)
    calls = [(call.name, call.arguments) for call in end.calls]
    assert calls
    assert calls == joined(parts)[: len(calls)]
    for name, arguments in calls:
        assert name in {"order_status", "help"}
        json.loads(arguments)
    resumed = [asking(form, seed, tuple(tokens[:cut])) for cut in range(5 * seed, len(tokens) + 1, 15)]
    read_all = map(read_stream, engine.submit(resumed), resumed)
    for again, _, rest, last in await asyncio.gather(*read_all):
        assert again == tokens
        assert (last.reason, last.calls) == (end.reason, end.calls)
        assert parts[len(parts) - len(rest) :] == rest


async def test_no_end_is_drawn_before_the_least_number_of_tokens(engines) -> None:
    checkpoint = tiny.checkpoint(eos=True)
    engine = await engines(checkpoint)
    often = tuple((token, 30.0) for token in checkpoint.eos)
    for least in (0, 1, 7):
        asked = job(PROMPT, 20, min_tokens=least, sampling=Sampling(temperature=1.0, seed=3, logit_bias=often))
        tokens, _, _, end = await read(engine, asked)
        assert (len(tokens), end.reason) == (least, FinishReason.STOP)
        assert not checkpoint.eos & set(tokens)


async def test_a_complete_call_ends_the_answer_whatever_its_least_length(engines) -> None:
    engine = await engines(tiny.checkpoint(eos=True))
    form = FORMATS["json"]
    constraint = tool_constraint(form, TOOLS[1:], ToolChoice.REQUIRED, is_single=True)
    _, _, _, end = await read(engine, job(PROMPT, 100, constraint=constraint, tools=form, min_tokens=100))
    assert (end.reason, [call.name for call in end.calls]) == (FinishReason.TOOL_CALLS, ["help"])
