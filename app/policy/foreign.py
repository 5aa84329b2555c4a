"""The tables `intake` and `egress` of the policy file: topics that others write, and topics that others read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any, Literal

import msgspec
from parley_client.plugins.discovery import Kind

from app.policy.constants import constant_mistakes
from app.policy.mistakes import Mistake, plugin_mistake, unknown_names
from app.policy.templates import TemplateError, parts_of, paths_of
from app.wire.codec import PROMPTS
from app.wire.event import ErrorInfo, TokenEvent
from app.wire.ids import MAX_REQUEST_ID_LENGTH, MAX_USER_LENGTH, SEPARATOR, is_user_id, tenant_of
from app.wire.request import Request
from app.wire.turn import Timing, Turn
from models.interface.generation import Usage

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ID = re.compile(r"(0|[1-9][0-9]{0,9})", re.ASCII)
_IDS_BELOW = 2**32
_OF_KAFKA = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
TEMPLATED = ("prompt", "request_id", "user_id", "conversation_id")
"""The texts of a request that a template can make."""
EACH = "*"
"""As the `user_id` of an intake: each record is a user of its own."""
SOURCE, METADATA, USER_NAME = "source.", "metadata.", "user_name"
_OPEN = frozenset({"source", "metadata"})
_PASSED = _OPEN | {USER_NAME}
_OF_TURNS = (frozenset(Turn.__struct_fields__) - {"private"}) | {"error"}
_OF_TOKENS = frozenset(TokenEvent.__struct_fields__) - {
    "notice", "logprobs", "prompt_digest", "prompt_logprobs", "prompt_start", "tool_call_deltas"
}  # fmt: skip
_OBJECTS = {
    "error": frozenset(ErrorInfo.__struct_fields__),
    "usage": frozenset(field.name for field in fields(Usage)),
    "timing": frozenset(Timing.__struct_fields__),
}


OWN_FORMATS = ("json", "avro", "protobuf")


class IntakeRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the records of a topic become requests.

    fields: A field of `requests` to the name of the foreign one; `body.text` is the field `text` of the object `body`.
    user_id: The user of records that name none; `*` makes a user of each record's place.
    tenant: The tenant of all its users: their ids are `tenant/user`, whatever a record says.
    constants: Values of fields of `requests` that a record does not name.
    templates: Texts of a request that are put together from several fields of the record (templates.py).
    format: Of the records; `avro` and `protobuf` stand behind the framing of a schema registry, or Protobuf plain.
    schema: For these, the file: an Avro schema, or a set of Protobuf descriptors with the `message`. Of several
        versions, a table of files by the ids that the registry gives them.
    """

    topic: str
    fields: dict[str, str] = {}
    user_id: str | None = None
    tenant: str | None = None
    constants: dict[str, Any] = {}
    templates: dict[str, str] = {}
    format: str = "json"
    schema: str | dict[str, str] | None = None
    message: str | None = None

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        yield from _topic_mistakes(self.topic)
        known = set(Request.__struct_encode_fields__)
        settable = known - {"request_id", "user_id"}
        yield from unknown_names("fields", self.fields, known)
        yield from unknown_names("constants", self.constants, settable)
        if not {*self.fields, *self.constants, *self.templates}.intersection(PROMPTS):
            yield Mistake("fields constants templates", f"fields: needs one of {', '.join(PROMPTS)}")
        yield from self._of_templates()
        yield from self._of_user()
        yield from format_mistakes(self)
        constants = {name: value for name, value in self.constants.items() if name in settable}
        for why in constant_mistakes(constants, {**self.fields, **self.templates}):
            yield Mistake("constants fields", f"constants: {why}")

    def is_read(self, path: str) -> bool:
        """Whether a model reads that field of the record, or a part of it."""
        texts = [self.fields[name] for name in PROMPTS if name in self.fields]
        read = (*texts, *paths_of(self.templates.get("prompt", "")))
        return any(f"{path}.".startswith(f"{one}.") or f"{one}.".startswith(f"{path}.") for one in read)

    @property
    def has_one_user(self) -> bool:
        """Whether all records are one user's, so that one partition answers them."""
        return self.user_id not in {None, EACH} and "user_id" not in {*self.fields, *self.templates}

    @property
    def paths(self) -> set[str]:
        """The fields of the record that become a part of the request."""
        return {*self.fields.values(), *(path for text in self.templates.values() for path in paths_of(text))}

    def _of_templates(self) -> Iterator[Mistake]:
        yield from unknown_names("templates", self.templates, TEMPLATED)
        for name, text in self.templates.items():
            try:
                parts_of(text)
            except TemplateError as error:
                yield Mistake("", f"templates.{name}: {error}")
        for name in sorted(self.templates.keys() & {*self.fields, *self.constants}):
            yield Mistake("", f"templates: {name} is in fields or constants, too; a template is there for all records")
        given = {*self.fields, *self.constants, *self.templates}
        if "prompt" in self.templates and (others := sorted(given.intersection(PROMPTS) - {"prompt"})):
            yield Mistake("", f"templates: all records have the prompt, so none can have {', '.join(others)}")

    @property
    def _longest_user(self) -> str:
        return "x" * MAX_REQUEST_ID_LENGTH if self.user_id == EACH else self.user_id or "x"

    def _of_user(self) -> Iterator[Mistake]:
        if self.user_id == "" or self.tenant == "" or (self.tenant and "/" in self.tenant):
            yield Mistake("user_id tenant", "user_id and tenant must not be empty, and a tenant has no slash")
        elif not is_user_id(SEPARATOR.join(filter(None, (self.tenant, self._longest_user)))):
            yield Mistake("user_id tenant", f"user_id: must have 1-{MAX_USER_LENGTH} characters, with its tenant")
        constant, own = self.constants.get("tenant"), tenant_of(self.user_id or "")
        if self.tenant is None and isinstance(constant, str) and own not in {None, constant}:
            yield Mistake("user_id tenant", f"constants: tenant is {constant!r}, and the user_id belongs to {own!r}")


class EgressRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records an answer leaves on a topic.

    fields: The foreign name to a field of `turns`, or of `tokens`; `usage.completion_tokens` is a field of an object,
        `source.NAME` a field of the sender's record, `metadata.NAME` one of the request's, `user_name` the user without
        its tenant.
    per: One record when the `answer` has ended, or one for each `token` event and the end.
    on: Which ends leave one. With `error`, so do requests that are refused before they have an answer.
    intake: Only answers to records of this topic.
    format, schema, message: As of an intake. With a table of the registry's id, records are framed; else plain.
    """

    topic: str
    fields: dict[str, str]
    per: Literal["answer", "token"] = "answer"
    on: tuple[Literal["done", "error"], ...] = ("done",)
    intake: str | None = None
    format: str = "json"
    schema: str | dict[str, str] | None = None
    message: str | None = None

    @property
    def tells_errors(self) -> bool:
        return "error" in self.on

    def is_of(self, topic: str | None) -> bool:
        """Whether it tells of the requests that were records of that topic; None: of those that were nobody's."""
        return self.intake is None or self.intake == topic

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        yield from _topic_mistakes(self.topic)
        if not self.fields:
            yield Mistake("fields", "fields: is empty")
        yield from format_mistakes(self)
        if isinstance(self.schema, dict) and len(self.schema) > 1:
            yield Mistake("schema", "schema: records are written by one schema, so the table has one id")
        if not self.on or len({*self.on}) < len(self.on):
            yield Mistake("on", "on: names 'done', 'error' or both, each once")
        elif self.per == "token" and "done" not in self.on:
            yield Mistake("per on", "on: per = 'token' tells what is written of all answers, so 'done' belongs there")
        known = _OF_TURNS if self.per == "answer" else _OF_TOKENS
        for one in unknown_names("fields", [path.partition(".")[0] for path in self.fields.values()], known | _PASSED):
            yield Mistake("per", one.why)
        for path in self.fields.values():
            name, dot, inner = path.partition(".")
            if name in _OPEN and not inner:
                yield Mistake("", f"fields: {name!r} needs the name of a field, as {name}.NAME")
            elif dot and name in known | _PASSED - _OPEN and inner not in _OBJECTS.get(name, ()):
                there_are = ", ".join(sorted(_OBJECTS.get(name, ()))) or "none"
                yield Mistake("per", f"fields: {name!r} has no field {inner!r}; there are {there_are}")


