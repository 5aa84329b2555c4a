"""What each page needs to be executed, and what may be otherwise afterwards than nothing lost."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

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
        program.write_text(f'#!/bin/sh\nPYTHONPATH={code} exec {Path(sys.executable).with_name("parley")} "$@"\n')
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


def small_disk(folder: Path) -> Stage:
    stage = plain(folder)
    place = stage.work / "data" / "worker-2"
    mount(place, megabytes=64)
    stage.at_end.append(lambda: subprocess.run(["umount", "--lazy", str(place)], check=True))
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
        Procedure("disks", small_disk, needs=lambda: "" if can_mount() else "only root may mount a small disk"),
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
    "kafka_sasl_mechanism": "",
    "kafka_username": "",
    "kafka_password": "",
}


def _plain(stage: Stage) -> str:
    return ";".join(node.uri for node in stage.nodes)
