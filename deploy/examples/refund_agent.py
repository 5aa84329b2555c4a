"""The refund desk as a program: an agent whose answers this function decides, step by step.

pip install 'parley-client[tools]'; then `python refund_agent.py`, with BROKER=host:port where Kafka is not at
127.0.0.1:9092. Parley's policy has the agent of refund_agent.toml. Run as many as you like, and kill any: each answer
goes on behind its last step.
"""

import os
import re
from typing import Any

from parley_client.agents import AgentRequest, Agents, Step, StepError

ORDERS = {"17": {"item": "a lamp", "paid": 40}, "48213": {"item": "a sofa", "paid": 900}}
SMALL = 50

agents = Agents()


def order_in(text: str) -> dict[str, Any] | None:
    """Here a request to your own systems would be."""
    number = re.search(r"[0-9]+", text)
    return None if number is None or number[0] not in ORDERS else {"number": number[0], **ORDERS[number[0]]}


@agents.agent("refunds")
async def refunds(step: Step, request: AgentRequest) -> str:
    order = await step.run(lambda: order_in(request.prompt))
    if order is None:
        await step.answer("Ask the customer for the number of the order, in one sentence.", max_tokens=40)
        return "I need the number of your order."
    await step.say(f"I look at order {order['number']}, {order['item']}.")
    if order["paid"] > SMALL:
        try:
            decision = await step.approve("refund", {"order": order["number"], "amount": order["paid"]}, by="desk")
        except StepError as error:
            return f"We cannot refund it now: {error}."
        if not decision.is_approved:
            return f"We cannot refund it: {decision.reason or 'nobody has decided in time'}."
        order["paid"] = decision.arguments.get("amount", order["paid"])  # a desk may edit them
    await step.run(lambda: pay(order, step.key))
    await step.answer("Tell the customer in one sentence that the money is on its way.", max_tokens=40)
    return f"{order['paid']} are on their way to you."


def pay(order: dict[str, Any], key: str) -> str:
    """Runs at least once: a payment service does the same `key` once."""
    print("pays", order["number"], order["paid"], key, flush=True)
    return "paid"


if __name__ == "__main__":
    agents.run(os.environ.get("BROKER", "127.0.0.1:9092"), prefix=os.environ.get("PREFIX", ""))
