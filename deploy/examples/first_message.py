"""Ask over Kafka and print the answer as it comes.

pip install aiokafka; then `python first_message.py ["PROMPT"]`, with KAFKA=host:port where it is not 127.0.0.1:9092.
"""

import asyncio
import json
import logging
import os
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

KAFKA = os.environ.get("KAFKA", "127.0.0.1:9092")
USER = "ann"


async def print_answer(records: AIOKafkaConsumer, request_id: str) -> None:
    """The reader rule, for one request that is sent after this reader has its place."""
    epochs: dict[int, int] = {}
    offsets: dict[int, int] = {}
    parts: list[tuple[int, str]] = []  # index, text
    async for record in records:
        event = json.loads(record.value)
        epoch = record.offset if event["type"] == "fence" else event["epoch"]
        if record.offset <= offsets.get(record.partition, -1):
            epochs.pop(record.partition, None)  # the topic has lost its tail, or was created anew
        offsets[record.partition] = record.offset
        if epoch < epochs.get(record.partition, -1):
            continue  # a late word of a former owner of the partition
        epochs[record.partition] = epoch
        if event.get("request_id") != request_id or event["type"] == "notice":
            continue
        if parts and parts[-1][0] >= event["index"]:
            parts = [part for part in parts if part[0] < event["index"]]
            print("\r" + "".join(text for _, text in parts), end="", flush=True)
        if event.get("text"):
            parts.append((event["index"], event["text"]))
            print(event["text"], end="", flush=True)
        if event["type"] in {"done", "error"}:
            print(f"\n[{event.get('finish_reason') or event['error']['message']}]")
            return


async def main(prompt: str) -> None:
    records = AIOKafkaConsumer("tokens", bootstrap_servers=KAFKA, isolation_level="read_committed")
    producer = AIOKafkaProducer(bootstrap_servers=KAFKA, enable_idempotence=True)
    try:
        await records.start()
        await producer.start()
        await records.seek_to_end()
        request = {"request_id": str(uuid.uuid4()), "user_id": USER, "prompt": prompt}
        await producer.send_and_wait("requests", json.dumps(request).encode(), key=USER.encode())
        await print_answer(records, request["request_id"])
    except KafkaConnectionError:
        sys.exit(f"no Kafka answers at {KAFKA}: name it with KAFKA=host:port (`parley local up` prints it)")
    finally:
        await producer.stop()
        await records.stop()


logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
asyncio.run(main(" ".join(sys.argv[1:]) or "Where is my order 17?"))
