"""The body of `POST /v1/requests`: a record of `requests` without the fields that the gateway sets."""

from __future__ import annotations

from app.gateway.auth.identity import Identity
from app.gateway.openai.sampling_body import FormatBody
from app.wire.ids import new_request_id
from app.wire.request import Request, RequestFields


class AskBody(RequestFields, frozen=True, kw_only=True):
    response_format: FormatBody | None = None

    def request(self, identity: Identity, *, store: bool = True) -> Request:
        """`store` applies if the body has none."""
        fields = {name: getattr(self, name) for name in RequestFields.__struct_fields__}
        fields |= {
            "request_id": self.request_id or new_request_id(),
            "user_id": identity.user_id,
            "tenant": identity.tenant,
            "store": store if self.store is None else self.store,
            "max_tokens": None if self.max_tokens == -1 else self.max_tokens,
            "response_format": None if self.response_format is None else self.response_format.response_format,
        }
        return Request(**fields)
