"""The forms in which families of models write calls of tools, a file a family.

Each form can be written, read while it streams, and constrained. OpenAI's harmony (gpt-oss), in which a call is a
message to a recipient of its own, is not here: its calls are text (prompts/template_features.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from models.tools.format import ToolFormat
from models.tools.forms import (
    deepseek,
    dsml,
    glm,
    hermes,
    minimax,
    mistral,
    phi,
    pythonic,
    qwen_coder,
    whole_answer,
)

_FAMILIES = (hermes, qwen_coder, glm, minimax, phi, mistral, deepseek, dsml, pythonic, whole_answer)

FORMATS: Mapping[str, ToolFormat] = MappingProxyType({form.name: form for one in _FAMILIES for form in one.FORMS})
_EXPLAINED = (
    ("<function=", "qwen_coder"),
    ("<arg_key>", "glm45"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    (deepseek.CALLS_BEGIN, "deepseek"),
    (dsml.CALLS_BEGIN, "dsml"),
    (minimax.CALLS_BEGIN, "minimax"),
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
