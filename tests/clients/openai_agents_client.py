from checks import AGAIN, BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, expect_turns, run
from openai import AsyncOpenAI

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    SQLiteSession,
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


async def three_turns(agent: Agent, **more: object) -> None:
    texts, previous = [], {}
    for question in (QUESTION, AGAIN, HOURS):
        found = await Runner.run(agent, question, **more, **previous)
        texts.append(found.final_output)
        previous = {} if "session" in more else {"previous_response_id": found.last_response_id}
    expect_turns(texts)


@check("three turns with a tool, session")
async def session() -> None:
    await three_turns(Agent(name="shop", model=MODEL, tools=[order_status]), session=SQLiteSession("one"))


@check("three turns with a tool, session, chat completions")
async def session_of_chat() -> None:
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    await three_turns(Agent(name="shop", model=model, tools=[order_status]), session=SQLiteSession("two"))


@check("three turns with a tool, previous_response_id")
async def chained() -> None:
    await three_turns(Agent(name="shop", model=MODEL, tools=[order_status]), auto_previous_response_id=True)


run()
