"""JSON Schema and Avro schemas of the topics for sinks; those of `tokens` and of what is sent are in parley.proto.

Names follow the conventions of schema registries: the schema of a topic's values has the subject `<topic>-value`.
Values on the topics are plain JSON, without a registry's five leading bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import inspect

from app.wire.audit import AuditRecord
from app.wire.erasure import Erasure
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from app.wire.waits import WaitRecord

RECORDS: dict[str, type[msgspec.Struct]] = {
    "turns": Turn,
    "usage": UsageWindow,
    "audit": AuditRecord,
    "erasures": Erasure,
    "waits": WaitRecord,
}
NAMESPACE = "parley.wire.v1"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def subject(topic: str) -> str:
    return f"{topic}-value"


def json_schema(topic: str) -> dict[str, Any]:
    """Unknown fields are allowed, because later versions add some."""
    return _plain({"$schema": _DRAFT, "title": subject(topic), **msgspec.json.schema(RECORDS[topic])})


def avro_schema(topic: str) -> dict[str, Any]:
    """Enumerations are strings, so that a value that is newer than the reader arrives as what it is. Times are
    `timestamp-millis`.
    """
    return _plain(_Avro().record(RECORDS[topic]))


class _Avro:
    _SCALARS: ClassVar = {
        inspect.BoolType: "boolean",
        inspect.FloatType: "double",
        inspect.IntType: "long",
        inspect.StrType: "string",
        inspect.EnumType: "string",
    }

    def __init__(self) -> None:
        self._defined: set[type] = set()

    def record(self, record_type: type) -> Any:
        """The first use of a record defines it, and later ones name it."""
        if record_type in self._defined:
            return f"{NAMESPACE}.{record_type.__name__}"
        self._defined.add(record_type)
        info = inspect.type_info(record_type)
        assert isinstance(info, inspect.StructType | inspect.DataclassType)
        fields = [self._field(field) for field in info.fields]
        return {"type": "record", "name": record_type.__name__, "namespace": NAMESPACE, "fields": fields}

    def _field(self, field: inspect.Field) -> dict[str, Any]:
        described: dict[str, Any] = {"name": field.encode_name, "type": self._type(field.type, field.encode_name)}
        if not field.required:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            described["default"] = default
        return described

    def _type(self, kind: inspect.Type, name: str) -> Any:
        match kind:
            case inspect.UnionType():
                (value,) = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
                return ["null", self._type(value, name)]
            case inspect.StructType() | inspect.DataclassType():
                return self.record(kind.cls)
            case inspect.VarTupleType() | inspect.ListType():
                return {"type": "array", "items": self._type(kind.item_type, name)}
            case inspect.IntType() if _is_time(name):
                return {"type": "long", "logicalType": "timestamp-millis"}
            case _:
                return self._SCALARS[type(kind)]


def _plain(described: Any) -> dict[str, Any]:
    """Lists for tuples, and texts for enumerations."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(described))
    return plain


def _is_time(name: str) -> bool:
    return name in {"at", "window_start"} or name.endswith("_at")
