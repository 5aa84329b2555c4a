"""The prompt that a model would get for a body of `/v1/chat/completions`."""

from __future__ import annotations

from dataclasses import dataclass

from app.answering.dialogue import Dialogue, chat_message
from app.answering.job import template_values_of, tools_of
from app.gateway.asking.reading import parse
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError
from app.gateway.openai.chat_body import ChatBody
from app.serving.model_check import described_prompts
from app.settings import Settings
from models.prompts.builder import PromptError, PromptTooLong, TemplateOptions


class PreviewError(Exception):
    """No prompt can be made of the body; the message is one line."""


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """`ignored` are fields of the body that have no effect."""

    prompt: str
    token_ids: tuple[int, ...]
    ignored: tuple[str, ...]


def preview(settings: Settings, raw: bytes, at: float) -> PromptPreview:
    """`raw` is the body, `at` the Unix time that the template sees.

    Raises:
        PreviewError: no prompt can be made of the body.
        LoadError: the model cannot be served right.
    """
    try:
        body, ignored = parse(raw, ChatBody)
        request = body.requests(Identity("preview"), store=False)[0]
    except ApiError as error:
        raise PreviewError(f"{error.param}: {error.message}" if error.param else error.message) from None
    messages = [chat_message(one) for one in request.messages or ()]
    tools, continues = tools_of(Dialogue(request)), request.continue_final_message
    _, prompts = described_prompts(settings)
    try:
        values = template_values_of(request, prompts)
        how: TemplateOptions = {"tools": tools, "continues": continues, "at": at, "template_values": values}
        built = prompts.build(settings.system_prompt, messages=messages, **how)
        text = prompts.rendered(settings.system_prompt, messages, **how)
    except (PromptError, PromptTooLong) as error:
        raise PreviewError(str(error)) from None
    return PromptPreview(text, built.ids, tuple(ignored))
