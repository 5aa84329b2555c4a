"""Which user and which conversation a request is for, where its key does not tell: a tenant's key, or none.

A program such as Open WebUI has one key, and names its user in headers. The settings say in which; they are never read
for a user's own key. What the header says is the program's word, and a body may be its user's: a body that names
somebody else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from app.gateway.edge.errors import ApiError, invalid
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.limits import is_conversation_id


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of headers, empty if there is none; `otherwise` is the user of a tenant's request that names nobody."""

    user_header: str = ""
    conversation_header: str = ""
    otherwise: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Naming:
        return cls(settings.gateway_user_header, settings.gateway_conversation_header, settings.gateway_tenant_user)

    def user(self, request: HTTPConnection, named: str | None, label: str | None = None) -> str | None:
        """The user: of the header, or else of the request's query, of `named`, or of `label`, which is no contradiction
        to the header. None if nobody is named. Raises `ApiError`.
        """
        given = {request.query_params.get("user_id"), named} - {None, ""}
        if (header := _value(request, self.user_header)) is None:
            if len(given) > 1:
                raise invalid("user_id", "the query and the body name different users")
            return request.query_params.get("user_id") or named or label
        if given - {header}:
            message = f"user_id: the header {self.user_header} names another user"
            raise ApiError(ErrorCode.UNAUTHORIZED, message, status=403, param="user_id")
        return header

    def conversation(self, request: HTTPConnection) -> str | None:
        """The conversation that the header names, None if it names none. Raises `ApiError`."""
        value = _value(request, self.conversation_header)
        if value is not None and not is_conversation_id(value):
            raise invalid(self.conversation_header, "names no conversation: it is too long")
        return value

    def unnamed(self) -> ApiError:
        """The refusal of a tenant's request that names nobody."""
        where = f"in the header {self.user_header} or as user_id" if self.user_header else "as user_id"
        message = f"this key belongs to a tenant: name the user {where}"
        return ApiError(ErrorCode.INVALID_REQUEST, message, param="user_id")


def _value(request: HTTPConnection, header: str) -> str | None:
    """The value of the header in UTF-8, None if it is missing or empty. Raises `ApiError` if there are several."""
    values = set(request.headers.getlist(header)) if header else set()
    if len(values) > 1:
        raise invalid(header, "is there more than once")
    raw = next(iter(values), "").encode("latin-1")
    try:
        return raw.decode() or None
    except UnicodeDecodeError:
        raise invalid(header, "is not UTF-8") from None
