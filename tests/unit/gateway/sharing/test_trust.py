from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import HTTPConnection

from app.gateway.sharing.trust import SharingError, is_peer, peer_secret
from app.settings import Settings

ADDRESS = "http://127.0.0.1:8080"


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, gateway_advertise=ADDRESS, **values)


def connection(authorization: str) -> HTTPConnection:
    return HTTPConnection({"type": "websocket", "headers": [(b"authorization", authorization.encode())]})


def test_secret_is_the_same_for_gateways_with_the_same_keys_and_reveals_none() -> None:
    keys = "a-key-of-sixteen-letters=ann"
    secret = peer_secret(settings(gateway_api_keys=keys))
    assert secret == peer_secret(settings(gateway_api_keys=keys))
    assert secret != peer_secret(settings(gateway_api_keys=keys + "2"))
    assert "sixteen" not in secret


def test_secret_that_is_set_counts() -> None:
    assert peer_secret(settings(gateway_peer_secret="between us", gateway_api_keys="a-key-of-sixteen-letters=ann")) == (
        "between us"
    )


def test_secret_cannot_be_derived_from_public_keys() -> None:
    with pytest.raises(SharingError, match="PARLEY_GATEWAY_PEER_SECRET"):
        peer_secret(settings(jwt_jwks="https://keys.example/jwks.json"))


@pytest.mark.parametrize(
    ("authorization", "secret", "known"),
    [("Bearer s", "s", True), ("Bearer t", "s", False), ("s", "s", False), ("", "s", False), ("Bearer ", "", False)],
)
def test_peer_is_known_by_the_secret_alone(authorization: str, secret: str, known: bool) -> None:
    assert is_peer(connection(authorization), secret) is known
