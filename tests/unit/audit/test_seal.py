from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from app.audit.seal import Seal, SealedHead, SealError, private_key, public_key, read_seal

SEAL = Seal(made_at=1767225600000, topic="audit", heads=(SealedHead(0, 41, "ab" * 32), SealedHead(1, -1, "")))


def test_a_seal_survives_its_file_and_fits_its_key_alone(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "seal.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(SEAL.signed_with(key)), indent=2))
    read_seal(path).check(key.public_key())
    with pytest.raises(SealError, match="not of this key"):
        read_seal(path).check(Ed25519PrivateKey.generate().public_key())


@pytest.mark.parametrize(
    "change",
    [
        {"made_at": 1},
        {"topic": "other"},
        {"heads": SEAL.heads[:1]},
        {"heads": (SealedHead(0, 40, "ab" * 32), SEAL.heads[1])},
        {"heads": (SealedHead(0, 41, "ac" * 32), SEAL.heads[1])},
        {"signature": ""},
        {"signature": "not base64!"},
    ],
)
def test_every_field_is_signed(change: dict[str, object]) -> None:
    key = Ed25519PrivateKey.generate()
    with pytest.raises(SealError):
        msgspec.structs.replace(SEAL.signed_with(key), **change).check(key.public_key())


def test_keys_are_read_from_pem_files_and_others_are_refused_by_name(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    private, public, other = (tmp_path / name for name in ("private.pem", "public.pem", "rsa.pem"))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    other.write_bytes(
        generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    SEAL.signed_with(private_key(private)).check(public_key(public))
    with pytest.raises(SealError, match="not an Ed25519 key"):
        private_key(other)
    for read in (private_key, public_key):
        with pytest.raises(SealError, match="is not a"):
            read(tmp_path / "missing.pem")
    with pytest.raises(SealError, match="is not a seal"):
        read_seal(private)
