import json

import litellm
from checks import AGAIN, BASE_URL, HOURS, KEY, MODEL, QUESTION, STATUS, check, expect, expect_turns, run

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


@check("three turns with a tool")
def three_turns() -> None:
    talk, texts = [{"role": "user", "content": QUESTION}], []
    called = litellm.completion(messages=talk, tools=[TOOL], **WHERE).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": json.dumps(STATUS)} for call in called.tool_calls]
    talk += [called.model_dump(), *results]
    for following in (AGAIN, HOURS, None):
        reply = litellm.completion(messages=talk, tools=[TOOL], **WHERE).choices[0].message
        texts.append(reply.content)
        talk += [reply.model_dump(), {"role": "user", "content": following}]
    expect_turns(texts)


@check("three turns with a tool, responses by their ids")
def chained() -> None:
    tool = {"type": "function", **TOOL["function"]}
    reply, texts = litellm.responses(input=QUESTION, tools=[tool], **WHERE), []
    calls = [item for item in reply.output if item.type == "function_call"]
    given = [{"type": "function_call_output", "call_id": one.call_id, "output": json.dumps(STATUS)} for one in calls]
    for following in (given, AGAIN, HOURS):
        reply = litellm.responses(input=following, tools=[tool], previous_response_id=reply.id, **WHERE)
        texts.append(reply.output[-1].content[0].text)
    expect_turns(texts)


@check("embedding")
def embedding() -> None:
    reply = litellm.embedding(model="openai/minilm", input=["one"], api_base=BASE_URL, api_key=KEY)
    expect(len(reply.data[0]["embedding"]) == 384, reply)


run()
