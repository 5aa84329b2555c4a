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
        settings = Settings(
            _env_file=None, broker=kafka.broker_setting, milvus_uri=milvus.uri, data_dir=folder / "data", partitions=4
        )
        asyncio.run(create_topics(settings))
        worker = stack.enter_context(WorkerProcess(settings, folder / "worker.log"))
        gateway = stack.enter_context(GatewayProcess(settings, folder / "gateway.log"))
        worker.wait_owning(settings.partitions)
        return _report(wanted, gateway.url, milvus.uri)


def _report(wanted: list[str], gateway: str, milvus: str) -> int:
    failed = 0
    for client in CLIENTS:
        if client.name not in wanted:
            continue
        for check, error in results(client, gateway, milvus):
            failed += error is not None
            print(f"{client.name:14} {check:55} {'works' if error is None else 'FAILED: ' + error}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
