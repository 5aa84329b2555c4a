"""The HTTP routes."""

from __future__ import annotations

from starlette.convertors import Convertor, register_url_convertor


class _Any(Convertor[str]):
    """An id in a path: with slashes, as Starlette's `path`, and with line breaks, which that does not match."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _Any())
