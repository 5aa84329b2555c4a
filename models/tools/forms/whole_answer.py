"""A JSON object that is the whole answer.

llama  {"name": "f", "parameters": {...}}    Llama 3.1 to 3.3
json   {"name": "f", "arguments": {...}}     any model, described in the prompt
"""

from models.tools.format import ToolFormat

_TYPE, _NAME = '"type": "function", ', '"name": '
_BEFORE = ("", " ", "\n", "\n\n", "```json\n", "```\n", "\n```json\n")
_BEGINNINGS = tuple(f"{before}{{{kind}{_NAME}" for before in _BEFORE for kind in ("", _TYPE) if before or kind)

FORMS = (
    ToolFormat(
        name="llama",
        trigger='{"name": ',
        beginnings=_BEGINNINGS,
        opening="",
        middle=', "parameters": ',
        closing="}",
        separator='; {"name": ',
    ),
    ToolFormat(
        name="json",
        trigger='{"name": ',
        beginnings=_BEGINNINGS,
        opening="",
        middle=', "arguments": ',
        closing="}",
        separator='\n{"name": ',
    ),
)
