"""A JSON object that is the whole answer.

llama  {"name": "f", "parameters": {...}}    Llama 3.1 to 3.3
json   {"name": "f", "arguments": {...}}     any model, described in the prompt
"""

from models.tools.format import ToolFormat

FORMS = (
    ToolFormat(
        name="llama",
        trigger='{"name": ',
        opening="",
        middle=', "parameters": ',
        closing="}",
        separator='; {"name": ',
    ),
    ToolFormat(
        name="json",
        trigger='{"name": ',
        opening="",
        middle=', "arguments": ',
        closing="}",
        separator='\n{"name": ',
    ),
)
