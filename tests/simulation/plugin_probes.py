"""What plug-ins are asked beside the storms: the same twice, in other order, cut anywhere, hostile, and in time."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import astuple, replace
from functools import partial
from typing import Any

from parley_client.plugins import Asked, Candidate, EngineJob, Kind, Plugin, PluginError, Prompt, Refused, Sender

from app.features.guard.judges.judge import JudgeError
from app.features.plugged import PluggedIn, Running
from app.foreign.plugged_format import PluggedFormat
from app.policy.file import Policy, PolicyError
from app.wire.json_codec import MalformedError
from models.tools.parser import ToolCallParser
from models.tools.plugged import form_named
from tests.simulation.judge_probes import probe_judge
from tests.simulation.plugin_calls import HOSTILE, SAID, called, elsewhere, first, held
from tests.simulation.promises import ADMITTED, CONTAINED, ERASED, IN_TIME, PURE, READABLE, STARTS, Broken
from tests.simulation.store_probes import probe_store

_AT, _REQUESTS = 1_700_000_000_000, 24
_ANSWERS = (*SAID, *HOSTILE)


def probe(plugin: Plugin, settings: Mapping[str, Any], said: Sequence[str] = ()) -> list[Broken]:
    """What no storm can show. `said` are texts that it knows."""
    probes: dict[Kind, Callable[[Plugin, Mapping[str, Any]], Iterator[Broken]]] = {
        Kind.FEATURES: partial(_feature, said=said),
        Kind.JUDGES: partial(probe_judge, said=said),
        Kind.STORES: probe_store,
        Kind.ENGINES: _engine,
        Kind.TOOL_FORMATS: _tool_format,
        Kind.RECORD_FORMATS: _record_format,
    }
    given = deepcopy(dict(settings))
    try:
        broken = [*probes[plugin.kind](plugin, given)]
    except (JudgeError, PluginError, PolicyError) as error:
        broken = [Broken(STARTS, str(error))]
    if given != settings:
        broken.append(Broken(STARTS, "it changes the settings that it is given, and the next one starts with others"))
    return broken


def _feature(plugin: Plugin, settings: Mapping[str, Any], said: Sequence[str]) -> Iterator[Broken]:
    tables = Policy(plugins={plugin.name: dict(settings)})
    one, other = (PluggedIn(tables).on[plugin.name] for _ in range(2))
    if not one.room.blocks:
        yield from held(_calls_of(one))
    yield from _admitting(plugin, one)
    yield from _choosing(plugin, one)
    in_the_log: list[tuple[str, Any]] = []
    prompts: list[Prompt] = []
    for at, text in enumerate((*said, *SAID, *HOSTILE)):
        asked = Asked(f"r{at}", f"u{at % 3}", "default", None, _AT, text)
        decision, broken = called(plugin, partial(one.feature.decide, asked))
        if broken is not None:
            yield broken
            continue
        try:
            logged = json.dumps(decision)
        except (TypeError, ValueError, RecursionError) as error:
            yield Broken(CONTAINED, f"a decision is no JSON: {type(error).__name__}")
            continue
        read = yield from _rewritten(plugin, (one, other), text, logged)
        if len(read) == 1:
            in_the_log.append((text, json.loads(logged)))
            prompts += read
        elif read:
            yield Broken(PURE, "rewrite gave two prompts for one prompt and one decision")
        _, broken = called(plugin, partial(one.feature.forget, asked.user_id))
        if broken is not None:
            yield Broken(ERASED, broken.sign)
    if len(prompts) == len((*said, *SAID, *HOSTILE)) and one.has("rewrite"):
        there = elsewhere(plugin, one.settings, in_the_log, PURE)
        if isinstance(there, Broken):
            yield there
        elif [Prompt(*given) for given in there] != prompts:
            yield Broken(
                PURE, "rewrite gives another prompt for one decision in another process, which has other state"
            )


def _rewritten(
    plugin: Plugin, owners: tuple[Running, Running], text: str, logged: str
) -> Generator[Broken, None, set[Prompt]]:
    """What the model reads in two rounds of the first owner, and with the next one."""
    read, of_first = set(), json.loads(logged)
    for owner, decision in ((owners[0], of_first), (owners[0], of_first), (owners[1], json.loads(logged))):
        prompt, broken = called(plugin, partial(owner.feature.rewrite, Prompt(text), decision))
        if broken is not None:
            yield broken
        elif not isinstance(prompt, Prompt):
            yield Broken(CONTAINED, f"rewrite gave a {type(prompt).__name__}")
        else:
            read.add(prompt)
    if of_first != json.loads(logged):
        yield Broken(PURE, "rewrite changes the decision that it is given; the next owner has it from the log")
    return read


def _admitting(plugin: Plugin, one: Running) -> Iterator[Broken]:
    """Requests, and those that it admits again: as after a crash before anything about them is in the log."""
    count = _REQUESTS if one.has("admit") else 0
    tenants = (None, "acme")
    asked = [Sender(f"r{at}", f"u{at % 3}", "default", tenants[at % 2], _AT, None, "standard") for at in range(count)]
    for again in (False, True):
        admitted = []
        for sender in asked:
            said, broken = called(plugin, partial(_is_admitted, one, sender))
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
        for earlier in ((), SAID):
            chosen, broken = called(plugin, partial(one.feature.choose, SAID[0], given, earlier))
            if broken is not None:
                yield broken
            elif not isinstance(chosen, int) or not 0 <= chosen < count:
                yield Broken(CONTAINED, f"it chose {chosen!r} of {count} answers")


def _calls_of(one: Running) -> dict[str, Callable[[], Any]]:
    feature, text = one.feature, SAID[0]
    decide = partial(feature.decide, Asked("r0", "u0", "default", None, _AT, text))
    rewrite = partial(feature.rewrite, Prompt(text), asyncio.run(first(decide)))
    admit = partial(feature.admit, Sender("r0", "u0", "default", None, _AT, None, "standard"))
    choose = partial(feature.choose, text, [Candidate(one, 0.0) for one in _ANSWERS], SAID)
    return {"admit": admit, "decide": decide, "rewrite": rewrite, "choose": choose}


def _engine(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Broken]:
    one, other = plugin.made(dict(settings)), plugin.made(dict(settings))
    if str(one.version) != str(other.version):
        yield Broken(PURE, "two workers have two versions of it")
    begun: list[EngineJob] = []
    rests: list[str] = []
    for number, text in enumerate((*SAID, *HOSTILE)):
        job = EngineJob([{"role": "user", "content": text}], "", 64, 1.0, 1.0, number, (), "ann")
        pieces, broken = called(plugin, partial(_written, one, job))
        if broken is not None:
            yield broken
            continue
        if not all(isinstance(piece, str) for piece in pieces):
            yield Broken(CONTAINED, "a piece is no text")
            continue
        if not one.continues:
            continue
        for cut in range(len(pieces) + 1):
            written, rest = "".join(pieces[:cut]), "".join(pieces[cut:])
            now, broken = called(plugin, partial(_written, other, replace(job, written=written)))
            if broken is not None:
                yield Broken(PURE, broken.sign)
            elif "".join(now) != rest:
                yield Broken(PURE, f"behind piece {cut} it goes on with other words")
                return
        half = len(pieces) // 2
        begun.append(replace(job, written="".join(pieces[:half])))
        rests.append("".join(pieces[half:]))
    if begun:
        there = elsewhere(plugin, settings, [astuple(job) for job in begun], PURE)
        if isinstance(there, Broken):
            yield there
        elif there != rests:
            yield Broken(PURE, "in another process it goes on with other words")


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
