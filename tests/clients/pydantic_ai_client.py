from checks import AGAIN, BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, expect_turns, run
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=BASE_URL, api_key=KEY)
model = OpenAIChatModel(MODEL, provider=provider)


class Mood(BaseModel):
    happy: bool


@check("text")
async def text() -> None:
    reply = await Agent(model).run(HOURS)
    expect("8 am" in reply.output, reply)


@check("stream")
async def stream() -> None:
    async with Agent(model).run_stream(HOURS) as reply:
        pieces = [piece async for piece in reply.stream_text(delta=True)]
    expect("8 am" in "".join(pieces), pieces)


@check("structured output by its default, a tool")
async def structured() -> None:
    reply = await Agent(model, output_type=Mood).run("Are you happy?")
    expect(isinstance(reply.output, Mood), reply)


@check("agent with a tool")
async def agent() -> None:
    shop = Agent(model)

    @shop.tool_plain
    def order_status(order_number: str) -> dict:
        """Where an order is."""
        return STATUS if order_number == "48213" else {}

    reply = await shop.run(QUESTION)
    expect("packed" in reply.output, reply)


@check("responses API")
async def responses() -> None:
    reply = await Agent(OpenAIResponsesModel(MODEL, provider=provider)).run(HOURS)
    expect("8 am" in reply.output, reply)


async def three_turns(model: object, **settings: object) -> None:
    shop, history, texts = Agent(model, model_settings=settings), None, []

    @shop.tool_plain
    def order_status(order_number: str) -> dict:
        """Where an order is."""
        return STATUS if order_number == "48213" else {}

    for question in (QUESTION, AGAIN, HOURS):
        reply = await shop.run(question, message_history=history)
        history = reply.all_messages()
        texts.append(reply.output)
    expect_turns(texts)


check("three turns with a tool")(lambda: three_turns(model))
by_responses = OpenAIResponsesModel(MODEL, provider=provider)
check("three turns with a tool, Responses API")(lambda: three_turns(by_responses))
check("three turns with a tool, previous id")(lambda: three_turns(by_responses, openai_previous_response_id="auto"))


run()
