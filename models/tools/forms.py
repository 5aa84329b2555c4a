r"""The forms in which families of models write calls of tools.

hermes     <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>       Hermes, Qwen 2.5 and 3, Granite 4
phi        <|tool_call|>[{"name": "f", "arguments": {...}}]<|/tool_call|>     Phi-4-mini
tool_call  <|tool_call|>{"name": "f", "arguments": {...}}<|/tool_call|>       templates that others wrote for it
granite    <|tool_call|>[{"name": "f", "arguments": {...}}]                   Granite 3
mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}}]                    Mistral up to v7 tokenizers
args       [TOOL_CALLS]f[ARGS]{...}                                           Mistral from v11 tokenizers on
deepseek   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f   DeepSeek V3 and R1, arguments in a fence
deepseek31 <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}      DeepSeek V3.1
llama      {"name": "f", "parameters": {...}}                                 Llama 3.1 to 3.3, the whole answer
json       {"name": "f", "arguments": {...}}                                  any model, described in the prompt
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from models.tools.format import NameStyle, ToolFormat

_MIDDLE = ', "arguments": '
_BEGIN, _CALLS_BEGIN = "<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>"
_END, _CALLS_END = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
_SEP = "<｜tool▁sep｜>"

_ALL = (
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
        name="phi",
        trigger="<|tool_call|>",
        opening='[{"name": ',
        middle=_MIDDLE,
        closing="}",
        separator=', {"name": ',
        end="]<|/tool_call|>",
        leads=True,
    ),
    ToolFormat(
        name="tool_call",
        trigger="<|tool_call|>",
        opening='{"name": ',
        middle=_MIDDLE,
        closing="}<|/tool_call|>",
        separator='<|tool_call|>{"name": ',
        leads=True,
    ),
    ToolFormat(
        name="granite",
        trigger="<|tool_call|>",
        opening='[{"name": ',
        middle=_MIDDLE,
        closing="}",
        separator=', {"name": ',
        end="]",
        leads=True,
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
        name="args",
        trigger="[TOOL_CALLS]",
        opening="",
        middle="[ARGS]",
        closing="",
        separator="[TOOL_CALLS]",
        leads=True,
        names=NameStyle.BARE,
    ),
    ToolFormat(
        name="deepseek",
        trigger=_CALLS_BEGIN,
        opening=f"{_BEGIN}function{_SEP}",
        middle="\n```json\n",
        closing=f"\n```{_END}",
        separator=f"\n{_BEGIN}function{_SEP}",
        end=_CALLS_END,
        leads=True,
        names=NameStyle.BARE,
    ),
    ToolFormat(
        name="deepseek31",
        trigger=_CALLS_BEGIN,
        opening=_BEGIN,
        middle=_SEP,
        closing=_END,
        separator=_BEGIN,
        end=_CALLS_END,
        leads=True,
        names=NameStyle.BARE,
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
        name="json",
        trigger='{"name": ',
        opening="",
        middle=_MIDDLE,
        closing="}",
        separator='\n{"name": ',
    ),
)

FORMATS: Mapping[str, ToolFormat] = MappingProxyType({one.name: one for one in _ALL})
_THINKS_NO_MORE = "</think>"


def form_of_call(text: str, name: str) -> ToolFormat | None:
    """The form of the call of `name` that a chat template has rendered, if it is a known one."""
    found = next((form for form in _ALL if form.is_in(text, name)), None)
    if found is not None and found.name == "phi" and "<|/tool_call|>" not in text:
        return FORMATS["granite"]
    return found


def form_of_text(text: str) -> ToolFormat:
    """The form that a chat template explains to its model, for one that renders no call in a known form."""
    for tag, name in (("<tool_call>", "hermes"), ("[TOOL_CALLS]", "mistral"), (_CALLS_BEGIN, "deepseek")):
        if tag in text:
            return FORMATS[name]
    if "<|tool_call|>" in text:
        return FORMATS["phi" if "<|/tool_call|>" in text else "granite"]
    return FORMATS["llama"] if '"parameters"' in text or "ipython" in text else FORMATS["json"]


def bound(form: ToolFormat, specials: Mapping[str, int], *, opens_thinking: bool) -> ToolFormat:
    """The form as the model of one checkpoint writes it; `specials` are its special tokens with their ids."""
    after = _THINKS_NO_MORE if opens_thinking and not form.leads else ""
    form = dataclasses.replace(form, after=after)
    text = "\n".join(form.literals)
    return dataclasses.replace(
        form, specials=tuple((name, one) for name, one in specials.items() if name and name in text)
    )
