"""The forms in which families of models write calls of tools.

Each form can be written, read while it streams, and constrained. OpenAI's harmony (gpt-oss), in which a call is a
message to a recipient of its own, is not here: its calls are text (prompts/template_features.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from models.tools.format import ArgumentStyle, NameStyle, ToolFormat

_HERMES_FORMS = (
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
r"""`<tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4."""

_QWEN_CODER_FORMS = (
    ToolFormat(
        name="qwen_coder",
        trigger="<tool_call>",
        opening="\n<function=",
        middle=">\n",
        closing="</function>\n</tool_call>",
        separator="\n<tool_call>\n<function=",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key="<parameter=",
        value=">\n",
        value_end="\n</parameter>\n",
    ),
)
"""Tags without JSON: Qwen3-Coder, Qwen 3.5 and 3.6, Nemotron 3.

<tool_call>
<function=f>
<parameter=key>
value
</parameter>
</function>
</tool_call>
"""

_GLM_45 = ToolFormat(
    name="glm45",
    trigger="<tool_call>",
    opening="",
    middle="\n",
    closing="</tool_call>",
    separator="\n<tool_call>",
    leads=True,
    names=NameStyle.BARE,
    arguments=ArgumentStyle.TAGGED,
    key="<arg_key>",
    value="</arg_key>\n<arg_value>",
    value_end="</arg_value>\n",
)
_GLM_47 = dataclasses.replace(
    _GLM_45,
    name="glm47",
    middle="",
    separator="<tool_call>",
    value="</arg_key><arg_value>",
    value_end="</arg_value>",
)

_GLM_FORMS = (_GLM_45, _GLM_47)
"""Tags without JSON: GLM, from 4.7 on without the line breaks.

<tool_call>f
<arg_key>key</arg_key>
<arg_value>value</arg_value>
</tool_call>
"""

_MINIMAX_CALLS = "<minimax:tool_call>"

_MINIMAX_FORMS = (
    ToolFormat(
        name="minimax",
        trigger=_MINIMAX_CALLS,
        opening='\n<invoke name="',
        middle='">\n',
        closing="</invoke>\n",
        separator='<invoke name="',
        end="</minimax:tool_call>",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key='<parameter name="',
        value='">',
        value_end="</parameter>\n",
    ),
)
"""Tags without JSON, with names in quotes: MiniMax M2.

<minimax:tool_call>
<invoke name="f">
<parameter name="key">value</parameter>
</invoke>
</minimax:tool_call>
"""

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

_PHI_FORMS = (
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
"""Behind `<|tool_call|>`: Phi-4-mini and Granite 3.

phi        <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>    Phi-4-mini
tool_call  <|tool_call|>{"name": "f", "arguments": {...}}<|/tool_call|>      templates that others wrote for it
granite    <|tool_call|>[{"name": "f", "arguments": {...}}]                  Granite 3
"""

_MISTRAL_FORMS = (
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
"""Behind one special token: Mistral.

mistral  [TOOL_CALLS][{"name": "f", "arguments": {...}}]    up to v7 tokenizers
args     [TOOL_CALLS]f[ARGS]{...}                           from v11 tokenizers on
"""

_DEEPSEEK_CALLS = "<｜tool▁calls▁begin｜>"
_CALLS_END = "<｜tool▁calls▁end｜>"
_CALL, _SEPARATOR, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"

_DEEPSEEK_31 = ToolFormat(
    name="deepseek31",
    trigger=_DEEPSEEK_CALLS,
    opening=_CALL,
    middle=_SEPARATOR,
    closing=_CALL_END,
    separator=_CALL,
    end=_CALLS_END,
    leads=True,
    names=NameStyle.BARE,
)
_DEEPSEEK = dataclasses.replace(
    _DEEPSEEK_31,
    name="deepseek",
    opening=f"{_CALL}function{_SEPARATOR}",
    middle="\n```json\n",
    closing=f"\n```{_CALL_END}",
    separator=f"\n{_CALL}function{_SEPARATOR}",
)

_DEEPSEEK_FORMS = (_DEEPSEEK, _DEEPSEEK_31)
"""Between tokens of its own: DeepSeek.

deepseek    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then a fence with {...}   V3, R1
deepseek31  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}                              V3.1
"""

_DSML_CALLS = "<｜DSML｜function_calls>"

