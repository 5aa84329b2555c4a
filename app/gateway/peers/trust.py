"""How gateways know each other: a secret that no caller holds and no gateway sends, and with `https` certificates.

The two ends of a new link prove to each other that they hold the secret, the asking one first:

    asking gateway                       owner of the partition
    Hello   its name, a nonce
                                         Challenge   its nonce
    Proofs  one for each of its secrets
                                         Proof       with the secret that both have

A proof is the HMAC of the role, both names and both nonces, so it is of no use on another connection, nor to one that
stands between two gateways under a name of its own. Names are the gateways' `PARLEY_GATEWAY_ADVERTISE`. An end that is
not convinced closes the connection with `REFUSED`.

While a secret is replaced, gateways may have two; and gateways without a common one share nothing: each group of them
serves all users for itself (assignor.py).
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import ssl
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from websockets.exceptions import ConnectionClosed

from app.gateway.edge.origins import is_loopback
from app.process.key_files import show_certificate
from app.settings import Settings

REFUSED = 4403
HANDSHAKE_S = 3.0
_SHORTEST = 32
_PURPOSE = "parley gateways"
_DEVELOPMENT = b"gateways of one machine in development mode"
_MOST_SECRETS = 2
_LONGEST = 512

T = TypeVar("T")


class SharingError(ValueError):
    """The settings for sharing are not complete or not safe; one line with the remedy."""


class UnknownPeerError(Exception):
    """The other end of a link does not prove that it has the secret."""


class Socket(Protocol):
    """Either end of a WebSocket."""

    async def send(self, message: str, /) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def close(self, code: int = ..., reason: str = ...) -> None: ...


class Hello(msgspec.Struct, frozen=True):
    name: str
    nonce: str


class Challenge(msgspec.Struct, frozen=True):
    nonce: str


class Proofs(msgspec.Struct, frozen=True):
    proofs: list[str]


class Proof(msgspec.Struct, frozen=True):
    proof: str


@dataclass(frozen=True, slots=True)
class Trust:
    """This gateway's name, and its secrets."""

    name: str
    secrets: tuple[bytes, ...]

    @property
    def key_ids(self) -> tuple[str, ...]:
        """What shows others which secrets this gateway has, and nothing about them."""
        return tuple(_mac(secret, "which secret")[:16] for secret in self.secrets)

    async def ask(self, socket: Socket, owner: str) -> None:
        """Let the gateway with the name `owner` know this one, and be convinced of it; raises `UnknownPeerError`."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                hello = Hello(self.name, secrets.token_hex(16))
                await _send(socket, hello)
                challenge = await _receive(socket, Challenge)
                words = (self.name, owner, hello.nonce, challenge.nonce)
                await _send(socket, Proofs([_mac(one, "asking", *words) for one in self.secrets]))
                given = (await _receive(socket, Proof)).proof
        except ConnectionClosed as error:
            if error.rcvd is not None and error.rcvd.code == REFUSED:
                raise UnknownPeerError("it does not know this gateway") from None
            raise
        if not any(_is_equal(given, _mac(one, "owner", *words)) for one in self.secrets):
            await socket.close(REFUSED, "unknown")
            raise UnknownPeerError("it does not prove that it is a gateway of this service")

    async def answer(self, socket: Socket) -> None:
        """Be convinced by an asking gateway, and let it know this one; raises `UnknownPeerError`."""
        async with asyncio.timeout(HANDSHAKE_S):
            hello = await _receive(socket, Hello)
            challenge = Challenge(secrets.token_hex(16))
            await _send(socket, challenge)
            given = (await _receive(socket, Proofs)).proofs[:_MOST_SECRETS]
            words = (hello.name, self.name, hello.nonce, challenge.nonce)
            for secret in self.secrets:
                expected = _mac(secret, "asking", *words)
                if any(_is_equal(one, expected) for one in given):
                    await _send(socket, Proof(_mac(secret, "owner", *words)))
                    return
        raise UnknownPeerError("it has none of the secrets in PARLEY_GATEWAY_PEER_SECRET")


def trust_of(settings: Settings, *, development: bool) -> Trust:
    """Raises `SharingError`.

    The secret is never derived from keys of callers: a caller that holds the only key could compute it. It is not
    derived from the JWT secret either, because changing that would then divide the gateways.
    """
    name = settings.gateway_advertise
    given = tuple(one.strip().encode() for one in settings.gateway_peer_secret.split(",") if one.strip())
    if not name:
        return Trust("", given)
    if len(given) > _MOST_SECRETS:
        raise SharingError("PARLEY_GATEWAY_PEER_SECRET: at most two secrets, the new one and the one that it replaces")
    if any(len(one) < _SHORTEST for one in given):
        raise SharingError(f"PARLEY_GATEWAY_PEER_SECRET: a secret has at least {_SHORTEST} characters")
    if given:
        return Trust(name, given)
    if not development:
        raise SharingError(
            "PARLEY_GATEWAY_ADVERTISE needs PARLEY_GATEWAY_PEER_SECRET, the same for all gateways; "
            "`openssl rand -hex 32` makes one"
        )
    if not is_loopback(urlsplit(name).hostname or ""):
        raise SharingError("PARLEY_GATEWAY_ADVERTISE beyond this machine needs PARLEY_GATEWAY_PEER_SECRET")
    return Trust(name, (_DEVELOPMENT,))


def peer_tls(settings: Settings) -> ssl.SSLContext | None:
    """For `https` addresses: the gateway's own certificate is shown, and that of the other one is checked, against
    `PARLEY_GATEWAY_TLS_CLIENT_CA` if it is set.
    """
    if not settings.gateway_advertise.startswith("https://"):
        return None
    context = ssl.create_default_context(cafile=settings.gateway_tls_client_ca)
    if settings.gateway_tls_cert is not None:
        show_certificate(context, settings.gateway_tls_cert, settings.gateway_tls_key)
    return context


def owner_tls(settings: Settings) -> ssl.SSLContext | None:
    """For `https` addresses: what this gateway shows to others, as on the public port. Raises `SharingError`."""
    if not settings.gateway_advertise.startswith("https://"):
        return None
    if settings.gateway_tls_cert is None:
        raise SharingError("PARLEY_GATEWAY_ADVERTISE with https needs PARLEY_GATEWAY_TLS_CERT")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=settings.gateway_tls_client_ca)
    show_certificate(context, settings.gateway_tls_cert, settings.gateway_tls_key)
    if settings.gateway_tls_client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _mac(secret: bytes, *words: str) -> str:
    return hmac.new(secret, msgspec.json.encode((_PURPOSE, *words)), sha256).hexdigest()


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


async def _send(socket: Socket, message: msgspec.Struct) -> None:
    await socket.send(msgspec.json.encode(message).decode())


async def _receive(socket: Socket, kind: type[T]) -> T:
    raw = await socket.recv()
    try:
        if len(raw) > _LONGEST:
            raise UnknownPeerError("its message is too long")
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        raise UnknownPeerError("it does not follow the protocol of this version") from None
