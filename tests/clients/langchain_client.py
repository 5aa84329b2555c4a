from checks import BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, run
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

chat = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, temperature=0)


@tool
def order_status(order_number: str) -> dict:
    """Where an order is."""
    return STATUS if order_number == "48213" else {}


class Mood(BaseModel):
    happy: bool


@check("invoke")
def invoke() -> None:
    reply = chat.invoke(HOURS)
    expect("8 am" in reply.content and reply.usage_metadata["output_tokens"], reply)


@check("stream")
def stream() -> None:
    pieces = [piece.content for piece in chat.stream(HOURS)]
    expect(len(pieces) > 3 and "8 am" in "".join(pieces), pieces)


@check("bind_tools")
def bind_tools() -> None:
    reply = chat.bind_tools([order_status]).invoke(QUESTION)
    expect(reply.tool_calls[0]["args"] == {"order_number": "48213"}, reply)


@check("agent with a tool")
def agent() -> None:
    last = create_agent(chat, [order_status]).invoke({"messages": [("user", QUESTION)]})["messages"][-1]
    expect("packed" in last.content and "Friday" in last.content, last)


@check("with_structured_output")
def structured() -> None:
    expect(isinstance(chat.with_structured_output(Mood).invoke("Are you happy?"), Mood), "no Mood")


@check("responses API")
def responses() -> None:
    reply = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, use_responses_api=True).invoke(HOURS)
    expect("8 am" in reply.text, reply)


@check("completions")
def completions() -> None:
    text = OpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, max_tokens=5).invoke("Hello")
    expect(isinstance(text, str), text)


@check("embeddings")
def embeddings() -> None:
    # Without this setting the client tokenizes with OpenAI's vocabulary, which it downloads.
    embedder = OpenAIEmbeddings(model="minilm", base_url=BASE_URL, api_key=KEY, check_embedding_ctx_length=False)
    expect(len(embedder.embed_documents(["one", "two"])) == 2, "two vectors")


run()
