"""A tool program: it answers the calls of `order_status` over Kafka, by invented orders.

The demo runs it. By hand, beside a worker: `python -m app.demo.order_tool ["PROMPT"]`; with a PROMPT it also asks that
question with the tool, prints the answer and ends. It takes PARLEY_BROKER and the other settings from the environment,
`.env` or `.parley/local.env`.
"""

from __future__ import annotations

import asyncio
import logging
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
_STATUS = ("packed", "shipped", "on its way", "waiting for the supplier")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")

tools = Tools()


@tools.tool
async def order_status(order_number: str) -> dict[str, str]:
    """The status of an order."""
    print(f"[{current_call.get().user_id} asks for order {order_number}]")
    number = sum(map(ord, order_number))
    return {"status": _STATUS[number % len(_STATUS)], "arrives": _DAYS[number % len(_DAYS)]}


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


async def serve_and_ask(parley: Settings, prompt: str) -> None:
    serving = asyncio.ensure_future(tools.serve(parley))
    asking = asyncio.ensure_future(ask(parley, prompt))
    await asyncio.wait({serving, asking}, return_when=asyncio.FIRST_COMPLETED)
    for task in (serving, asking):
        task.cancel()
    for ended in await asyncio.gather(serving, asking, return_exceptions=True):
        if isinstance(ended, KafkaUnusableError):
            raise ended


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        if sys.argv[1:]:
            asyncio.run(serve_and_ask(settings(), " ".join(sys.argv[1:])))
        else:
            tools.run()
    except KafkaUnusableError as error:
        sys.exit(str(error))
