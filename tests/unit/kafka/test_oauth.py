from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

from app.kafka.oauth import ClientCredentials
from app.kafka.oauth import TokenServer as Place
from tests.integration.security.token_server import TokenServer, token_server

SECRET = "s:ecret"


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server("parley", "s%3Aecret") as found:
        yield found


async def test_a_token_is_used_again_by_all_connections_of_a_client(server: TokenServer) -> None:
    tokens = ClientCredentials(Place(server.url, "parley", SECRET, scope="kafka"))
    first, second = await asyncio.gather(tokens.token(), tokens.token())
    assert first == second == await tokens.token()
    assert server.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


async def test_an_old_token_is_replaced(server: TokenServer) -> None:
    server.valid_s = 0
    tokens = ClientCredentials(Place(server.url, "parley", SECRET))
    await tokens.token()
    await tokens.token()
    assert len(server.asked) == 2


async def test_a_wrong_secret_is_a_refusal_that_does_not_show_it(server: TokenServer) -> None:
    place = Place(server.url, "parley", "wrong-secret")
    with pytest.raises(AuthenticationFailedError, match="status 401") as caught:
        await ClientCredentials(place).token()
    assert "wrong-secret" not in f"{caught.value!r} {place!r}"


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (503, b"", "status 503"),
        (302, b"", "status 302"),
        (200, b"<html>", "JSONDecodeError"),
        (200, b"[]", "TypeError"),
        (200, b'{"access_token": 7}', "ValueError"),
    ],
)
async def test_a_server_without_a_token_may_have_one_later(
    server: TokenServer, status: int, body: bytes, why: str
) -> None:
    server.status, server.body = status, body
    with pytest.raises(KafkaConnectionError, match=why):
        await ClientCredentials(Place(server.url, "parley", SECRET)).token()
    assert len(server.asked) == 1, "a redirect is not followed"


async def test_a_server_that_is_away() -> None:
    with pytest.raises(KafkaConnectionError, match="gives no token"):
        await ClientCredentials(Place("http://127.0.0.1:9/token", "parley", SECRET)).token()
