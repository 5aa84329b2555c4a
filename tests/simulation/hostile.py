"""Records that mean harm, beside the good requests of a storm: `besieged(storm(7))`.

Some cannot be read, some are read and cannot be answered, and some have a model or a guard that does what it never
should. Each has exactly one outcome, an end or a dead letter, and no other request notices (hostile_verdict.py). Their
choice and their times depend on the storm's seed, and take nothing from its random numbers.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import TopicPartition

from app.wire.ids import partition_for
from app.wire.record_size import MAX_RECORD_BYTES
from tests.bad_records import BAD
from tests.simulation.analyzer import MANY_VALUES, NO_VERDICT
from tests.simulation.sabotage import DEADLY, DEATH, EXCEPTIONS, MODELS, STAGES

if TYPE_CHECKING:
    from tests.simulation.scenario import Simulation

VILLAIN = "mallory"

_OVER_S = 8.0
_LATEST_S = 5.0
_MOST = 10
_NUMBERS = ("1e999", "-1e999", "9" * 400, "9" * 4400, "-0.0", "1e-400", "[1e999]", '{"a": 1e999}', str(2**63), "1.5")
_NAMES = ("n", "temperature", "max_tokens", "seed", "deadline_ms", "metadata", "best_of", "documents", "no_such_field",
          "logit_bias", "recall", "top_k", "tool_timeout_ms", "stop_when", "response_format", "priority")  # fmt: skip
_SCHEMAS = (
    '{"type": "number", "multipleOf": %s}' % ("1" * 400),
    '{"type": "number", "multipleOf": 1e-320, "minimum": %s}' % ("9" * 400),
    '{"$ref": "#"}',
    '{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}',
    '{"type": "string", "pattern": "(a*)*(a*)*(a*)*b{1000}{1000}", "minLength": 1000000000}',
    f'{{"enum": {json.dumps(list(range(3000)))}}}',
    '{"type": "array", "items": {"type": "integer"}, "minItems": 99999999999999999999}',
    '{"properties": {"\\u0000": {"const": "\\ud800"}}}',
)  # fmt: skip
_CONTROLS = (
    '{"type": "cancel", "user_id": "USER", "request_id": 1e999}',
    '{"type": "erase"}',
    '{"type": "no such type", "user_id": "USER"}',
    '{"type": "cancel", "user_id": "USER", "request_id": "%s"}' % ("x" * 5000),
    '{"type": "audit", "user_id": "USER", "action": "search", "outcome": "done", "at": 1000000000000000000000}',
    '{"type": "audit", "user_id": "USER", "action": "search", "outcome": "%s", "at": 1e999}' % ("x" * 900_000),
    '{"type": "audit", "user_id": "USER", "action": "search", "outcome": "%s", "at": -5}' % ("\\u0000" * 100_000),
    '{"type": "erase_conversation", "user_id": "USER"}',
    '{"type": "erase_conversation", "user_id": "USER", "conversation_id": "%s"}' % ("\\u0000" * 300),
    "[" * 100_000,
)  # fmt: skip
_HEADERS: tuple[Sequence[tuple[str, bytes | None]], ...] = (
    (("traceparent", b"\xff\xfe"), ("traceparent", b"00-1-1-01"), ("content-type", b"\xff")),
    (("content-type", b"application/x-protobuf"),),
    (("content-type", None), ("", b""), ("x" * 5000, b"y" * 5000)),
    (("forwarded-from", b"\xff"), ("forwarded-from", b"99999999999999999999")),
    (("error-code", b"overloaded"), ("source-offset", b"-1")),
)
_TIMES = (-(10**12), 10**12, -1.0, 0.0, -(10**9))
"""Seconds; the first ones are before the year 1 and long after the year 9999."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """`at` is its time as its producer knows it, in seconds; None is now. `cause` is why no consumer can decode it."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    at: float | None = None
    name: str = ""
    cause: str = ""

    @classmethod
    def of_request(cls, user: str, id_: str, more: str = "", **fields: object) -> Hostile:
        """A request with these fields; `more` is JSON as it is."""
        return cls("requests", _request(user, id_, more, **fields), user.encode(), name=id_)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A hostile record in its log, and the request that it is if anybody can tell."""

    record: Hostile
    user: str | None
    request_id: str | None


def besieged(simulation: Simulation, most: int = _MOST, kinds: Sequence[str] = ()) -> Simulation:
    """The storm with up to `most` hostile records; `kinds` are names of `MAKERS`, by default all."""
    chance = random.Random(f"hostile {simulation.world.seed}")
    makers = [MAKERS[kind] for kind in kinds or MAKERS]
    for number in range(chance.randint(1, most)):
        user = f"{VILLAIN}-{chance.randrange(3)}"
        record = chance.choice(makers)(chance, user, number)
        simulation.world.after(_OVER_S * chance.random(), partial(_arrive, simulation, user, record))
    simulation.besieged = True
    simulation.keep_running(_OVER_S + _LATEST_S)
    return simulation


def besieged_by(simulation: Simulation, record: Hostile, at_s: float = 2.0) -> Simulation:
    """The storm with this one."""
    simulation.besieged = True
    simulation.world.after(at_s, partial(_arrive, simulation, (record.key or b"").decode(), record))
    return simulation


def _arrive(simulation: Simulation, user: str, record: Hostile) -> None:
    at = TopicPartition(record.topic, partition_for(user, simulation.partitions))
    headers = [(name, value) for name, value in record.headers]
    offset = simulation.broker.append(
        at,
        record.key,
        record.value,
        headers,  # type: ignore[arg-type]
        timestamp=record.at,
        cause=record.cause,
    )
    simulation.hostile[at.topic, at.partition, offset] = Arrived(record, *_names_of(record))


def _names_of(record: Hostile) -> tuple[str | None, str | None]:
    """User and request id as readers of the record see them, however bad the rest is."""
    found = re.findall(rb'"request_id": "(bad-[A-Za-z0-9-]+)"', record.value or b"")
    key = None if record.key is None else record.key.decode(errors="replace")
    return key, found[0].decode() if len(set(found)) == 1 else None


def _request(user: str, id_: str, more: str = "", **fields: object) -> bytes:
    """`more` is JSON as it is: Python's writer knows no numbers that are none."""
    record = {"request_id": id_, "user_id": user, "prompt": "question 77", "max_tokens": 4, **fields}
    whole = json.dumps({name: value for name, value in record.items() if value is not ...})
    return (whole[:-1] + (f", {more}" if more else "") + "}").encode()


