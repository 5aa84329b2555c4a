"""Calls of tools in a model's text: how a family of models writes them, and how they are read and constrained.

A checkpoint is trained to write calls in one form. `forms` has the forms, a file a family, `constraint.py` turns a form
and the tools of a request into a grammar, and `parser.py` reads the calls from the text as it is generated. The grammar
holds from a call's first token on, so the parser meets exactly the form and never has to guess.
"""

from models.tools.format import ToolFormat
from models.tools.forms import FORMATS
from models.tools.parser import CallDelta, ToolCallParser
from models.tools.rule import ToolChoice, tool_constraint
from models.tools.tool import ModelTool

__all__ = [
    "FORMATS",
    "CallDelta",
    "ModelTool",
    "ToolCallParser",
    "ToolChoice",
    "ToolFormat",
    "tool_constraint",
]
