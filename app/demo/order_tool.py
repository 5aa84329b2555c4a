"""The demo's tool: `python -m app.demo.order_tool` answers the calls of `order_status`, by invented orders."""

from __future__ import annotations

import logging
import sys

from app.kafka.clients import KafkaUnusableError
from app.tools import Tools

_STATUS = ("packed", "shipped", "on its way", "waiting for the supplier")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")

tools = Tools()


@tools.tool
async def order_status(order_number: str) -> dict[str, str]:
    """The status of an order."""
    number = sum(map(ord, order_number))
    return {"status": _STATUS[number % len(_STATUS)], "arrives": _DAYS[number % len(_DAYS)]}


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    try:
        tools.run()
    except KafkaUnusableError as error:
        sys.exit(str(error))
