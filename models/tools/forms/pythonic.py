r"""Calls as Python writes them.

llama4    <|python_start|>[f(x=1), g()]<|python_end|>              Llama 4
olmo3     <function_calls>f(x=1)\ng()</function_calls>             OLMo 3
pythonic  [f(x=1), g()], the whole answer                          Llama 3.2 and others that are taught it
"""

import dataclasses

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

_PYTHONIC = ToolFormat(
    name="pythonic",
    trigger="[",
    opening="",
    middle="(",
    closing=")",
    separator=", ",
    end="]",
    commits=False,
    names=NameStyle.BARE,
    arguments=ArgumentStyle.PYTHON,
)
_LLAMA_4 = dataclasses.replace(
    _PYTHONIC,
    name="llama4",
    trigger="<|python_start|>",
    opening="[",
    end="]<|python_end|>",
    leads=True,
    commits=True,
)
_OLMO_3 = dataclasses.replace(
    _PYTHONIC,
    name="olmo3",
    trigger="<function_calls>",
    separator="\n",
    end="</function_calls>",
    leads=True,
    commits=True,
)

FORMS = (_LLAMA_4, _OLMO_3, _PYTHONIC)
