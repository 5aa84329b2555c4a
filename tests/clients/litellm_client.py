import litellm
from checks import BASE_URL, HOURS, KEY, MODEL, QUESTION, check, expect, run

TOOL = {
    "type": "function",
    "function": {
        "name": "order_status",
        "description": "Where an order is.",
        "parameters": {"type": "object", "properties": {"order_number": {"type": "string"}}},
    },
}
WHERE = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": KEY}


@check("completion")
def completion() -> None:
    reply = litellm.completion(messages=[{"role": "user", "content": HOURS}], **WHERE)
    expect("8 am" in reply.choices[0].message.content, reply)


@check("stream")
def stream() -> None:
    chunks = list(litellm.completion(messages=[{"role": "user", "content": HOURS}], stream=True, **WHERE))
    expect("8 am" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks), chunks)


@check("tools")
def tools() -> None:
    reply = litellm.completion(messages=[{"role": "user", "content": QUESTION}], tools=[TOOL], **WHERE)
    expect("48213" in reply.choices[0].message.tool_calls[0].function.arguments, reply)


@check("responses")
def responses() -> None:
    reply = litellm.responses(input=HOURS, **WHERE)
    expect("8 am" in reply.output[0].content[0].text, reply)


@check("embedding")
def embedding() -> None:
    reply = litellm.embedding(model="openai/minilm", input=["one"], api_base=BASE_URL, api_key=KEY)
    expect(len(reply.data[0]["embedding"]) == 384, reply)


run()
