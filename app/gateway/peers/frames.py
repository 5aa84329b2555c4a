"""Messages between two gateways, on a WebSocket that the asking one opens at the other's port for gateways.

A WebSocket message is a JSON array of frames, so what becomes ready together travels together. `id` is chosen by the
asking gateway, and names one call until its last frame.

    asking gateway                     owner of the partition
    Open   follow an answer            Events ...   its events from index `after` on; empty: a keep-alive
                                       Closed       no more events: the end was sent, or the partition has moved
    Close  stop following
    ReadAnswer  the answer so far      Events, Closed
    ReadAnswer with `ends`             Events, Closed   an end of each answer of the user that has ended lately
    Charge admit requests              Closed       admitted
                                       Refused      not admitted, with what the client gets
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from app.gateway.edge.errors import ApiError
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Open(msgspec.Struct, frozen=True, tag="open"):
    """`sent`: the asking gateway has sent the request, so the answer is waited for without a limit."""

    id: int
    user_id: str
    request_id: str
    after: int
    sent: bool = False


class Close(msgspec.Struct, frozen=True, tag="close"):
    id: int


class ReadAnswer(msgspec.Struct, frozen=True, tag="look"):
    """`ends`: the ends of the user's latest answers. The request's id is a new one then: a gateway of an older version
    does not know the field, and finds no answer.
    """

    id: int
    user_id: str
    request_id: str
    ends: bool = False


class Charge(msgspec.Struct, frozen=True, tag="charge"):
    """Requests of a user, weighed by their candidates; `answers` will end."""

    id: int
    name: str
    requests: Count
    answers: Count = 1


class Events(msgspec.Struct, frozen=True, tag="events"):
    id: int
    events: list[TokenEvent]


class Closed(msgspec.Struct, frozen=True, tag="closed"):
    """`moved`: the partition belongs to another gateway, or this one is stopping."""

    id: int
    moved: bool = False


class CallRefused(msgspec.Struct, frozen=True, tag="refused"):
    id: int
    code: ErrorCode
    message: str
    retry_after_s: float | None = None

    def error(self) -> ApiError:
        return ApiError(self.code, self.message, retry_after_s=self.retry_after_s)


Asked: TypeAlias = Open | Close | ReadAnswer | Charge
Answered: TypeAlias = Events | Closed | CallRefused

encode = msgspec.json.Encoder().encode
decode_asked = msgspec.json.Decoder(list[Asked]).decode
decode_answered = msgspec.json.Decoder(list[Answered]).decode
