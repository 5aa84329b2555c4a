"""The configuration of a local broker: KRaft, fast to start, with real guarantees.

Everything that Parley depends on (transactions and their verification, acks, fencing) keeps Kafka's defaults. What only
costs time on one machine is reduced: partitions of internal topics, the cleaner's buffer. So is the time for which an
open transaction may hold back the records behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.local.ports import LOOPBACK

MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Voter:
    """One node of the cluster, as the others know it."""

    node_id: int
    port: int
    controller_port: int


def server_properties(me: Voter, voters: tuple[Voter, ...], data: Path) -> dict[str, str]:
    replicas = min(len(voters), MOST_REPLICAS)
    in_sync = max(1, replicas - 1)
    return {
        "process.roles": "broker,controller",
        "node.id": str(me.node_id),
        "controller.quorum.voters": ",".join(f"{v.node_id}@{LOOPBACK}:{v.controller_port}" for v in voters),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{me.port},CONTROLLER://{LOOPBACK}:{me.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{me.port}",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": "8",
        # The default is 15 minutes. 60 s is what aiokafka's and Java's producers ask for; workers ask for 30 s.
        "transaction.max.timeout.ms": "60000",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "log.retention.check.interval.ms": "30000",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "log.cleaner.backoff.ms": "5000",
        # The default of 0.5 s, for a record that says nothing, is half of what an idle broker costs.
        "metadata.max.idle.interval.ms": "10000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
        # A killed broker may register again only after its former session has expired.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
    }


LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRefs = out
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


def as_text(properties: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in properties.items())
