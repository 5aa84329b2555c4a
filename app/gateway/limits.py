"""What a user and a tenant may ask of one gateway: requests, look-ups and tokens a minute, and streams at once.

Every gateway counts what is asked of it, and all the tokens that are answered, whichever gateway was asked.
"""

from __future__ import annotations

from collections import Counter

from app.gateway.buckets import Buckets
from app.gateway.errors import ApiError
from app.gateway.identity import Identity, tenant_of
from app.gateway.metrics import Metrics
from app.settings import Settings
from app.wire import ErrorCode


class Limits:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most_streams = settings.gateway_streams
        self._metrics = metrics
        self._streams: Counter[str] = Counter()
        self._lookups = Buckets(settings.gateway_requests_per_min, "look-ups")
        self._requests = Buckets(settings.gateway_requests_per_min, "requests")
        self._tokens = Buckets(settings.gateway_tokens_per_min, "tokens")
        self._tenant_requests = Buckets(settings.gateway_tenant_requests_per_min, "requests of this tenant")
        self._tenant_tokens = Buckets(settings.gateway_tenant_tokens_per_min, "tokens of this tenant")

    def admit(self, identity: Identity, requests: int = 1) -> None:
        """Let so many requests in, all or none; raises `ApiError`."""
        self._tokens.check(identity.user_id)
        self._requests.check(identity.user_id, requests)
        if identity.tenant is not None:
            self._tenant_tokens.check(identity.tenant)
            self._tenant_requests.check(identity.tenant, requests)
            self._tenant_requests.spend(identity.tenant, requests)
        self._requests.spend(identity.user_id, requests)

    def look(self, identity: Identity) -> None:
        """Let one look at what is there; raises `ApiError`."""
        self._lookups.check(identity.user_id)
        self._lookups.spend(identity.user_id, 1)

    def said(self, user_id: str, tokens: int) -> None:
        """So much was answered to somebody; their level may fall below nothing."""
        self._tokens.spend(user_id, tokens)
        tenant = tenant_of(user_id)
        if tenant is not None:
            self._tenant_tokens.spend(tenant, tokens)

    def open_stream(self, identity: Identity) -> None:
        user_id = identity.user_id
        if self._streams[user_id] >= self._most_streams:
            raise ApiError(
                ErrorCode.RATE_LIMITED, f"{self._streams[user_id]} streams are open already", retry_after_s=5
            )
        self._streams[user_id] += 1
        self._metrics.streams.inc()

    def close_stream(self, identity: Identity) -> None:
        self._metrics.streams.dec()
        self._streams[identity.user_id] -= 1
        if not self._streams[identity.user_id]:
            del self._streams[identity.user_id]
