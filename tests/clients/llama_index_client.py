from checks import BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, run
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

WHERE = {"model": MODEL, "api_base": BASE_URL, "api_key": KEY, "context_window": 1024}


def order_status(order_number: str) -> dict:
    """Where an order is."""
    return STATUS if order_number == "48213" else {}


@check("complete, by its default, completions")
def complete() -> None:
    expect(OpenAILike(max_tokens=5, **WHERE).complete("Hello") is not None, "no reply")


@check("chat")
def chat() -> None:
    reply = OpenAILike(is_chat_model=True, **WHERE).chat([ChatMessage(role="user", content=HOURS)])
    expect("8 am" in reply.message.content, reply)


@check("stream")
def stream() -> None:
    pieces = OpenAILike(is_chat_model=True, **WHERE).stream_chat([ChatMessage(role="user", content=HOURS)])
    expect("8 am" in "".join(piece.delta or "" for piece in pieces), "no hours")


@check("agent with a tool")
async def agent() -> None:
    model = OpenAILike(is_chat_model=True, is_function_calling_model=True, **WHERE)
    found = await FunctionAgent(tools=[order_status], llm=model, streaming=False).run(QUESTION)
    expect("packed" in str(found), found)


run()
