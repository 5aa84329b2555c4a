"""Items that are named instead of sent, without a log: what the responses say is given."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from app.gateway.asking.reading import parse
from app.gateway.edge.errors import ApiError
from app.gateway.openai.item_references import has_references, with_items
from app.gateway.openai.responses_body import ResponsesBody
from app.gateway.openai.stored_responses import StoredResponses
from app.wire.error import ErrorCode
from app.wire.request import Message
from app.wire.turn import Turn

SAID = {
    "type": "message", "id": "msg_r1_0", "role": "assistant", "status": "incomplete",
    "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
}  # fmt: skip
CUT = {
    "type": "function_call",
    "id": "fc_r1_1",
    "call_id": "c1",
    "name": "f",
    "arguments": '{"a',
    "status": "incomplete",
}
WRITTEN = {"type": "reasoning", "id": "rs_r1_2", "status": "in_progress", "summary": [], "content": []}
ASKED = {
    "type": "message", "id": "msg_r1_in_0", "role": "user", "status": "completed",
    "content": [{"type": "input_text", "text": "Hi"}],
}  # fmt: skip


class Responses:
    """One response, `r1`, whose events are all there unless it `has_expired`."""

    def __init__(self, *, has_expired: bool = False) -> None:
        self._has_expired = has_expired

    async def current(self) -> None: ...

    async def of_request(self, request_id: str) -> Any:
        given = SimpleNamespace(input_items=lambda _request: [ASKED])
        return SimpleNamespace(request=None, given=given) if request_id == "r1" else None

    async def described(self, _stored: Any) -> Mapping[str, Any]:
        if self._has_expired:
            raise ApiError(ErrorCode.NOT_FOUND, "it has expired")
        return {"output": [SAID, CUT, WRITTEN]}

    async def turns(self) -> AsyncGenerator[Turn, None]:
        yield msgspec.convert(
            {
                "request_id": "r2", "user_id": "ann", "conversation_id": "c", "prompt": "Why?", "answer": "Thus.",
                "finish_reason": "stop", "usage": {"prompt_tokens": 1, "completion_tokens": 1}, "model_version": "m",
                "created_at": 1,
            },
            Turn,
        )  # fmt: skip


async def messages(*items: Any, **values: bool) -> tuple[Message, ...]:
    body: ResponsesBody = parse(msgspec.json.encode({"input": items}), ResponsesBody)[0]
    assert has_references(body)
    return (await with_items(body, cast(StoredResponses, Responses(**values)))).messages


def named(name: str) -> dict[str, str]:
    return {"type": "item_reference", "id": name}


async def test_a_name_stands_for_what_was_asked_and_said() -> None:
    asked, said, why, thus, new = await messages(
        named("msg_r1_in_0"),
        {"id": "msg_r1_0"},
        named("item_r2_in"),
        named("item_r2_out"),
        {"role": "user", "content": "x"},
    )
    texts = [(one.role, one.text) for one in (asked, said, why, thus, new)]
    assert texts == [("user", "Hi"), ("assistant", "Hello"), ("user", "Why?"), ("assistant", "Thus."), ("user", "x")]


async def test_a_call_that_was_cut_is_one_without_arguments() -> None:
    (call,) = await messages(named("fc_r1_1"))
    assert call.tool_calls is not None
    assert [(one.id, one.function.name, one.function.arguments) for one in call.tool_calls] == [("c1", "f", "{}")]


@pytest.mark.parametrize("name", ["msg_r1_9", "msg_r9_0", "msg", "", "item_r9_in", "rs_r1_2"])
async def test_an_item_that_is_not_there_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        await messages(named("msg_r1_0"), named(name))
    assert (refused.value.status, refused.value.param) == (404, "input")
    assert f"item with id {name!r}" in refused.value.message
    assert ("not complete yet" in refused.value.message) == (name == "rs_r1_2")


async def test_an_item_whose_events_have_left_the_log_is_refused() -> None:
    with pytest.raises(ApiError, match="'msg_r1_0' not found"):
        await messages(named("msg_r1_0"), has_expired=True)


async def test_items_of_very_many_responses_are_refused() -> None:
    with pytest.raises(ApiError, match="more than 256 responses"):
        await messages(*(named(f"msg_r{number}_0") for number in range(257)))
