"""A private value in a text: what guards find, plans record and rows keep."""

from __future__ import annotations

import msgspec


class PrivateValue(msgspec.Struct, frozen=True):
    """`kind` is a name of Presidio's entities, such as `EMAIL_ADDRESS`; `value` is written exactly as in the text."""

    kind: str
    value: str
