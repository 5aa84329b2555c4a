"""What the real engine had to say: every request once more, in this process, by an engine that nothing happens to.

A request's prompt holds the turns that ended before it in its conversation, as `turns` has them, and sampling is keyed
by seed and index. So each request can be asked for itself, whatever became of the workers that answered it first.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

from app.answering.dialogue import Dialogue
from app.answering.job import job_of, prompt_of
from app.delivery.accepted import Accepted
from app.delivery.record import REQUESTS, Record
from app.reader import ReaderRule
from app.serving.loading import load_models
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from models.interface.generation import Delta, Engine, Job
from models.served.registry import ServedModel
from tables.records import KeptTurn
from tests.faults.records import Key, Records


class Replay:
    """Implements `tests.faults.verdict.Replay` for workers with the settings `settings`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __call__(self, requests: Records, tokens: Records, turns: Records) -> list[Key]:
        model = (await asyncio.to_thread(load_models, self._settings, _broken)).default
        jobs = [(one.key, await self._job(one, memory, model)) for one, memory in _asked(requests, turns)]
        await model.engine.start()
        try:
            recovered = await asyncio.gather(*(_answer(model.engine, job) for _, job in jobs))
        finally:
            await model.engine.stop()
        texts = _texts_of(tokens)
        # An answer that ended in an error, or was cancelled, is the beginning of what it would have been.
        return [
            key
            for (key, _), words in zip(jobs, recovered, strict=True)
            if key in texts and words[: len(texts[key])] != texts[key]
        ]

    async def _job(self, accepted: Accepted, memory: tuple[KeptTurn, ...], model: ServedModel) -> Job:
        dialogue = Dialogue(accepted.request, memory)
        return job_of(dialogue, await prompt_of(dialogue, model, self._settings, 0), model, self._settings)


def _asked(requests: Records, turns: Records) -> list[tuple[Accepted, tuple[KeptTurn, ...]]]:
    """Each request with what its conversation remembered."""
    answered = {(turn.user_id, turn.request_id): turn for turn in (decode(Turn, r.value, r.headers) for r in turns)}
    memory: dict[tuple[str, str], tuple[KeptTurn, ...]] = defaultdict(tuple)
    asked = []
    for record in requests:
        whole = Record(
            REQUESTS, record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
        )
        accepted = Accepted(whole, decode(Request, record.value, record.headers), 0)
        asked.append((accepted, memory[accepted.conversation]))
        if (turn := answered.get(accepted.key)) is not None and turn.answer:
            recovered = KeptTurn(turn.request_id, turn.prompt, turn.answer, turn.created_at)
            memory[accepted.conversation] = (*memory[accepted.conversation], recovered)
    return asked


def _texts_of(tokens: Records) -> dict[Key, tuple[int, ...]]:
    rule = ReaderRule(remember=sys.maxsize)
    for record in tokens:
        rule.read(record.partition, record.offset, decode(TokenEvent, record.value, record.headers))
    return {key: tuple(answer.tokens) for key, answer in rule.answers.items()}


async def _answer(engine: Engine, job: Job) -> tuple[int, ...]:
    (stream,) = engine.submit([job])
    return tuple([token async for event in stream if isinstance(event, Delta) for token in event.tokens])


def _broken(line: str) -> None:
    raise RuntimeError(line)
