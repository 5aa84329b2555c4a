from checks import AGAIN, BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, expect_turns, run
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from langgraph.checkpoint.memory import MemorySaver
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


WAYS = {
    "chat": {},
    "Responses API": {"use_responses_api": True},
    "Responses API, v1": {"use_responses_api": True, "output_version": "v1"},
    "Responses API, previous id": {"use_responses_api": True, "use_previous_response_id": True},
    "Responses API, store false": {"use_responses_api": True, "store": False},
}


def three_turns(**way: object) -> None:
    asker = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, temperature=0, **way).bind_tools([order_status])
    talk, texts = [HumanMessage(QUESTION)], []
    called = asker.invoke(talk)
    talk += [called, *(ToolMessage(str(STATUS), tool_call_id=call["id"]) for call in called.tool_calls)]
    for following in (AGAIN, HOURS, None):
        talk.append(asker.invoke(talk))
        texts.append(talk[-1].text)
        talk += [HumanMessage(following)] if following else []
    expect_turns(texts)


for name, way in WAYS.items():
    check(f"three turns with a tool, {name}")(lambda way=way: three_turns(**way))


def checkpointed(**way: object) -> None:
    model = ChatOpenAI(model=MODEL, base_url=BASE_URL, api_key=KEY, temperature=0, **way)
    agent, thread = (
        create_agent(model, [order_status], checkpointer=MemorySaver()),
        {"configurable": {"thread_id": "t"}},
    )
    asked = (agent.invoke({"messages": [("user", one)]}, thread) for one in (QUESTION, AGAIN, HOURS))
    expect_turns([found["messages"][-1].text for found in asked])


check("LangGraph: three turns with a tool and a checkpointer")(checkpointed)
check("LangGraph: the same by the Responses API")(lambda: checkpointed(use_responses_api=True))


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
