"""Bytes that are not a record."""


class MalformedError(ValueError):
    """The bytes are not a record of the wanted type; the message says why."""
