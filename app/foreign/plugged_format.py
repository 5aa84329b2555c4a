"""Formats of other packages, for foreign records: whatever they do with a record, it is fields or one dead letter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from parley_client.plugins import Kind, NotReadable, PluginError, RecordFormat

from app.foreign.framing import Decoded
from app.foreign.mapping import value_of
from app.plugins.known import named
from app.plugins.running import BriefCalls, PluginFailedError
from app.policy.file import PolicyError
from app.wire.error import shortened
from app.wire.json_codec import MalformedError


class PluggedFormat:
    """Raises `PolicyError` if it cannot be loaded."""

    def __init__(self, name: str, schema: str | None) -> None:
        try:
            plugin = named(Kind.RECORD_FORMATS, name)
            self._format: RecordFormat = plugin.made(schema)
        except PluginError as error:
            raise PolicyError(str(error)) from None
        self._name, self._calls = name, BriefCalls(plugin)

    def decode(self, value: bytes, _known: int | None = None) -> Decoded:
        fields = self._called(partial(self._format.read, value))
        try:
            return Decoded(msgspec.json.decode(msgspec.json.encode(fields), type=dict[str, Any]))
        except (TypeError, ValueError, RecursionError):
            raise MalformedError(f"the plug-in {self._name} read what no JSON object holds") from None

    def encode(self, fields: Mapping[str, Any]) -> bytes:
        value = self._called(partial(self._format.write, {name: value_of(one) for name, one in fields.items()}))
        if not isinstance(value, bytes):
            raise MalformedError(f"the plug-in {self._name} wrote no bytes")
        return value

    def _called(self, work: Any) -> Any:
        try:
            return self._calls.call(work)
        except NotReadable as error:
            raise MalformedError(shortened(str(error))) from None
        except PluginFailedError as error:
            raise MalformedError(str(error)) from None
        except BaseException as error:  # noqa: BLE001 - of others: it is about this record
            raise MalformedError(f"the plug-in {self._name} failed on it ({type(error).__name__})") from None
