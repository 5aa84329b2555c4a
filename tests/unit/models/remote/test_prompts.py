"""The prompts of outside servers."""

from __future__ import annotations

import json

import pytest

from models.prompts.builder import PromptError, PromptTooLong
from models.remote import RemotePrompts
from models.tools.tool import ModelTool


def test_a_prompt_loses_its_oldest_turns_first_and_is_a_function_of_its_arguments() -> None:
    small = RemotePrompts(10, 260)
    history = [("question " * 9, "answer"), ("second", "answered")]
    built = small.build("be brief", history, "third")
    roles = [one["role"] for one in json.loads(bytes(built.ids))["messages"]]
    assert (built.turns_used, roles) == (1, ["system", "user", "assistant", "user"])
    assert small.build("be brief", history, "third") == built
    with pytest.raises(PromptTooLong):
        small.build("", [], "x" * 300)


def test_tools_and_token_ids_are_refused() -> None:
    with pytest.raises(PromptError, match="tools"):
        RemotePrompts(10, 1 << 19).build("", [], "hello", tools=[ModelTool("look_up", "", {})])
    with pytest.raises(PromptError, match="prompt_token_ids"):
        RemotePrompts(10, 1 << 19).of_ids([1, 2])
