"""`make clients`: all clients, or those named, against a gateway and a worker with the demo model."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.settings import Settings
from tests.clients.checks import CONVERSATION_HEADER, SLOW, TENANT_KEY, USER_HEADER
from tests.clients.suite import CLIENTS, results
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess


def main() -> int:
    wanted = sys.argv[1:] or [client.name for client in CLIENTS]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        kafka = KafkaCluster(folder / "kafka")
        stack.callback(kafka.kill)
        kafka.start()
        milvus = MilvusNode(folder / "milvus", free_port())
        stack.callback(milvus.kill)
        milvus.start()
        policy = folder / "policy.toml"
        policy.write_text(f"[models.{SLOW}]\nengine = 'paced'\npath = 'demo'\npaced_tokens_per_s = 20.0\n")
        settings = Settings(
            _env_file=None,
            broker=kafka.broker_setting,
            milvus_uri=milvus.uri,
            data_dir=folder / "data",
            partitions=4,
            policy=policy,
        )
        asyncio.run(create_topics(settings))
        worker = stack.enter_context(WorkerProcess(settings, folder / "worker.log"))
        gateway = stack.enter_context(GatewayProcess(settings, folder / "gateway.log"))
        with_users = {
            "gateway_api_keys": f"{TENANT_KEY}=pages/*",
            "gateway_user_header": USER_HEADER,
            "gateway_conversation_header": CONVERSATION_HEADER,
        }
        keyed = GatewayProcess(settings.model_copy(update=with_users), folder / "keyed.log")
        stack.enter_context(keyed)
        worker.wait_owning(settings.partitions)
        return _report(wanted, gateway.url, keyed.url, milvus.uri)


def _report(wanted: list[str], gateway: str, keyed: str, milvus: str) -> int:
    """`keyed`: the gateway that knows the key of a tenant."""
    failed = 0
    for client in CLIENTS:
        if client.name not in wanted:
            continue
        for check, error in results(client, keyed if client.has_users else gateway, milvus):
            failed += error is not None
            print(f"{client.name:14} {check:55} {'works' if error is None else 'FAILED: ' + error}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
