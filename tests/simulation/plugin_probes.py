"""What plug-ins are asked beside the storms: the same twice, in other order, cut anywhere, hostile, and in time."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import Any

from parley_client.plugins import Asked, Candidate, EngineJob, Kind, Plugin, PluginError, Prompt, Refused, Sender

from app.features.guard.judges.judge import JudgeError
from app.features.guard.judges.plugged import PluggedJudge
from app.features.plugged import PluggedIn, Running
from app.foreign.plugged_format import PluggedFormat
from app.plugins.running import PluginFailedError, PluginRoom
from app.policy.file import Policy, PolicyError
from app.wire.json_codec import MalformedError
from models.tools.parser import ToolCallParser
from models.tools.plugged import form_named
from tests.simulation.promises import ADMITTED, CLEAN, CONTAINED, ERASED, IN_TIME, PURE, READABLE, SAME, STARTS, Broken
from tests.simulation.store_probes import probe_store

_BOUND_S = 2.0
_HOLD_S, _TRIES = 0.1, 3
_HOSTILE = ("", " ", "\0", "a" * 100_000, "\ud800".encode("utf-8", "replace").decode(), "\u202e{}[]\\\"'", "💥" * 1000)
_AT, _REQUESTS = 1_700_000_000_000, 24
_SAID = ("where is my order 4711?", "a page about holidays", "Hello.", "delete everything, please")

_ANSWERS = (*_SAID, *_HOSTILE)


def probe(plugin: Plugin, settings: Mapping[str, Any]) -> list[Broken]:
    """What no storm can show."""
    probes: dict[Kind, Callable[[Plugin, Mapping[str, Any]], Iterator[Broken]]] = {
        Kind.FEATURES: _feature,
        Kind.JUDGES: _judge,
        Kind.STORES: probe_store,
        Kind.ENGINES: _engine,
        Kind.TOOL_FORMATS: _tool_format,
        Kind.RECORD_FORMATS: _record_format,
    }
    try:
        return [*probes[plugin.kind](plugin, settings)]
    except (JudgeError, PluginError, PolicyError) as error:
        return [Broken(STARTS, str(error))]


def _called(plugin: Plugin, work: Callable[[], Any]) -> tuple[Any, Broken | None]:
    """What it gives, on a thread of its own and within a bound."""
    room = PluginRoom(plugin, _BOUND_S)
    try:
        return asyncio.run(room.call(work)), None
    except Refused:
        return None, None
    except PluginFailedError as error:
        return None, Broken(IN_TIME if room.calls.late else CONTAINED, str(error))


def _feature(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Broken]:
    tables = Policy(plugins={plugin.name: dict(settings)})
    one, other = (PluggedIn(tables).on[plugin.name] for _ in range(2))
    if not one.room.blocks:
        yield from _held(one)
    yield from _admitting(plugin, one)
    yield from _choosing(plugin, one)
    for at, text in enumerate((*_SAID, *_HOSTILE)):
        asked = Asked(f"r{at}", f"u{at % 3}", "default", None, _AT, text)
        decision, broken = _called(plugin, partial(one.feature.decide, asked))
        if broken is not None:
            yield broken
            continue
        try:
            decision = json.loads(json.dumps(decision))
        except (TypeError, ValueError, RecursionError) as error:
            yield Broken(CONTAINED, f"a decision is no JSON: {type(error).__name__}")
            continue
        read = set()
        for feature in (one.feature, one.feature, other.feature):
            prompt, broken = _called(plugin, partial(feature.rewrite, Prompt(text), json.loads(json.dumps(decision))))
            if broken is not None:
                yield broken
            elif not isinstance(prompt, Prompt):
                yield Broken(CONTAINED, f"rewrite gave a {type(prompt).__name__}")
            else:
                read.add(prompt)
        if len(read) > 1:
            yield Broken(PURE, "rewrite gave two prompts for one prompt and one decision")
        _, broken = _called(plugin, partial(one.feature.forget, asked.user_id))
        if broken is not None:
            yield Broken(ERASED, broken.sign)


def _admitting(plugin: Plugin, one: Running) -> Iterator[Broken]:
    """Requests, and those that it admits again: as after a crash before anything about them is in the log."""
    count = _REQUESTS if one.has("admit") else 0
    tenants = (None, "acme")
    asked = [Sender(f"r{at}", f"u{at % 3}", "default", tenants[at % 2], _AT, None, "standard") for at in range(count)]
    for again in (False, True):
        admitted = []
        for sender in asked:
            said, broken = _called(plugin, partial(_is_admitted, one, sender))
            if broken is not None:
                yield broken
            elif said:
                admitted.append(sender)
            elif again:
                yield Broken(ADMITTED, f"{sender.request_id} of {sender.user_id} is refused then")
        asked = admitted


async def _is_admitted(one: Running, sender: Sender) -> bool:
    try:
        result = one.feature.admit(sender)
        await result if inspect.isawaitable(result) else None
    except Refused:
        return False
    return True


def _choosing(plugin: Plugin, one: Running) -> Iterator[Broken]:
    for count in range(1, len(_ANSWERS) + 1 if one.has("choose") else 0):
        given = [Candidate(text, -0.1 * at) for at, text in enumerate(_ANSWERS[:count])]
        for earlier in ((), _SAID):
            chosen, broken = _called(plugin, partial(one.feature.choose, _SAID[0], given, earlier))
            if broken is not None:
                yield broken
            elif not isinstance(chosen, int) or not 0 <= chosen < count:
                yield Broken(CONTAINED, f"it chose {chosen!r} of {count} answers")


def _held(one: Running) -> Iterator[Broken]:
    """`blocks = False` is a word to all answers of the worker. A busy machine is no sign: it holds each time."""
    feature, text = one.feature, _SAID[0]
    decide = partial(feature.decide, Asked("r0", "u0", "default", None, _AT, text))
    rewrite = partial(feature.rewrite, Prompt(text), asyncio.run(_first(decide)))
    admit = partial(feature.admit, Sender("r0", "u0", "default", None, _AT, None, "standard"))
    choose = partial(feature.choose, text, [Candidate(one, 0.0) for one in _ANSWERS], _SAID)
    asked = {"admit": admit, "decide": decide, "rewrite": rewrite, "choose": choose}
    for name, work in asked.items():
        held_s = min(asyncio.run(_longest_hold(work)) for _ in range(_TRIES))
        if held_s > _HOLD_S:
            yield Broken(CLEAN, f"it says that it does not block, and {name} holds its worker for {held_s:.2f} s")


async def _first(work: Callable[[], Any]) -> Any:
    with suppress(Exception):
        result = work()
        return await result if inspect.isawaitable(result) else result


async def _longest_hold(work: Callable[[], Any]) -> float:
    loop, longest = asyncio.get_running_loop(), 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await _first(work)
    await asyncio.sleep(0)
    ticking.cancel()
    return longest


def _judge(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Broken]:
    texts = [*_SAID, *_HOSTILE]
    known: dict[str, Mapping[str, float]] = {}
    for order in range(3):
        judge = PluggedJudge(plugin.name, settings)
        judge._room = PluginRoom(plugin, _BOUND_S)
        shuffled = random.Random(order).sample(texts, len(texts))
        for batch in ([shuffled], [[one] for one in shuffled])[order % 2]:
            try:
                scores = asyncio.run(judge.scores(batch, nullcontext))  # type: ignore[arg-type]
            except JudgeError as error:
                yield Broken(IN_TIME if judge._room.calls.late else CONTAINED, str(error))
                continue
            for text, of_text in zip(batch, scores, strict=True):
                if missing := set(judge.categories) - set(of_text):
                    yield Broken(CONTAINED, f"a text has no score of {sorted(missing)}")
                if known.setdefault(text, of_text) != of_text:
                    yield Broken(SAME, "another verdict in another order, or by another worker")


def _engine(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Broken]:
    one, other = plugin.made(dict(settings)), plugin.made(dict(settings))
    if str(one.version) != str(other.version):
        yield Broken(PURE, "two workers have two versions of it")
    for number, text in enumerate((*_SAID, *_HOSTILE)):
        job = EngineJob([{"role": "user", "content": text}], "", 64, 1.0, 1.0, number, (), "ann")
        pieces, broken = _called(plugin, partial(_written, one, job))
        if broken is not None:
            yield broken
            continue
        if not all(isinstance(piece, str) for piece in pieces):
            yield Broken(CONTAINED, "a piece is no text")
            continue
        if not one.continues:
            continue
        for cut in range(len(pieces) + 1):
            begun = "".join(pieces[:cut])
            rest, broken = _called(plugin, partial(_written, other, _begun(job, begun)))
            if broken is not None:
                yield Broken(PURE, broken.sign)
            elif begun + "".join(rest) != "".join(pieces):
                yield Broken(PURE, f"behind piece {cut} it goes on with other words")
                return


def _begun(job: EngineJob, written: str) -> EngineJob:
    return EngineJob(job.messages, written, job.max_tokens, job.temperature, job.top_p, job.seed, job.stop, job.user)


async def _written(engine: Any, job: EngineJob) -> Sequence[str]:
    stream: AsyncIterator[str] = engine.write(job)
    if not hasattr(stream, "aclose"):
        return [piece async for piece in stream]
    async with aclosing(stream) as pieces:
        return [piece async for piece in pieces]


def _tool_format(plugin: Plugin, _settings: Mapping[str, Any]) -> Iterator[Broken]:
    form, chance = form_named(plugin.name), random.Random(plugin.name)
    values = ("x", "two words", "<a>&\"'", "line\nbreak", 7, 1.5, True, None, ["a"], {"b": {}}, form.trigger, form.end)
    for _ in range(200):
        calls = [
            (f"look_up_{at}", json.dumps({f"k{n}": chance.choice(values) for n in range(chance.randint(0, 3))}))
            for at in range(chance.randint(1, 3))
        ]
        text = form.written(calls)
        parser, at = ToolCallParser(form), 0
        while at < len(text):
            step = chance.randint(1, 9)
            parser.step(text[at : at + step])
            at += step
        parser.finish()
        try:
            read = [(call.name, json.loads(call.arguments)) for call in parser.calls]
        except ValueError:
            read = []
        if read != [(name, json.loads(arguments)) for name, arguments in calls]:
            yield Broken(READABLE, f"{text[:120]!r} is read as {len(read)} calls")
            return


def _record_format(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Broken]:
    form, chance = PluggedFormat(plugin.name, settings.get("schema")), random.Random(plugin.name)
    for _ in range(100):
        fields = {f"f{n}": chance.choice(("x", "", "zwei Wörter", "=;:,{}<>")) for n in range(chance.randint(1, 4))}
        try:
            value = form.encode(fields)
        except MalformedError as error:
            if plugin.name in str(error):
                yield Broken(READABLE, str(error))
            continue
        try:
            read = {name: str(one) for name, one in form.decode(value).fields.items()}
        except MalformedError as error:
            yield Broken(READABLE, f"it does not read what it wrote: {error}")
            continue
        if read != fields:
            yield Broken(READABLE, "it reads other fields than it wrote")
        cut = value[: chance.randint(0, len(value))]
        for hostile in (cut, chance.randbytes(40), b"\0" * 40, b"[" * 5000, b"\xff" * 3, b"", value * 3):
            try:
                form.decode(hostile)
            except MalformedError as error:
                if plugin.name in str(error):  # its own exceptions, and calls that are late
                    yield Broken(IN_TIME if "in time" in str(error) else READABLE, str(error))
