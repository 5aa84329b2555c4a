"""The file with the tools that the chat page offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.demo.order_tool import tools
from app.gateway.asking.tools import ToolsFileError, offered_tools, with_offered_tools
from app.gateway.edge.errors import ApiError
from app.wire.request import Request
from app.wire.tools import Function, ToolField, ToolMode


def test_it_is_the_definitions_of_a_program(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(tools.definitions))
    (offered,) = offered_tools(path)
    assert offered.function.name == "order_status"
    assert offered_tools(None) == ()


@pytest.mark.parametrize("content", [None, "{", "{}", '[{"type": "function"}]', '[{"type": "other", "function": {}}]'])
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tools.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ToolsFileError, match=r"^PARLEY_GATEWAY_TOOLS=\S+: ") as caught:
        offered_tools(path)
    assert "\n" not in str(caught.value)


def tool(name: str, **parameters: object) -> ToolField:
    return ToolField(function=Function(name=name, parameters={"type": "object", **parameters}))


def request(*tools: ToolField, mode: ToolMode = ToolMode.KAFKA) -> Request:
    return Request(request_id="r", user_id="acme/nina", prompt="hi", tools=tools, tool_mode=mode)


OFFER = (tool("order_status", properties={"order": {"type": "string"}}),)
FIXED = {"order": {"const": "4711"}}


def test_tools_over_kafka_have_the_schemas_of_the_offer() -> None:
    asked = with_offered_tools(request(tool("order_status", properties=FIXED)), OFFER, ())
    assert asked.tools == OFFER


def test_a_tool_that_is_not_offered_is_refused_by_name() -> None:
    with pytest.raises(ApiError, match="refund_order") as caught:
        with_offered_tools(request(*OFFER, tool("refund_order")), OFFER, ())
    assert (caught.value.status, caught.value.param) == (400, "tools")


def test_a_tenant_brings_schemas_for_tools_of_its_own() -> None:
    own = tool("refund_order", properties=FIXED)
    assert with_offered_tools(request(own), OFFER, ("refund_order",)).tools == (own,)


def test_tools_that_the_client_runs_are_its_own() -> None:
    asked = request(tool("anything"), mode=ToolMode.CLIENT)
    assert with_offered_tools(asked, OFFER, ()) is asked
