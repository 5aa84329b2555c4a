"""A seal: the heads of all chains, signed with an Ed25519 key (RFC 8032).

With an old seal and the public key, `parley audit verify` finds every later change of a sealed record, even by a person
who can write to all of Kafka. Keep seals and the private key elsewhere.

    {"made_at": 1767225600000, "topic": "audit", "heads": [{"partition": 0, "sequence": 41, "hash": "..."}],
     "signature": "..."}

The signature, in base64, is of the same JSON object without it, with sorted keys and no spaces.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key


class SealError(Exception):
    """A key or a seal cannot be used; one line."""


class SealedHead(msgspec.Struct, frozen=True):
    partition: int
    sequence: int
    hash: str


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """`made_at` is in Unix milliseconds, `topic` the full name."""

    made_at: int
    topic: str
    heads: tuple[SealedHead, ...]
    signature: str = ""

    @property
    def _signed(self) -> bytes:
        plain = msgspec.to_builtins(msgspec.structs.replace(self, signature=""))
        del plain["signature"]
        return msgspec.json.encode(plain, order="sorted")

    def signed_with(self, key: Ed25519PrivateKey) -> Seal:
        return msgspec.structs.replace(self, signature=base64.b64encode(key.sign(self._signed)).decode())

    def check(self, key: Ed25519PublicKey) -> None:
        """Raise `SealError` unless it was signed with the private part of `key`."""
        try:
            key.verify(base64.b64decode(self.signature, validate=True), self._signed)
        except (InvalidSignature, binascii.Error):
            raise SealError("the seal's signature is not of this key") from None


def read_seal(path: Path) -> Seal:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Seal)
    except OSError as error:
        raise SealError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SealError(f"{path} is not a seal: {error}") from None


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a PEM file without a password."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise SealError(f"{path} is not a private key without a password: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SealError(f"{path} is not an Ed25519 key: make one with `openssl genpkey -algorithm ed25519`")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Read a PEM file."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise SealError(f"{path} is not a public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SealError(f"{path} is not an Ed25519 key: `openssl pkey -in PRIVATE -pubout` prints one")
    return key
