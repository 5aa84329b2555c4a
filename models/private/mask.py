r"""Replace private values by placeholders, and placeholders by values.

A placeholder is `<KIND_TAG>`, for example `<EMAIL_ADDRESS_7KQ2M9XA>`. Its tag is 40 bits of HMAC-SHA256 over user, kind
and value, in Crockford's base32. The key is a secret of the service, so equal values of a user have equal placeholders
in all conversations, other users' differ, and a tag does not allow guesses at its value. A mask recognizes its own
placeholders alone: text that imitates one is text.

`hide` and `put_back` are inverse: each written form of a value has a placeholder of its own. Models change what they
copy, so `put_back` also accepts other case, missing brackets, `-`, a space or `\_` for `_`, and `&lt;` for `<`.
Letters that the model appends (`<PERSON_7KQ2M9XA>s`) follow the value.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import regex

from models.private.occurrences import occurrences
from models.private.value import PrivateValue

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TAG_LENGTH = 8
_CLOSINGS = ("\\>", "&gt;")


@dataclass(frozen=True, slots=True)
class Scan:
    """Where placeholders are in a text that is still being written: the complete ones, and where the part begins that
    may become one.
    """

    complete: tuple[tuple[int, int], ...]
    open_from: int

    def allows_cut(self, at: int) -> bool:
        """Whether the text up to there can be read by itself."""
        return at <= self.open_from and not any(start < at < end for start, end in self.complete)


class Mask:
    """The placeholders of these values of one user."""

    def __init__(self, secret: bytes, user_id: str, values: Iterable[PrivateValue]) -> None:
        self.values = tuple(dict.fromkeys(values))
        self._kinds: dict[str, list[str]] = defaultdict(list)
        self._values: dict[str, str] = {}
        self._placeholders: dict[str, str] = {}
        for one in self.values:
            if one.value not in self._placeholders:
                tag = _tag(secret, user_id, one)
                self._placeholders[one.value] = f"<{one.kind}_{tag}>"
                self._values[tag] = one.value
                self._kinds[one.kind].append(tag)

    def __bool__(self) -> bool:
        return bool(self._values)

    @cached_property
    def _written(self) -> regex.Pattern[str]:
        return regex.compile(_written_pattern(self._kinds), regex.IGNORECASE)

    def hide(self, text: str) -> str:
        """The text with placeholders instead of the values."""
        if not self:
            return text
        parts: list[str] = []
        at = 0
        kept = self._placeholders.values() if "<" in text else ()
        for begin, end in occurrences(text, self._placeholders, kept):
            parts += (text[at:begin], self._placeholders[text[begin:end]])
            at = end
        return "".join((*parts, text[at:]))

    def hide_json(self, text: str) -> str:
        """The same for JSON text; text that is no JSON is treated as text."""
        if not self:
            return text
        try:
            value = json.loads(text)
        except ValueError:
            return self.hide(text)
        hidden = in_strings(value, self.hide)
        return text if hidden == value else json.dumps(hidden, ensure_ascii=False)

    def put_back(self, text: str) -> str:
        """The text with the values instead of their placeholders."""
        return self._put_back(text, str)

    def put_back_json(self, text: str) -> str:
        """The same for a part of JSON text, where values stand in strings."""
        return self._put_back(text, lambda value: json.dumps(value, ensure_ascii=False)[1:-1])

    def _put_back(self, text: str, written: Callable[[str], str]) -> str:
        if not self:
            return text
        return self._written.sub(lambda found: written(self._values[found["tag"].upper()]), text)

    def scan(self, text: str) -> Scan:
        """Find the placeholders in a text that is still being written."""
        if not self:
            return Scan((), len(text))
        complete: list[tuple[int, int]] = []
        for found in self._written.finditer(text, partial=True):
            rest = text[found.end() :]
            is_closed = found[0].endswith((">", "&gt;"))
            if found.partial or (not is_closed and any(closing.startswith(rest) for closing in _CLOSINGS)):
                return Scan(tuple(complete), found.start())
            complete.append(found.span())
        return Scan(tuple(complete), len(text))


NO_MASK = Mask(b"", "", ())


def in_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A value of JSON with all its strings changed, but for the names of properties."""
    match value:
        case str():
            return change(value)
        case list():
            return [in_strings(one, change) for one in value]
        case dict():
            return {name: in_strings(one, change) for name, one in value.items()}
    return value


def _tag(secret: bytes, user_id: str, one: PrivateValue) -> str:
    digest = hmac.digest(secret, json.dumps([user_id, one.kind, one.value]).encode(), hashlib.sha256)
    number = int.from_bytes(digest[:5])
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in range(_TAG_LENGTH))


def _written_pattern(kinds: dict[str, list[str]]) -> str:
    separator = r"\\?[_\- ]"
    names = (
        (separator.join(map(regex.escape, kind.split("_"))), "|".join(tags)) for kind, tags in sorted(kinds.items())
    )
    either = "|".join(f"{name}{separator}(?P<tag>{tags})" for name, tags in names)
    return rf"(?:<|&lt;|(?<![A-Za-z0-9_]))(?:{either})(?:\\?>|&gt;)?"