def foreign_mistakes(
    intakes: Sequence[IntakeRules], egresses: Sequence[EgressRules], own: Collection[str]
) -> Iterator[str]:
    """What is wrong between the tables, and with the names of Parley's `own` topics. A topic that cannot be read is an
    empty one.
    """
    topics = [rules.topic for rules in intakes if rules.topic]
    named = [(f"intake[{at}]", rules.topic) for at, rules in enumerate(intakes)]
    named += [(f"egress[{at}]", rules.topic) for at, rules in enumerate(egresses)]
    hint = "PARLEY_TOPIC_PREFIX gives its topics other names"
    yield from (f"{path}.topic: {topic!r} is a topic of Parley's own; {hint}" for path, topic in named if topic in own)
    for topic in sorted({topic for topic in topics if topics.count(topic) > 1}):
        yield f"intake: two tables read {topic!r}"
    seen: set[tuple[str, str | None, str, str]] = set()
    for at, rules in enumerate(egresses):
        if rules.topic in topics:
            yield f"egress[{at}]: {rules.topic!r} is the topic of an intake, which would answer the answers"
        if rules.intake is not None and rules.intake not in topics and len(topics) == len(intakes):
            there_are = ", ".join(topics) or "none"
            yield f"egress[{at}].intake: there is no intake of {rules.intake!r}; there are {there_are}"
        repeated = sorted(path for path in rules.fields.values() if path.startswith(SOURCE))
        if repeated and not intakes:
            yield f"egress[{at}].fields: {repeated[0]!r} is a field of an intake's record, and there is no [[intake]]"
        ends = {(rules.topic, rules.intake, rules.per, end) for end in rules.on}
        if rules.topic and not ends.isdisjoint(seen):
            yield f"egress[{at}]: another table writes the same answers to {rules.topic!r}"
        seen |= ends


def format_mistakes(rules: IntakeRules | EgressRules) -> Iterator[Mistake]:
    """What is wrong with the format and its schema, without a look at the file."""
    if rules.format not in OWN_FORMATS:
        yield from _of_plugin(rules)
        return
    if (rules.schema is None) != (rules.format == "json"):
        yield Mistake("schema format", "schema: is for format = 'avro' or 'protobuf', and both need it")
    ids = rules.schema if isinstance(rules.schema, dict) else {"0": ""}
    if not ids or not all(_ID.fullmatch(one) and int(one) < _IDS_BELOW for one in ids):
        yield Mistake("schema", "schema: a table has ids of schemas, which are numbers, and their files")
    if (rules.message is None) != (rules.format != "protobuf"):
        yield Mistake("message format", "message: is for format = 'protobuf', which needs it")


def _of_plugin(rules: IntakeRules | EgressRules) -> Iterator[Mistake]:
    """Its package is installed wherever the policy is read."""
    if (mistake := plugin_mistake("format", Kind.RECORD_FORMATS, rules.format)) is not None:
        yield mistake
    if isinstance(rules.schema, dict) or rules.message is not None:
        yield Mistake("schema message format", "schema: is one file for a format of another package, without a message")


def _topic_mistakes(topic: str) -> Iterator[Mistake]:
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        yield Mistake("topic", "topic: is no name of a Kafka topic")
    if topic.endswith("-changelog"):
        yield Mistake("topic", f"topic: {topic!r} is a topic of Parley's own")
    if topic in _OF_KAFKA:
        yield Mistake("topic", f"topic: {topic!r} is a topic of Kafka's own")
