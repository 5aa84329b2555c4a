"""The tables `intake` and `egress` of the policy file: topics that others write, and topics that others read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Literal

import msgspec

from app.wire.event import ErrorInfo, TokenEvent
from app.wire.incoming import PROMPTS
from app.wire.request import Request, RequestFields
from app.wire.turn import Timing, Turn
from models.generation import Usage

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OF_TURNS = frozenset(Turn.__struct_fields__) - {"private"}
_OF_TOKENS = frozenset(TokenEvent.__struct_fields__) - {
    "notice", "logprobs", "prompt_digest", "prompt_logprobs", "prompt_start", "tool_call_deltas"
}  # fmt: skip
_OBJECTS = {
    "error": frozenset(ErrorInfo.__struct_fields__),
    "usage": frozenset(field.name for field in fields(Usage)),
    "timing": frozenset(Timing.__struct_fields__),
}


class IntakeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the records of a topic become requests.

    fields: A field of `requests` to the name of the foreign one; `body.text` is the field `text` of the object `body`.
    user_id: The user of records that name none.
    tenant: The tenant of all its users: their ids are `tenant/user`, whatever a record says.
    constants: Values of fields of `requests` that a record does not name.
    format: Of the records; `avro` and `protobuf` stand behind the framing of a schema registry.
    schema: For these, the file: an Avro schema, or a set of Protobuf descriptors with the `message`.
    """

    topic: str
    fields: dict[str, str]
    user_id: str | None = None
    tenant: str | None = None
    constants: dict[str, Any] = {}
    format: Literal["json", "avro", "protobuf"] = "json"
    schema: str | None = None
    message: str | None = None

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        yield from _topic_mistakes(self.topic)
        known = set(Request.__struct_fields__)
        yield from _unknown("fields", self.fields, known)
        yield from _unknown("constants", self.constants, known - {"request_id", "user_id"})
        if not any(name in self.fields or name in self.constants for name in PROMPTS):
            yield f"fields: needs one of {', '.join(PROMPTS)}"
        if self.user_id == "" or self.tenant == "" or (self.tenant and "/" in self.tenant):
            yield "user_id and tenant must not be empty, and a tenant has no slash"
        if (self.schema is None) != (self.format == "json"):
            yield "schema: is for format = 'avro' or 'protobuf', and both need it"
        if (self.message is None) != (self.format != "protobuf"):
            yield "message: is for format = 'protobuf', which needs it"
        try:
            msgspec.convert({name: value for name, value in self.constants.items() if name != "tenant"}, RequestFields)
        except msgspec.ValidationError as error:
            yield f"constants: {error}"


class EgressRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records an answer leaves on a topic.

    fields: The foreign name to a field of `turns`, or of `tokens`; `usage.completion_tokens` is a field of an object.
    per: One record when the `answer` has ended in `done`, or one for each `token` event and the end.
    intake: Only answers to records of this topic.
    """

    topic: str
    fields: dict[str, str]
    per: Literal["answer", "token"] = "answer"
    intake: str | None = None

    def mistakes(self) -> Iterator[str]:
        """What the types cannot express."""
        yield from _topic_mistakes(self.topic)
        if not self.fields:
            yield "fields: is empty"
        known = _OF_TURNS if self.per == "answer" else _OF_TOKENS
        yield from _unknown("fields", [path.partition(".")[0] for path in self.fields.values()], known)
        for path in self.fields.values():
            name, dot, inner = path.partition(".")
            if dot and name in known and inner not in _OBJECTS.get(name, ()):
                there_are = ", ".join(sorted(_OBJECTS.get(name, ()))) or "none"
                yield f"fields: {name!r} has no field {inner!r}; there are {there_are}"


def foreign_mistakes(intakes: Iterable[IntakeRules], egresses: Iterable[EgressRules]) -> Iterator[str]:
    """What is wrong between the tables."""
    topics = [rules.topic for rules in intakes]
    for topic in sorted({topic for topic in topics if topics.count(topic) > 1}):
        yield f"intake: two tables read {topic!r}"
    seen: set[tuple[str, str | None, str]] = set()
    for at, rules in enumerate(egresses):
        if rules.topic in topics:
            yield f"egress[{at}]: {rules.topic!r} is the topic of an intake, which would answer the answers"
        if rules.intake is not None and rules.intake not in topics:
            there_are = ", ".join(topics) or "none"
            yield f"egress[{at}].intake: there is no intake of {rules.intake!r}; there are {there_are}"
        if (rules.topic, rules.intake, rules.per) in seen:
            yield f"egress[{at}]: another table writes the same answers to {rules.topic!r}"
        seen.add((rules.topic, rules.intake, rules.per))


def _topic_mistakes(topic: str) -> Iterator[str]:
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        yield "topic: is no name of a Kafka topic"
    if topic.endswith("-changelog"):
        yield f"topic: {topic!r} is a topic of Parley's own"


def _unknown(table: str, names: Iterable[str], known: Iterable[str]) -> Iterator[str]:
    known = sorted(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"did you mean {near[0]!r}? There are" if near else "there are"
            yield f"{table}: {name!r} is not known; {meant} {', '.join(known)}"
