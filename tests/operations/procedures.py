"""What each page needs to be executed, and what may be otherwise afterwards than nothing lost."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from app.local.kafka import KafkaNode
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.settings import Settings
from tests.faults.verdict import Verdict
from tests.integration.security.guarded_kafka import PASSWORD, USER, GuardedKafka, write_certificate
from tests.operations.stage import ROOT, Stage, can_mount, kafka, mount, new_settings
from tests.operations.verdict import verdict_of

ERASED = "shop/user-1"


@dataclass(frozen=True)
class Procedure:
    """`needs` returns why the page cannot be executed here, or nothing."""

    page: str
    stage: Callable[[Path], Stage]
    may: Collection[str] = ()
    """Kinds of faults of the verdict that the page says may be."""
    may_fail: bool = False
    """Whether the page says that answers under way may end with an error."""
    needs: Callable[[], str] = lambda: ""


def plain(folder: Path) -> Stage:
    nodes = kafka(folder)
    return Stage(folder, nodes, new_settings(folder, nodes))


def versions(folder: Path) -> Stage:
    """`$OLD` and `$NEW` are folders of which each has its `bin/parley`."""
    stage = plain(folder)
    tree = folder / "tree"
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), old_version()], cwd=ROOT, check=True)
    for name, code in (("OLD", tree), ("NEW", ROOT)):
        program = folder / name.lower() / "bin" / "parley"
        program.parent.mkdir(parents=True)
        path = f"{code}:{code / 'deploy/packages/python'}"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {Path(sys.executable).with_name("parley")} "$@"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        stage.variables[name] = str(program.parents[1])
    stage.at_end.append(
        lambda: subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    )
    return stage


def old_version() -> str:
    """The commit whose version is upgraded, which `OLD_VERSION` may name."""
    return os.environ.get("OLD_VERSION", "HEAD~25")


def no_old_version() -> str:
    known = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", old_version()], cwd=ROOT, check=False, capture_output=True
    )
    return "" if known.returncode == 0 else f"the commit {old_version()} is not here"


def guarded(folder: Path) -> Stage:
    broker = GuardedKafka(folder / "kafka")
    broker.node.start()
    stage = Stage(folder, [broker.node], new_settings(folder, [broker.node]), scheme="https")
    write_certificate(broker.server_cert(), stage.work / "next-broker.pem")
    for name in ("gateway", "next-gateway"):
        write_certificate(broker.authority.issue_cert("127.0.0.1"), stage.work / f"{name}.pem")
    stage.settings = stage.settings.model_copy(update={
        "broker": broker.by_login, "kafka_tls": True, "kafka_ca_file": broker.ca_file,
        "kafka_sasl_mechanism": "SCRAM-SHA-512", "kafka_username": USER, "kafka_password": PASSWORD,
        "gateway_tls_cert": stage.work / "gateway.pem",
    })  # fmt: skip
    stage.ca_file = broker.ca_file
    return stage


def logins(folder: Path) -> Stage:
    """Brokers know clients by certificates, gateways know users by JWTs."""
    broker = GuardedKafka(folder / "kafka")
    broker.node.start()
    stage = Stage(folder, [broker.node], new_settings(folder, [broker.node]), token=token_of)
    certificate, keys = stage.work / "client.pem", stage.work / "jwks.json"
    write_certificate(broker.authority.issue_cert("parley@example.com"), certificate)
    shutil.copy(broker.ca_file, stage.work / "clients.pem")
    next_clients = trustme.CA()
    next_clients.cert_pem.write_to_path(stage.work / "next-clients.pem")
    write_certificate(next_clients.issue_cert("parley@example.com"), stage.work / "next-client.pem")
    stage.key_file.write_text(write_issuer("before", keys))
    (stage.work / "token").write_text(token_of("probe", stage.key_file.read_text()))
    (stage.work / "next-issuer.json").write_text(issuer := write_issuer("next", stage.work / "next-jwks.json"))
    (stage.work / "next-token").write_text(token_of("probe", issuer))
    stage.settings = stage.settings.model_copy(update={
        "broker": broker.by_certificate, "kafka_tls": True, "kafka_ca_file": broker.ca_file,
        "kafka_cert_file": certificate, "gateway_api_keys": "", "jwt_jwks": str(keys), "jwt_algorithm": "ES256",
    })  # fmt: skip
    return stage


def write_issuer(name: str, public: Path) -> str:
    """A new key of an identity provider, as JSON; its public part is written as a key set."""
    private = {"kid": name, **ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()), as_dict=True)}
    shown = {field: value for field, value in private.items() if field != "d"}
    public.write_text(json.dumps({"keys": [shown]}))
    return json.dumps(private)


def token_of(user: str, issuer: str) -> str:
    """What the identity provider with this key gives the user."""
    key = jwt.PyJWK.from_json(issuer)
    claims = {"sub": user, "exp": int(time.time()) + 3600}
    return jwt.encode(claims, key.key, algorithm="ES256", headers={"kid": key.key_id})


def small_disks(folder: Path) -> Stage:
    """Those of the third broker and of the second worker."""
    disks = [folder / "kafka" / "broker-3", folder / "work" / "data" / "worker-2"]
    mount(disks[0], megabytes=400)
    stage = three_brokers(folder)
    mount(disks[1], megabytes=64)
    stage.variables["BROKER_DISK"] = str(disks[0])
    for disk in disks:
        stage.at_end.append(functools.partial(subprocess.run, ["umount", "--lazy", str(disk)], check=True))
    return stage


def three_brokers(folder: Path) -> Stage:
    nodes = kafka(folder, brokers=3)
    stage = Stage(folder, nodes, new_settings(folder, nodes))
    stage.acts = {
        "lose_broker": lambda number: _lose(nodes[int(number) - 1]),
        "new_broker": lambda number: nodes[int(number) - 1].start(),
    }
    return stage


def with_milvus(folder: Path) -> Stage:
    stage = plain(folder)
    node = stage.milvus = MilvusNode(folder / "milvus", free_port())
    node.start()
    stage.settings = stage.settings.model_copy(update={"milvus_uri": node.uri, "embedder": "minilm"})

    def lose(_: str) -> None:
        node.kill()
        shutil.rmtree(node.folder)

    stage.acts = {"lose_milvus": lose, "new_milvus": lambda _: node.start()}
    return stage


def with_backup(folder: Path) -> Stage:
    stage = plain(folder)
    (node,) = stage.nodes
    stage.variables["BROKER_FOLDER"] = str(node.folder)
    stage.acts = {
        "stop_broker": lambda _: node.stop(),
        "start_broker": lambda _: node.start(),
        "lose_broker": lambda _: _lose(node),
    }
    return stage


def _lose(node: KafkaNode) -> None:
    node.kill()
    shutil.rmtree(node.folder)


PROCEDURES = {
    one.page: one
    for one in (
        Procedure("partitions", plain),
        Procedure("upgrades", versions, needs=no_old_version),
        Procedure("secrets", guarded),
        Procedure("logins", logins),
        Procedure("disks", small_disks, needs=lambda: "" if can_mount() else "only root may mount a small disk"),
        Procedure("brokers", three_brokers),
        Procedure("topics", plain, may=("lost", "torn_off", "gaps"), may_fail=True),
        Procedure("milvus", with_milvus),
        Procedure("erasure", plain),
        Procedure("backups", with_backup),
    )
}


async def verdict_after(procedure: Procedure, stage: Stage) -> Verdict:
    settings = stage.settings.model_copy(update={"broker": _plain(stage), **_NO_LOGIN})
    if procedure.page == "partitions":
        moved: Settings = settings.model_copy(update={"topic_prefix": "chat2-", "partitions": 8})
        return await verdict_of(moved, settings)
    return await verdict_of(settings, erased=[ERASED] if procedure.page == "erasure" else [])


_NO_LOGIN = {
    "kafka_tls": False,
    "kafka_ca_file": None,
    "kafka_cert_file": None,
    "kafka_sasl_mechanism": "",
    "kafka_username": "",
    "kafka_password": "",
}


def _plain(stage: Stage) -> str:
    return ";".join(node.uri for node in stage.nodes)
