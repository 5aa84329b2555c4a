"""Behind `<|tool_call|>`: Phi-4-mini and Granite 3.

phi        <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>    Phi-4-mini
tool_call  <|tool_call|>{"name": "f", "arguments": {...}}<|/tool_call|>      templates that others wrote for it
granite    <|tool_call|>[{"name": "f", "arguments": {...}}]                  Granite 3
"""

import dataclasses

from models.tools.format import ToolFormat

_MIDDLE = ', "arguments": '

_PHI = ToolFormat(
    name="phi",
    trigger="<|tool_call|>",
    opening='[{"name": ',
    middle=_MIDDLE,
    closing="}",
    separator=', {"name": ',
    end="]<|/tool_call|>",
    leads=True,
)

FORMS = (
    _PHI,
    ToolFormat(
        name="tool_call",
        trigger="<|tool_call|>",
        opening='{"name": ',
        middle=_MIDDLE,
        closing="}<|/tool_call|>",
        separator='<|tool_call|>{"name": ',
        leads=True,
    ),
    dataclasses.replace(_PHI, name="granite", end="]"),
)
