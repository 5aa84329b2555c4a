"""A Kafka as companies run it: with TLS, with logins, with certificates of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from app.local.kafka import KafkaNode
from app.local.ports import LOOPBACK, free_port
from app.local.server_properties import Voter

USER, PASSWORD = "parley", "a-password"
_LOGINS = "org.apache.kafka.common.security"
_BY_ACL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class GuardedKafka:
    """One broker with a listener for logins over TLS and one for mutual TLS, beside the plain one.

    With `users` only these log in, by SCRAM, and have only the rights that ACLs give; the plain listener has all.
    """

    def __init__(self, folder: Path, users: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True)
        self.authority = authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.client_cert = folder / "client.pem"
        self._server_cert = folder / "server.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        write_certificate(self.server_cert(), self._server_cert)
        write_certificate(authority.issue_cert("parley@example.com"), self.client_cert)
        self.login_port, self.mutual_port = free_port(), free_port()
        me = Voter(1, free_port(), free_port())
        self.node = KafkaNode(
            folder / "broker",
            me,
            (me,),
            "guarded-kafka-0000000w",
            properties=self._properties(me) | (_BY_ACL if users else {}),
            scram=dict.fromkeys(users or (USER,), PASSWORD),
        )

    @property
    def by_login(self) -> str:
        return f"kafka://{LOOPBACK}:{self.login_port}"

    @property
    def by_certificate(self) -> str:
        return f"kafka://{LOOPBACK}:{self.mutual_port}"

    def server_cert(self) -> trustme.LeafCert:
        """A certificate of the broker's; a running broker takes a new one only with the same subject."""
        return self.authority.issue_cert(LOOPBACK, "localhost", organization_unit_name="broker")

    def _properties(self, me: Voter) -> dict[str, str]:
        plain = f"PLAINTEXT://{LOOPBACK}:{me.port}"
        guarded = f"LOGIN://{LOOPBACK}:{self.login_port},MUTUAL://{LOOPBACK}:{self.mutual_port}"
        known = f'username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}"'
        return {
            "listeners": f"{plain},{guarded},CONTROLLER://{LOOPBACK}:{me.controller_port}",
            "advertised.listeners": f"{plain},{guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._server_cert),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.login.plain.sasl.jaas.config": f"{_LOGINS}.plain.PlainLoginModule required {known};",
            # The broker's own validator for tests accepts tokens without a signature.
            "listener.name.login.oauthbearer.sasl.jaas.config": (
                f'{_LOGINS}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.login.scram-sha-512.sasl.jaas.config": f"{_LOGINS}.scram.ScramLoginModule required;",
        }


def write_certificate(cert: trustme.LeafCert, path: Path) -> None:
    """Key and chain in one file; Java reads keys as PKCS #8 alone."""
    key = load_pem_private_key(cert.private_key_pem.bytes(), None)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for pem in cert.cert_chain_pems:
        pem.write_to_path(path, append=True)
