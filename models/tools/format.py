r"""The forms in which families of models write calls of tools.

hermes   <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>         Hermes, Qwen 2.5 and 3
llama    {"name": "f", "parameters": {...}}                                   Llama 3.1 to 3.3, the whole answer
mistral  [TOOL_CALLS][{"name": "f", "arguments": {...}}]                      Mistral up to v7 tokenizers
json     {"name": "f", "arguments": {...}}                                    any model, described in the prompt
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The literal text around the name and the arguments of calls.

    trigger: The text that commits the model to a call.
    opening: What follows it, up to the first call's name, a JSON string.
    middle: Between name and arguments, a JSON object.
    closing: After the arguments of each call.
    separator: Between two calls, up to the next call's name.
    end: After the last call.
    leads: Text may precede the first call. Otherwise an answer is either text or calls.
    """

    name: str
    trigger: str
    opening: str
    middle: str
    closing: str
    separator: str
    end: str = ""
    leads: bool = False


_MIDDLE = ', "arguments": '

FORMATS: Mapping[str, ToolFormat] = MappingProxyType(
    {
        one.name: one
        for one in (
            ToolFormat(
                name="hermes",
                trigger="<tool_call>",
                opening='\n{"name": ',
                middle=_MIDDLE,
                closing="}\n</tool_call>",
                separator='\n<tool_call>\n{"name": ',
                leads=True,
            ),
            ToolFormat(
                name="llama",
                trigger='{"name": ',
                opening="",
                middle=', "parameters": ',
                closing="}",
                separator='; {"name": ',
            ),
            ToolFormat(
                name="mistral",
                trigger="[TOOL_CALLS]",
                opening='[{"name": ',
                middle=_MIDDLE,
                closing="}",
                separator=', {"name": ',
                end="]",
                leads=True,
            ),
            ToolFormat(
                name="json",
                trigger='{"name": ',
                opening="",
                middle=_MIDDLE,
                closing="}",
                separator='\n{"name": ',
            ),
        )
    }
)


def format_of(template: str | None) -> ToolFormat:
    """The form that a chat template shows to its model; `json` if the template knows no tools."""
    if not template or "tools" not in template:
        return FORMATS["json"]
    if "<tool_call>" in template:
        return FORMATS["hermes"]
    if "[TOOL_CALLS]" in template:
        return FORMATS["mistral"]
    return FORMATS["llama"] if '"parameters"' in template or "ipython" in template else FORMATS["json"]
