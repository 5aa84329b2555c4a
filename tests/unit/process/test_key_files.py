"""A private key that needs a password ends in one line, and never waits for somebody at a terminal."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from app.gateway.server import TlsError, tls_options
from app.kafka.cluster import Cluster
from app.kafka.errors import KafkaSetupError
from app.settings import Settings


def key_pair(folder: Path, form: PrivateFormat, password: bytes | None) -> tuple[Path, Path]:
    issued = trustme.CA().issue_cert("parley")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    plain = issued.private_key_pem.bytes()
    if password is not None:
        private = load_pem_private_key(plain, None)
        plain = private.private_bytes(Encoding.PEM, form, BestAvailableEncryption(password))
    key.write_bytes(plain)
    return certificate, key


@pytest.mark.parametrize("form", [PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL])
def test_an_encrypted_key_is_refused_in_one_line(tmp_path: Path, form: PrivateFormat) -> None:
    certificate, key = key_pair(tmp_path, form, b"secret")
    cluster = Settings(kafka_tls=True, kafka_cert_file=certificate, kafka_key_file=key).cluster
    with pytest.raises(KafkaSetupError, match=r"key\.pem is encrypted.*openssl pkey") as refused:
        cluster.options()
    assert "\n" not in str(refused.value)
    with pytest.raises(TlsError, match=r"key\.pem is encrypted"):
        tls_options(Settings(gateway_tls_cert=certificate, gateway_tls_key=key))


def test_a_key_without_a_password_is_used(tmp_path: Path) -> None:
    certificate, key = key_pair(tmp_path, PrivateFormat.PKCS8, None)
    cluster: Cluster = Settings(kafka_tls=True, kafka_cert_file=certificate, kafka_key_file=key).cluster
    assert isinstance(cluster.options()["ssl_context"], ssl.SSLContext)
    assert tls_options(Settings(gateway_tls_cert=certificate, gateway_tls_key=key))["ssl_keyfile"] == key
