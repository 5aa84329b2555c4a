"""What is known of a checkpoint's chat template once it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from models.prompts.template_features import (
    CALL_ARGUMENTS,
    CALLED,
    Render,
    TemplateFeatures,
    ToolsIn,
    features_of,
    rendered_call,
    rendered_texts,
)
from models.text.control_tokens import control_tokens, sources
from models.text.reasoning import THINK, tags_of
from models.tools.format import ToolFormat
from models.tools.forms import FORMATS, form_of_call, form_of_text

_HARMONY = f"to=functions.{CALLED[0]}"
_NO_HARMONY = (
    "calls of tools in OpenAI's harmony are not supported: tools are described in the prompt, and calls are JSON"
)
_UNKNOWN = (
    "its template writes calls of tools in no known form: they are held to the form {}; "
    "PARLEY_TOOL_FORMAT names another one"
)
_PHI = {"<|tool_call|>", "<|/tool_call|>"}


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What the template renders of conversations with and without tools, the form of calls that it shows, and what it
    has written around the sentinels. `warning` is for the model's owner.
    """

    with_tools: TemplateFeatures
    without_tools: TemplateFeatures
    form: ToolFormat
    texts: tuple[str, ...]
    warning: str = ""


def report_of(tokenizer: Any, render: Render, *, has_form: bool = False) -> TemplateReport:
    """`has_form`: the form of calls is set, whatever the template renders."""
    tags = tags_of(tokenizer) or THINK
    with_tools = features_of(render, tags, with_tools=True)
    call = rendered_call(render, with_tools)
    form, warning = _form(tokenizer, with_tools, call)
    if _HARMONY in call:
        # The rest of its messages is its own; a call would not be one of them.
        with_tools = replace(with_tools, tools=ToolsIn.TEXT, calls=False, several_calls=True)
    without = with_tools if with_tools.tools is ToolsIn.TEXT else features_of(render, tags, with_tools=False)
    texts = [*rendered_texts(render, tags, with_tools), *rendered_texts(render, tags, without)]
    return TemplateReport(with_tools, without, form, tuple(texts), "" if has_form else warning)


def _form(tokenizer: Any, features: TemplateFeatures, call: str) -> tuple[ToolFormat, str]:
    """The form of calls, of which the template has rendered `call`, and a warning if it is not the template's."""
    if _HARMONY in call:
        return FORMATS["json"], _NO_HARMONY
    if call and (known := form_of_call(call, CALLED[0], CALL_ARGUMENTS)) is not None:
        # No grammar finds a trigger that begins as text and goes on with such a token.
        is_split = any(name in known.trigger != name for name in control_tokens(tokenizer).special)
        return (FORMATS["json"], _UNKNOWN.format("json")) if is_split else (known, "")
    if features.tools is ToolsIn.TEXT and not call:
        return FORMATS["json"], ""
    if features.tools is ToolsIn.SYSTEM_MESSAGE and set(tokenizer.get_vocab()) >= _PHI:
        return FORMATS["phi"], ""
    explained = form_of_text("\n".join(sources(tokenizer)))
    return explained, _UNKNOWN.format(explained.name) if call else ""
