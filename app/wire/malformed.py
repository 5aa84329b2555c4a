"""Bytes that are not a record."""


class MalformedError(ValueError):
    """The bytes are not a record of the expected type; the message says why."""
