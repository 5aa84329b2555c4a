"""The file with the tools that the chat page offers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.demo.order_tool import tools
from app.gateway.offered_tools import ToolsFileError, offered_tools


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
