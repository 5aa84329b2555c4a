from typing import Annotated

from checks import BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, run
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret


@tool
def order_status(order_number: Annotated[str, "its number"]) -> dict:
    """Where an order is."""
    return STATUS if order_number == "48213" else {}


def generator() -> OpenAIChatGenerator:
    return OpenAIChatGenerator(model=MODEL, api_base_url=BASE_URL, api_key=Secret.from_token(KEY))


@check("chat")
def chat() -> None:
    reply = generator().run([ChatMessage.from_user(HOURS)])["replies"][0]
    expect("8 am" in reply.text, reply)


@check("agent with a tool")
def agent() -> None:
    shop = Agent(chat_generator=generator(), tools=[order_status])
    found = shop.run(messages=[ChatMessage.from_user(QUESTION)])["messages"][-1]
    expect("packed" in (found.text or ""), found)


run()
