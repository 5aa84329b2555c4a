from __future__ import annotations

from typing import Any

import pytest

from app.gateway.peers.trust import SharingError, Trust, trust_of
from app.settings import Settings

ADDRESS = "http://127.0.0.1:8080"
SECRET = "0123456789abcdef" * 2
KEYS = "a-key-of-sixteen-letters=acme/*"


def trust(*, development: bool = False, **values: Any) -> Trust:
    settings = Settings(_env_file=None, **{"gateway_advertise": ADDRESS, **values})
    return trust_of(settings, development=development)


@pytest.mark.parametrize(
    "callers",
    [
        {"gateway_api_keys": KEYS},
        {"jwt_secret": "x" * 64},
        {"jwt_jwks": "https://keys.example/jwks.json"},
        {"gateway_api_keys": KEYS, "jwt_secret": "x" * 64},
    ],
)
def test_secret_is_never_derived_from_what_callers_or_issuers_hold(callers: dict[str, str]) -> None:
    with pytest.raises(SharingError, match="PARLEY_GATEWAY_PEER_SECRET"):
        trust(**callers)
    assert trust(**callers, gateway_peer_secret=SECRET).secrets == (SECRET.encode(),)


def test_two_secrets_are_accepted_while_one_is_replaced() -> None:
    both = trust(gateway_peer_secret=f"{SECRET}, {SECRET[::-1]}")
    assert both.secrets == (SECRET.encode(), SECRET[::-1].encode())
    assert set(trust(gateway_peer_secret=SECRET).key_ids) < set(both.key_ids)
    with pytest.raises(SharingError, match="at most two"):
        trust(gateway_peer_secret=",".join([SECRET, SECRET + "1", SECRET + "2"]))


@pytest.mark.parametrize("secret", ["x", SECRET[:-1], f"{SECRET},short"])
def test_secret_has_a_least_length(secret: str) -> None:
    with pytest.raises(SharingError, match="at least 32"):
        trust(gateway_peer_secret=secret)


def test_without_keys_gateways_of_one_machine_need_no_secret() -> None:
    assert trust(development=True).secrets
    with pytest.raises(SharingError, match="beyond this machine"):
        trust(development=True, gateway_advertise="http://10.0.0.5:8080")
    assert trust(development=False, gateway_advertise="").secrets == ()


def test_ids_of_secrets_reveal_nothing_that_is_sent_as_proof() -> None:
    (one,) = trust(gateway_peer_secret=SECRET).key_ids
    assert len(one) == 16
    assert SECRET[:8] not in one
