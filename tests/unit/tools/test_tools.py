"""Functions and MCP servers as tools: schemas, calls, and what goes wrong in them."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import sys
import time
from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any, cast

import msgspec
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
)
from mcp import Client, types
from mcp.server import MCPServer
from mcp.server.lowlevel import Server

from app.delivery.commits.handover import Offsets
from app.settings import Settings
from app.tools import ToolError, Tools, current_call
from app.tools.serving import ToolServer
from app.tools.tools import refusal_of
from app.wire.codec import WireFormat, decode, encode
from app.wire.tool_records import ToolCallRecord, ToolResultRecord

SETTINGS = Settings(_env_file=None)


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Address(msgspec.Struct):
    city: str
    zip: str | None = None


def call_of(name: str, arguments: str, *, left_s: float = 60.0) -> ToolCallRecord:
    now = int(time.time() * 1000)
    return ToolCallRecord(
        tool_call_id="call_1",
        name=name,
        arguments=arguments,
        request_id="r1",
        user_id="ann",
        conversation_id="default",
        created_at=now,
        expires_at=now + int(left_s * 1000),
    )


async def answered(tools: Tools, name: str, arguments: str, **fields: Any) -> tuple[str, bool]:
    value, headers = encode(call_of(name, arguments, **fields))
    answer = await tools.answer(value, headers)
    assert answer is not None
    result = decode(ToolResultRecord, *answer)
    assert (result.tool_call_id, result.request_id, result.user_id) == ("call_1", "r1", "ann")
    return result.content, result.is_error


def ordering() -> Tools:
    tools = Tools()

    @tools.tool
    async def order(item: str, size: Size = Size.SMALL, to: Address | None = None) -> dict[str, Any]:
        """Order a thing."""
        return {"item": item, "size": size, "to": to, "by": current_call.get().user_id}

    @tools.tool(name="now", description="The hour.")
    def hour() -> str:
        return "noon"

    return tools


def test_schemas_follow_from_annotations_and_defaults() -> None:
    order, hour = (one["function"] for one in ordering().definitions)
    assert (order["name"], order["description"]) == ("order", "Order a thing.")
    assert order["parameters"]["required"] == ["item"]
    assert order["parameters"]["additionalProperties"] is False
    assert order["parameters"]["properties"]["size"]["default"] == "small"
    assert set(order["parameters"]["$defs"]) == {"Size", "Address"}
    assert (hour["name"], hour["description"], hour["parameters"]["properties"]) == ("now", "The hour.", {})


async def test_functions_get_their_arguments_and_return_text_or_json() -> None:
    content, is_error = await answered(ordering(), "order", '{"item": "tea", "to": {"city": "Oslo"}}')
    assert not is_error
    expected = {"item": "tea", "size": "small", "to": {"city": "Oslo", "zip": None}, "by": "ann"}
    assert json.loads(content) == expected
    assert await answered(ordering(), "now", "{}") == ("noon", False)


@pytest.mark.parametrize("arguments", ["{", '{"item": 3}', '{"item": "tea", "colour": "red"}', "{}"])
async def test_arguments_that_do_not_fit_are_an_error_that_the_model_reads(arguments: str) -> None:
    content, is_error = await answered(ordering(), "order", arguments)
    assert is_error
    assert content.startswith("error: wrong arguments: ")


async def test_a_function_that_raises_or_takes_too_long_is_an_error() -> None:
    tools = Tools()

    @tools.tool
    async def broken() -> None:
        raise LookupError("postgresql://shop:secret@db/orders cannot be reached")

    @tools.tool
    async def told() -> None:
        raise ToolError("no such order")

    @tools.tool
    async def slow() -> None:
        await asyncio.sleep(60)

    assert await answered(tools, "broken", "{}") == ("error: broken failed", True)
    assert await answered(tools, "told", "{}") == ("error: no such order", True)
    assert await answered(tools, "slow", "{}", left_s=0.1) == ("error: slow did not answer in time", True)


class UnsayableError(ToolError):
    def __str__(self) -> str:
        raise LookupError


def cyclic() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


async def cancelled() -> None:
    raise asyncio.CancelledError


RESULTS: dict[str, Any] = {
    "an object that JSON has not": object,
    "a cycle": cyclic,
    "a program that ends": lambda: sys.exit(1),
    "a cancelled task": cancelled,
    "an interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
    "an error without words": lambda: (_ for _ in ()).throw(UnsayableError()),
    "an error of a megabyte": lambda: (_ for _ in ()).throw(ToolError("x" * (2 << 20))),
    "more than a prompt": lambda: "x" * 70_000,
    "more than a record": lambda: "x" * (2 << 20),
    "more than a record as JSON": lambda: "\0" * 60_000 * 5,
}


@pytest.mark.parametrize("wire_format", WireFormat)
@pytest.mark.parametrize("what", RESULTS)
async def test_whatever_a_tool_does_its_call_has_one_small_result(what: str, wire_format: WireFormat) -> None:
    tools = Tools()
    function = RESULTS[what]

    @tools.tool
    async def odd() -> Any:
        made = function()
        return await made if asyncio.iscoroutine(made) else made

    most = 1 << 20 if what == "more than a record as JSON" else 65536
    answer = await tools.answer(*encode(call_of("odd", "{}"), wire_format), most_bytes=most)
    assert answer is not None
    result = decode(ToolResultRecord, *answer)
    if what != "more than a record as JSON" or wire_format is WireFormat.JSON:
        assert result.is_error
        assert result.content.startswith("error: ")
        assert len(answer[0]) < 2000


async def test_a_name_of_a_file_that_is_no_utf_8_and_a_nan_are_results() -> None:
    tools = Tools()

    @tools.tool
    def named() -> str:
        return "a\udc80.txt"

    @tools.tool
    def figures() -> list[float]:
        return [math.nan, math.inf, 1.5]

    assert await answered(tools, "named", "{}") == ("a?.txt", False)
    assert await answered(tools, "figures", "{}") == ("[null,null,1.5]", False)


class Producer:
    """Raises what it is given, one error a send."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.sent = list(errors), list[bytes]()

    async def send_and_wait(self, _topic: str, value: bytes, **_rest: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(value)


async def handled(producer: Producer, answer: Any) -> tuple[bool, list[bytes]]:
    """Whether the offset moves on, and what was written."""
    server = ToolServer(SETTINGS, "tools", answer, refusal_of)
    value, _ = encode(call_of("now", "{}"))
    offsets = Offsets(next=7)
    offsets.add(7, 0)
    record = ConsumerRecord("tool-calls", 0, 7, 0, 0, b"ann", value, None, 3, len(value), ())
    with suppress(KafkaError):
        await server._handle(cast(AIOKafkaProducer, producer), offsets, record)
    return offsets.head() == 8, producer.sent


async def test_what_a_topic_does_not_take_is_an_error_and_the_offset_moves_on() -> None:
    moved, sent = await handled(Producer(MessageSizeTooLargeError()), ordering().answer)
    assert moved
    assert [decode(ToolResultRecord, value).is_error for value in sent] == [True]
    moved, sent = await handled(Producer(MessageSizeTooLargeError(), MessageSizeTooLargeError()), ordering().answer)
    assert (moved, sent) == (True, [])


async def test_a_passing_error_of_the_broker_runs_no_tool_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tools.serving._AGAIN_S", 0.0)
    moved, sent = await handled(Producer(NotEnoughReplicasError(), KafkaTimeoutError()), ordering().answer)
    assert moved
    assert [decode(ToolResultRecord, value).content for value in sent] == ["noon"]


async def test_a_lasting_error_of_the_broker_keeps_the_offset_and_one_of_the_program_does_not() -> None:
    assert await handled(Producer(TopicAuthorizationFailedError("no")), ordering().answer) == (False, [])

    async def broken(*_call: Any) -> Any:
        raise LookupError

    assert await handled(Producer(), broken) == (True, [])


async def test_calls_of_other_tools_rubbish_and_calls_whose_time_is_over_get_no_answer() -> None:
    tools = ordering()
    for call in (call_of("other", "{}"), call_of("now", "{}", left_s=-1)):
        assert await tools.answer(*encode(call)) is None
    assert await tools.answer(b"{not json", ()) is None


async def test_the_answer_has_the_format_and_the_trace_of_the_call() -> None:
    value, headers = encode(call_of("now", "{}"), WireFormat.PROTOBUF)
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    answer = await ordering().answer(value, [*headers, trace])
    assert answer is not None
    assert decode(ToolResultRecord, *answer).content == "noon"
    assert trace in answer[1]


def test_parameters_need_names_annotations_and_their_tools_other_names() -> None:
    tools = ordering()
    with pytest.raises(ValueError, match="two tools now"):
        tools.tool(name="now")(lambda: "")

    def bare(x) -> None: ...  # type: ignore[no-untyped-def]

    def many(*xs: int) -> None: ...

    for function, why in ((lambda: None, "must be 1-64"), (bare, "needs an annotation"), (many, "can be named")):
        with pytest.raises(TypeError, match=why):
            tools.tool(function)


@pytest.mark.parametrize("page_size", [0, 1])
async def test_an_mcp_server_that_lists_tools_without_end_is_refused(page_size: int) -> None:
    numbers = itertools.count()

    async def list_tools(*_: Any) -> types.ListToolsResult:
        tools = [types.Tool(name=f"tool-{next(numbers)}", input_schema={"type": "object"}) for _ in range(page_size)]
        return types.ListToolsResult(tools=tools, next_cursor="more")

    async with Client(Server("endless", on_list_tools=list_tools)) as client:
        with pytest.raises(ToolError, match="more than 128 tools, or more than 200 pages"):
            await Tools().add_mcp(client)


async def test_the_tools_of_an_mcp_server_are_tools() -> None:
    server = MCPServer("shop")

    @server.tool()
    def price(item: Annotated[str, "what is bought"]) -> str:
        """What a thing costs."""
        if item == "ghost":
            raise ValueError("not for sale")
        return f"{item}: 3 euros"

    tools = Tools()
    async with Client(server) as client:
        await tools.add_mcp(client)
        (definition,) = tools.definitions
        assert definition["function"]["description"] == "What a thing costs."
        assert definition["function"]["parameters"]["required"] == ["item"]
        assert await answered(tools, "price", '{"item": "tea"}') == ("tea: 3 euros", False)
        content, is_error = await answered(tools, "price", '{"item": "ghost"}')
    assert is_error
    assert content.startswith("error: ")
