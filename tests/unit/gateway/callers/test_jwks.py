"""Public keys over HTTP: what a slow, large, lying or absent server costs, and who waits for it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from app.gateway.callers import jwks
from app.gateway.callers.jwks import Jwks, JwksSourceError, JwksUnavailableError
from app.gateway.callers.jwt import TokenCheck
from app.gateway.edge.errors import ApiError
from app.settings import Settings

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def key_set(*names: str) -> bytes:
    keys = []
    for name in names:
        of_ec = name.startswith("ec")
        made = ECAlgorithm.to_jwk(EC_KEY.public_key()) if of_ec else RSAAlgorithm.to_jwk(RSA_KEY.public_key())
        keys.append({**json.loads(made), "kid": name})
    return json.dumps({"keys": keys}).encode()


class Server:
    """Answers `/keys` with `body`, `/away` with a redirect to it."""

    def __init__(self) -> None:
        self.body = key_set("one")
        self.asked = 0
        self.pause_s = 0.0
        self.goes_on = threading.Event()
        self.goes_on.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                if self.path == "/away":
                    self.send_response(302)
                    self.send_header("Location", "/keys")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                try:
                    for at in range(0, len(server.body), 1000):
                        self.wfile.write(server.body[at : at + 1000])
                        time.sleep(server.pause_s)
                        server.goes_on.wait(60)
                except OSError:
                    return  # the gateway has had enough

            def log_message(self, *_: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}/keys"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(jwks, "TIMEOUT_S", 60.0)
    server = Server()
    yield server
    server.stop()


async def test_keys_are_read_once_for_all_that_ask(server: Server) -> None:
    keys = Jwks(server.url)
    found = await asyncio.gather(*(keys.key("one") for _ in range(20)))
    assert {key.key_id for key in found if key} == {"one"}
    assert server.asked == 1


async def test_an_unknown_key_delays_no_token_of_a_known_one(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Jwks(server.url)
    await keys.key("one")
    monkeypatch.setattr(jwks, "UNKNOWN_KEY_PAUSE_S", 0.0)
    server.goes_on.clear()
    unknown = asyncio.create_task(keys.key("two"))
    while server.asked < 2:
        await asyncio.sleep(0.01)
    assert await keys.key("one") is not None
    assert not unknown.done()
    server.goes_on.set()
    assert await unknown is None


async def test_unknown_keys_make_the_gateway_ask_seldom(server: Server) -> None:
    keys = Jwks(server.url)
    await keys.key("one")
    for number in range(50):
        assert await keys.key(f"unknown {number}") is None
    assert server.asked == 1


async def test_a_rotated_key_is_found(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Jwks(server.url)
    await keys.key("one")
    server.body = key_set("two")
    monkeypatch.setattr(jwks, "UNKNOWN_KEY_PAUSE_S", 0.0)
    assert await keys.key("two") is not None
    assert await keys.key("one") is None


@pytest.mark.parametrize("trouble", ["large", "slow", "redirect", "rubbish"])
async def test_a_reply_that_is_no_set_of_keys_is_given_up(
    server: Server, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "TIMEOUT_S", 0.5)
    url = server.url.replace("/keys", "/away") if trouble == "redirect" else server.url
    if trouble == "large":
        server.body = b" " * (jwks.MAX_BYTES + 1000) + key_set("one")
    elif trouble == "slow":
        server.body, server.pause_s = key_set(*(f"key {n}" for n in range(20))), 0.2
    elif trouble == "rubbish":
        server.body = b"[]"
    with pytest.raises(JwksUnavailableError):
        await Jwks(url).key("one")


async def test_old_keys_are_used_for_a_day_and_no_longer(server: Server) -> None:
    keys = Jwks(server.url)
    await keys.key("one")
    server.body = b"rubbish"
    keys._read_at -= jwks.KEEP_S - 10
    assert await keys.key("one") is not None
    while keys._reading is not None:
        await asyncio.sleep(0.01)
    keys._read_at -= 20
    with pytest.raises(JwksUnavailableError):
        await keys.key("one")


@pytest.mark.parametrize("place", ["http://keys.example/jwks", "ftp://keys.example/jwks", "http://127.0.0.1.evil.com/"])
def test_keys_come_by_https_from_elsewhere(place: str) -> None:
    with pytest.raises(JwksSourceError, match="https"):
        Jwks(place)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "HS256", "none", None, 7])
async def test_a_token_that_names_a_key_of_another_kind_is_refused(server: Server, algorithm: object) -> None:
    server.body = key_set("one", "ec")
    check = TokenCheck(Settings(_env_file=None, jwt_jwks=server.url))
    head = jwt.utils.base64url_encode(json.dumps({"alg": algorithm, "kid": "ec", "typ": "JWT"}).encode())
    token = b".".join((head, jwt.utils.base64url_encode(b'{"sub": "nina", "exp": 9999999999}'), b"c2ln")).decode()
    with pytest.raises(ApiError) as refused:
        await check.grant(token)
    assert refused.value.status == 401
