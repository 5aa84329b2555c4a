from checks import BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, run
from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)

client = AsyncOpenAI(base_url=BASE_URL, api_key=KEY)
set_default_openai_client(client, use_for_tracing=False)
set_tracing_disabled(True)


@function_tool
def order_status(order_number: str) -> dict:
    """Where an order is."""
    return STATUS if order_number == "48213" else {}


@check("agent with a tool, by its default, the Responses API")
async def responses() -> None:
    found = await Runner.run(Agent(name="shop", model=MODEL, tools=[order_status]), QUESTION)
    expect("packed" in found.final_output, found)


@check("stream")
async def stream() -> None:
    running = Runner.run_streamed(Agent(name="shop", model=MODEL), HOURS)
    kinds = [event.type async for event in running.stream_events()]
    expect("8 am" in running.final_output and "raw_response_event" in kinds, kinds)


@check("agent with a tool, chat completions")
async def chat() -> None:
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    found = await Runner.run(Agent(name="shop", model=model, tools=[order_status]), QUESTION)
    expect("packed" in found.final_output, found)


run()
