"""A program of an agent by two topics alone: what any language with a Kafka client can do.

pip install aiokafka; then `python any_language.py`, with BROKER=host:port where Kafka is not at 127.0.0.1:9092.
Parley's policy has the agent of refund_agent.toml. Each record of `tool-calls` named `agent:parrot` has all steps so
far; the answer, on `tool-results` under the same key, is the next one. A record that is read again gets the same one.
"""

import asyncio
import json
import os
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

BROKER, PREFIX = os.environ.get("BROKER", "127.0.0.1:9092"), os.environ.get("PREFIX", "")


def command(request: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """What comes behind these steps."""
    if not steps:
        return {"command": "say", "text": f"You said: {request['prompt']}"}
    if len(steps) == 1:
        return {"command": "answer", "prompt": "Say it in other words.", "max_tokens": 5}
    if len(steps) == 2:
        return {"command": "say", "text": f"That had {len(steps[1]['outcome'].split())} words."}
    return {"command": "end"}


async def main() -> None:
    consumer = AIOKafkaConsumer(
        f"{PREFIX}tool-calls",
        bootstrap_servers=BROKER,
        group_id="parrot",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=BROKER, enable_idempotence=True) as producer:
        async for record in consumer:
            call = json.loads(record.value)
            if call["name"] != "agent:parrot":
                continue
            content = json.dumps(command(**json.loads(call["arguments"])))
            result = {name: call[name] for name in ("tool_call_id", "request_id", "user_id")} | {"content": content}
            await producer.send_and_wait(f"{PREFIX}tool-results", json.dumps(result).encode(), key=record.key)


if __name__ == "__main__":
    asyncio.run(main())