def _staged(chance: random.Random, user: str, number: int) -> Hostile:
    stage, error = chance.choice(list(STAGES)), chance.choice(list(EXCEPTIONS))
    more = {"recall": 2} if stage == "recall" else {}
    return Hostile("requests", _request(user, f"bad-{stage}-{error}-{number}", **more), user.encode(), name=stage)


def _modelled(chance: random.Random, user: str, number: int) -> Hostile:
    how = chance.choice(MODELS)
    return Hostile("requests", _request(user, f"bad-model-{how}-{number}"), user.encode(), name=how)


def _deadly(chance: random.Random, user: str, number: int) -> Hostile:
    stage = chance.choice(DEADLY)
    more = {"recall": 2} if stage == "recall" else {}
    return Hostile("requests", _request(user, f"bad-{stage}-{DEATH}-{number}", **more), user.encode(), name=stage)


def _unjudged(_chance: random.Random, user: str, number: int) -> Hostile:
    return Hostile("requests", _request(user, f"bad-{number}", prompt=NO_VERDICT), user.encode(), name="no verdict")


def _number(chance: random.Random, user: str, number: int) -> Hostile:
    more = f'"{chance.choice(_NAMES)}": {chance.choice(_NUMBERS)}'
    return Hostile("requests", _request(user, f"bad-{number}", more), user.encode(), name=more[:40])


def _nested(chance: random.Random, user: str, number: int) -> Hostile:
    deep = chance.choice(("[", '{"a":', "[[{")) * chance.choice((40, 600, 1200, 100_000))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": deep},
        {"role": "user", "content": "hi"},
    ]
    value = _request(user, f"bad-{number}", prompt=..., messages=messages)
    if chance.random() < 0.3:
        value = _request(user, f"bad-{number}", f'"metadata": {deep}')
    return Hostile("requests", value, user.encode(), name=f"{deep[:5]} {len(deep)}")