_DSML_FORMS = (
    ToolFormat(
        name="dsml",
        trigger=_DSML_CALLS,
        opening='\n<｜DSML｜invoke name="',
        middle='">\n',
        closing="</｜DSML｜invoke>\n",
        separator='<｜DSML｜invoke name="',
        end="</｜DSML｜function_calls>",
        leads=True,
        names=NameStyle.BARE,
        arguments=ArgumentStyle.TAGGED,
        key='<｜DSML｜parameter name="',
        value='" string="true">',
        other_value='" string="false">',
        value_end="</｜DSML｜parameter>\n",
    ),
)
"""Tags that say of each value whether it is a string: DeepSeek V3.2.

<｜DSML｜function_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="key" string="true">value</｜DSML｜parameter>
<｜DSML｜parameter name="other" string="false">[1, 2]</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>
"""

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

_PYTHONIC_FORMS = (_LLAMA_4, _OLMO_3, _PYTHONIC)
r"""Calls as Python writes them.

llama4    <|python_start|>[f(x=1), g()]<|python_end|>              Llama 4
olmo3     <function_calls>f(x=1)\ng()</function_calls>             OLMo 3
pythonic  [f(x=1), g()], the whole answer                          Llama 3.2 and others that are taught it
"""

_TYPE, _NAME = '"type": "function", ', '"name": '
_BEFORE = ("", " ", "\n", "\n\n", "```json\n", "```\n", "\n```json\n")
_BEGINNINGS = tuple(f"{before}{{{kind}{_NAME}" for before in _BEFORE for kind in ("", _TYPE) if before or kind)

_WHOLE_ANSWER_FORMS = (
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
"""A JSON object that is the whole answer.

llama  {"name": "f", "parameters": {...}}    Llama 3.1 to 3.3
json   {"name": "f", "arguments": {...}}     any model, described in the prompt
"""

_FAMILIES = (
    _HERMES_FORMS,
    _QWEN_CODER_FORMS,
    _GLM_FORMS,
    _MINIMAX_FORMS,
    _PHI_FORMS,
    _MISTRAL_FORMS,
    _DEEPSEEK_FORMS,
    _DSML_FORMS,
    _PYTHONIC_FORMS,
    _WHOLE_ANSWER_FORMS,
)
FORMATS: Mapping[str, ToolFormat] = MappingProxyType({form.name: form for family in _FAMILIES for form in family})
_EXPLAINED = (
    ("<function=", "qwen_coder"),
    ("<arg_key>", "glm45"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    (_DEEPSEEK_CALLS, "deepseek"),
    (_DSML_CALLS, "dsml"),
    (_MINIMAX_CALLS, "minimax"),
    ("<function_calls>", "olmo3"),
)
"""What a template that explains a form writes, the more special first."""


def form_of_call(text: str, name: str, arguments: str) -> ToolFormat | None:
    """The form of the call of `name` that a chat template has rendered, if it is a known one.

    arguments: Those of the call, as JSON. Of forms that differ in white space alone, the exact one is chosen.
    """
    known = [form for form in FORMATS.values() if form.is_in(text, name)]
    if not known:
        return None
    if known[0].name == "phi" and "<|/tool_call|>" not in text:
        return FORMATS["granite"]
    alike = [form for form in known if (form.trigger, form.arguments) == (known[0].trigger, known[0].arguments)]
    return next((form for form in alike if form.written([(name, arguments)]) in text), known[0])


def form_of_text(text: str) -> ToolFormat:
    """The form that a chat template explains to its model, for one that renders no call in a known form."""
    for tag, name in _EXPLAINED:
        if tag in text:
            return FORMATS[name]
    if "<|tool_call|>" in text:
        return FORMATS["phi" if "<|/tool_call|>" in text else "granite"]
    return FORMATS["llama"] if '"parameters"' in text or "ipython" in text else FORMATS["json"]


def bound(form: ToolFormat, specials: Mapping[str, int], thought: str = "") -> ToolFormat:
    """The form as the model of one checkpoint writes it.

    specials: Its tokens, with ids, that no text spells.
    thought: What ends the reasoning inside which its answers begin.
    """
    form = dataclasses.replace(form, after="" if form.leads else thought)
    text = "\n".join(form.literals)
    return dataclasses.replace(
        form, specials=tuple((name, one) for name, one in specials.items() if name and name in text)
    )
