"""The output constraint of an answer that may, or must, call tools.

none       no call: the constraint of the answer itself, if it has one
auto       text, or calls; from a call's first token on, only a complete call of one of the tools
required   at least one call
a name     one call of that tool
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from models.interface.generation import OutputConstraint
from models.tools.format import ToolFormat
from models.tools.rule import CallableTool, ToolRule, written
from models.tools.tool import ModelTool


class ToolChoice(enum.Enum):
    AUTO = "auto"
    REQUIRED = "required"


def tool_constraint(
    form: ToolFormat,
    tools: Sequence[ModelTool],
    choice: ToolChoice = ToolChoice.AUTO,
    *,
    is_single: bool = False,
    marker: int | None = None,
    content: OutputConstraint | None = None,
) -> OutputConstraint:
    """The constraint of an answer with these tools.

    is_single: At most one call.
    marker: The trigger's token id, if it is a special token that the form does not know of.
    content: The constraint of an answer that calls no tool.

    Whether the schemas can be followed shows when it is compiled.
    """
    if marker is not None and (form.trigger, marker) not in form.specials:
        form = dataclasses.replace(form, specials=((form.trigger, marker), *form.specials))
    callable_tools = tuple(CallableTool(tool.name, tool.parameters, tool.is_strict) for tool in tools)
    is_required = choice is ToolChoice.REQUIRED
    return written(ToolRule(form, callable_tools, is_required, is_single, content))