def _schema(chance: random.Random, user: str, number: int) -> Hostile:
    schema = chance.choice(_SCHEMAS)
    one = f'{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}'
    shapes = (
        f'"tools": [{one}]',
        f'"tools": [{one}], "tool_choice": "required", "tool_mode": "kafka", "tool_timeout_ms": 100',
        f'"tools": [{", ".join([one] * 128)}]',
        f'"response_format": {{"type": "json_schema", "json_schema": {{"name": "s", "schema": {schema}}}}}',
    )
    return Hostile("requests", _request(user, f"bad-{number}", chance.choice(shapes)), user.encode(), name=schema[:60])


def _unreadable(chance: random.Random, user: str, number: int) -> Hostile:
    bad = chance.choice(BAD)
    key, value = bad.of(user, f"bad-{number}")
    return Hostile("requests", value, key, name=bad.name)


def _enveloped(chance: random.Random, user: str, number: int) -> Hostile:
    """A good request in a record with odd headers, time or key."""
    at = chance.choice(_TIMES) if chance.random() < 0.5 else None
    key = chance.choice((user.encode(), user.encode(), b"\xff", b"", None, b"x" * 5000))
    return Hostile("requests", _request(user, f"bad-{number}"), key, chance.choice(_HEADERS), at, name=f"at {at}")


def _large(chance: random.Random, user: str, number: int) -> Hostile:
    """A request of the largest size, of one kind of thing."""
    texts = ("x" * 65_000, "\u0000" * 60_000, "\u212a" * 21_000, "a@b.co " * 9000, MANY_VALUES, f"{MANY_VALUES} " * 30)
    shapes: tuple[dict[str, object], ...] = (
        {"prompt": chance.choice(texts)},
        {"prompt": ..., "messages": [{"role": "user", "content": "question 7", "name": "n"}] * 2048},
        {"stop": ["\ud7ff" * 256] * 16},
        {"logit_bias": {str(token): 100 for token in range(1024)}},
        {"metadata": {"a": "x" * 16_000}},
        {"conversation_id": "\u0000" * 256},
        {"prompt": "x" * (MAX_RECORD_BYTES - 1000)},
    )
    return Hostile("requests", _request(user, f"bad-{number}", **chance.choice(shapes)), user.encode(), name="large")


def _control(chance: random.Random, user: str, _number: int) -> Hostile:
    value = chance.choice(_CONTROLS).replace("USER", user).encode()
    return Hostile(
        "controls", value, chance.choice((user.encode(), user.encode(), None)), chance.choice(((), _HEADERS[0]))
    )


def _elsewhere(chance: random.Random, user: str, _number: int) -> Hostile:
    """Rubbish on topics that others write, too."""
    value = chance.choice((b"{not json", b'{"a": 1e999}', b"[" * 100_000, None, b"\xff", b'{"request_id": "r0"}'))
    return Hostile(chance.choice(("turns", "tool-results")), value, chance.choice((user.encode(), None)))


def _undecodable(chance: random.Random, user: str, number: int) -> Hostile:
    """A record that Kafka's client cannot decode: what it would be if it could, or a whole batch."""
    topic = chance.choice(("requests", "requests", "controls", "turns", "tool-results"))
    whole = (_request(user, f"bad-{number}"), json.dumps({"type": "erase", "user_id": user}).encode())
    value = chance.choice((*whole, b"\x00\x00\x02\xff" * 20, b"", None))
    key = chance.choice((user.encode(), None))
    return Hostile(topic, value, key, name="not to be decoded", cause="it cannot be decoded: the storm is in it")


MAKERS = {
    "staged": _staged,
    "model": _modelled,
    "deadly": _deadly,
    "unjudged": _unjudged,
    "number": _number,
    "nested": _nested,
    "schema": _schema,
    "unreadable": _unreadable,
    "enveloped": _enveloped,
    "large": _large,
    "control": _control,
    "elsewhere": _elsewhere,
    "undecodable": _undecodable,
}
