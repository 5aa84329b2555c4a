"""From a good input to a bad one: bytes and values that parsers are known to trip over."""

from __future__ import annotations

import json
import random
from typing import Any

_TOKENS = (b"", b"\x00", b"\xff", b"\r\n", b"\r\n\r\n", b"{" * 50, b"[" * 50, b'"', b"\\ud800", b"\\u0000", b"NaN",
           b"-0", b"1e999", b"9" * 400, b"%00", b"%2e%2e/", b"../", b"null", b"true", b"\xf0\x9f\x98\x80", b" " * 500,
           b"<|im_end|>", b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n", b"a" * 5000)  # fmt: skip
_VALUES: tuple[Any, ...] = (None, True, 0, -1, 2**31, 2**63, 2**64, 10**300, 1.5, -1e300, "", "\x00", "\u2028", "😀",
                            "x" * 3000, [], {}, [[[[[]]]]], {"a": {"a": {}}}, [{}] * 2000, "a/b", "../..")  # fmt: skip


# Numbers as no writer of JSON makes them, and JSON within strings: both take the place of a value, known or unknown.
_NUMBERS = (b"1e999", b"-1e999", b"1e-999", b"9" * 400, b"-" + b"9" * 4400, b"0.%s" % (b"3" * 5000), b"[1e999]",
            b'{"a": 1e999}', b"1" + b"0" * 21, b"-0.0", b"18446744073709551616")  # fmt: skip
_DEEP = ("[" * 1200, "[" * 100_000, '{"a":' * 3000 + "1" + "}" * 3000, "[" * 600 + "]" * 600)
_HOLE = "a value of its own"


def mutated(good: bytes, random_: random.Random) -> bytes:
    """A few random edits of the bytes, or, of JSON, of a value within."""
    if random_.random() < 0.5:
        try:
            content = json.loads(good)
            if random_.random() < 0.4:
                whole = json.dumps(_with(content, _HOLE, random_)).encode("utf-8", "surrogatepass")
                deep = json.dumps(random_.choice(_DEEP)).encode()
                return whole.replace(json.dumps(_HOLE).encode(), random_.choice((*_NUMBERS, deep)))
            return json.dumps(_with_a_wrong_value(content, random_)).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            pass
    value = bytearray(good)
    for _ in range(random_.randint(1, 4)):
        at = random_.randint(0, len(value))
        to = min(len(value), at + random_.choice((0, 1, 2, 8, 40)))
        match random_.randrange(4):
            case 0:
                value[at:to] = random_.choice(_TOKENS)
            case 1:
                value[at:at] = value[at:to] * random_.choice((1, 2, 50))
            case 2:
                del value[at:to]
            case _ if at < len(value):
                value[at] ^= 1 << random_.randrange(8)
    return bytes(value)


def _with_a_wrong_value(content: Any, random_: random.Random) -> Any:
    return _with(content, random_.choice(_VALUES), random_)


def _with(content: Any, wrong: Any, random_: random.Random) -> Any:
    """The content with that value in the place of some other, or as one more."""
    if random_.random() < 0.2 or not isinstance(content, dict | list) or not content:
        return wrong
    if isinstance(content, dict):
        name = random_.choice(list(content))
        if random_.random() < 0.1:
            return {**content, str(random_.choice(_VALUES)): wrong}
        return {**content, name: _with(content[name], wrong, random_)}
    at = random_.randrange(len(content))
    return [*content[:at], _with(content[at], wrong, random_), *content[at + 1 :]]
