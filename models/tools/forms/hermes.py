r"""`<tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4."""

from models.tools.format import ToolFormat

FORMS = (
    ToolFormat(
        name="hermes",
        trigger="<tool_call>",
        opening='\n{"name": ',
        middle=', "arguments": ',
        closing="}\n</tool_call>",
        separator='\n<tool_call>\n{"name": ',
        leads=True,
    ),
)
