"""What is known of a checkpoint's chat template once it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from models.control_tokens import sources
from models.template_features import (
    CALL_ARGUMENTS,
    CALLED,
    Render,
    TemplateFeatures,
    ToolsPlace,
    features_of,
    rendered_call,
    rendered_texts,
)
from models.tools.format import ToolFormat
from models.tools.forms import FORMATS, form_of_call, form_of_text

_UNKNOWN_FORM = (
    "its template writes calls of tools in a form that is not known: tools are described in the system message, and "
    "calls are JSON; PARLEY_TOOL_FORMAT names another form"
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

    @property
    def summary(self) -> str:
        """One line for whoever starts the model."""
        one = self.with_tools
        parts = [
            "system prompts by the template" if one.system else "system prompts in the first user message",
            "tools as text" if one.tools is ToolsPlace.TEXT else "tools by the template",
            f"calls {'by the template' if one.calls else 'as text'} in the form {self.form.name}",
            *(["one call a message"] if not one.several_calls else []),
            *(["neighbouring messages joined"] if not one.neighbours else []),
            *(["answers begin inside <think>"] if one.opens_thinking else []),
        ]
        return ", ".join(parts)


def report_of(tokenizer: Any, render: Render, *, has_form: bool = False) -> TemplateReport:
    """`has_form`: the form of calls is set, whatever the template renders."""
    with_tools = features_of(render, with_tools=True)
    form = _form(tokenizer, render, with_tools)
    if form is None and not has_form:
        with_tools = replace(with_tools, tools=ToolsPlace.TEXT, calls=False, several_calls=True)
    without = with_tools if with_tools.tools is ToolsPlace.TEXT else features_of(render, with_tools=False)
    texts = [*rendered_texts(render, with_tools), *rendered_texts(render, without)]
    warning = "" if form is not None or has_form else _UNKNOWN_FORM
    return TemplateReport(with_tools, without, form or FORMATS["json"], tuple(texts), warning)


def _form(tokenizer: Any, render: Render, features: TemplateFeatures) -> ToolFormat | None:
    """The form of calls; None if the template renders one that is not known."""
    if call := rendered_call(render, features):
        return form_of_call(call, CALLED[0], CALL_ARGUMENTS)
    if features.tools is ToolsPlace.TEXT:
        return FORMATS["json"]
    if features.tools is ToolsPlace.SYSTEM_MESSAGE and set(tokenizer.get_vocab()) >= _PHI:
        return FORMATS["phi"]
    return form_of_text("\n".join(sources(tokenizer)))
