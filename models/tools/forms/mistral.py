"""Behind one special token: Mistral.

mistral  [TOOL_CALLS][{"name": "f", "arguments": {...}}]    up to v7 tokenizers
args     [TOOL_CALLS]f[ARGS]{...}                           from v11 tokenizers on
"""

from models.tools.format import NameStyle, ToolFormat

FORMS = (
    ToolFormat(
        name="mistral",
        trigger="[TOOL_CALLS]",
        opening='[{"name": ',
        middle=', "arguments": ',
        closing="}",
        separator=', {"name": ',
        end="]",
        leads=True,
    ),
    ToolFormat(
        name="args",
        trigger="[TOOL_CALLS]",
        opening="",
        middle="[ARGS]",
        closing="",
        separator="[TOOL_CALLS]",
        leads=True,
        names=NameStyle.BARE,
    ),
)
