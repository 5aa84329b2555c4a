"""Answer the calls of `order_status` over Kafka, and ask one question that needs it.

Run it from the project folder beside a worker: `.venv/bin/python deploy/examples/order_tool.py ["PROMPT"]`. It takes
PARLEY_BROKER and the other settings from the environment, `.env` or `.parley/local.env`.
"""

from __future__ import annotations

import asyncio
import sys

from app.kafka.clients import KafkaUnusableError, producer, start
from app.reader import Edge, TokenReader
from app.settings import Settings, settings
from app.tools import Tools, current_call
from app.wire.codec import encode
from app.wire.ids import new_request_id
from app.wire.request import Request
from app.wire.tools import Function, ToolField, ToolMode

USER = "ann"
tools = Tools()


@tools.tool
async def order_status(order_number: str) -> dict[str, str]:
    """The status of an order."""
    print(f"[{current_call.get().user_id} asks for order {order_number}]")
    return {"status": "packed", "arrives": "Friday"}


async def ask(parley: Settings, prompt: str) -> None:
    offered = tuple(ToolField(function=Function(**one["function"])) for one in tools.definitions)
    request = Request(request_id=new_request_id(), user_id=USER, prompt=prompt, tools=offered, tool_mode=ToolMode.KAFKA)
    reader = TokenReader(parley.cluster, parley.topic("tokens"), position=Edge.END)
    sender = producer(parley.cluster)
    await reader.start()
    try:
        await start(sender)
        value, headers = encode(request)
        await sender.send_and_wait(parley.topic("requests"), value, key=USER.encode(), headers=headers)
        async for update in reader.follow(USER, request.request_id):
            print(update.text, end="", flush=True)
        print(f"\n[{update.event.finish_reason or update.event.error}]")
    finally:
        await sender.stop()
        await reader.stop()


async def main(prompt: str) -> None:
    parley = settings()
    serving = asyncio.ensure_future(tools.serve(parley))
    asking = asyncio.ensure_future(ask(parley, prompt))
    await asyncio.wait({serving, asking}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, asking):
        task.cancel()
    for ended in await asyncio.gather(serving, asking, return_exceptions=True):
        if isinstance(ended, KafkaUnusableError):
            sys.exit(str(ended))


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Where is my order 48213?"))
