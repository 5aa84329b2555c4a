"""A format of foreign records: `format = "NAME"` of an `[[intake]]` or `[[egress]]` of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class NotReadable(Exception):  # noqa: N818 - what happened, as the dead letter says it
    """These bytes are no record, or no record can hold these fields. One line that quotes nothing of them."""


class RecordFormat(Protocol):
    """The worker waits for it, some thousand times a second, and for a second at most: it keeps nothing."""

    def __init__(self, schema: str | None) -> None:
        """`schema` is the path of the policy's `schema`, if it has one. Raise any error for what cannot be used."""

    def read(self, value: bytes) -> Mapping[str, Any]:
        """The fields by name, as JSON has them. Whatever the bytes are: fields, or `NotReadable`."""
        raise NotImplementedError

    def write(self, fields: Mapping[str, Any]) -> bytes:
        """The record with these fields; raises `NotReadable`. What it writes, `read` reads."""
        raise NotImplementedError
