"""A checkpoint's chat template: messages in, text out, within limits of time and size.

The text is what transformers' `apply_chat_template` gives. Rendering is done here because transformers' has no limits,
and because its errors quote the conversation, which may contain the service's own system prompt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError

from models.interface.unexpected import type_and_line
from models.prompts.bounded_templates import BoundedEnvironment, TemplateTooLarge, TemplateTooSlow, time_limit

log = logging.getLogger(__name__)

INLINE_S = 0.02
"""On a thread that runs an event loop, a template may hold that up for so long."""
LONGEST_S = 2.0
_END = "\ufdd0end of the message that is continued\ufdd0 "
"""Between noncharacters, which no template writes; the space shows whether the template removes some."""
_LONGEST_REASON = 200
_SAID = "qzp1"


TemplateValue = str | int | float | bool | None
NONE: Mapping[str, TemplateValue] = MappingProxyType({})


class PromptError(Exception):
    """The checkpoint's chat template rejects these messages; the message is one line that quotes nothing of them."""


class PromptRejected(PromptError):  # noqa: N818  what happened, as its readers say it
    """The chat template itself refuses these messages, whatever time it has."""


class PromptTooSlow(PromptError):  # noqa: N818  what happened, as its readers say it
    """The chat template takes longer than an event loop can wait: render it in a thread."""


class ChatTemplate:
    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special_tokens: Mapping[str, Any] = tokenizer.special_tokens_map
        self._takes_parts: bool | None = None  # unknown

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[Any],
        at: float,
        *,
        continues: bool = False,
        tools_name: str = "tools",
        values: Mapping[str, TemplateValue] = NONE,
        is_patient: bool = False,
    ) -> str:
        """The text of the prompt.

        at: The Unix time that the template sees.
        tools_name: The variable that holds the tools.
        values: Further variables, of which none may have a name that the template gets from here.
        is_patient: While a model is loaded: an event loop of this thread may be held up, and a refusal is no news.

        Raises `PromptError`.
        """
        has_loop = asyncio._get_running_loop() is not None  # noqa: SLF001 - the public form raises
        is_inline = has_loop and not is_patient
        moment = _moment(at)
        source = ""
        shown = _marked(messages) if continues else list(messages)
        given = {
            **self._special_tokens,
            "messages": _in_parts(shown) if self._needs_parts() else shown,
            "documents": None,
            "add_generation_prompt": not continues,
            "strftime_now": moment.strftime,
            "tools": None,
            tools_name: list(tools) or None,
        }
        if reserved := sorted(given.keys() & values.keys()):
            raise PromptError(f"chat_template_kwargs: {reserved[0]} is not for requests to set")
        try:
            source = self._tokenizer.get_chat_template(None, list(tools) or None)
            with time_limit(INLINE_S if is_inline else LONGEST_S):
                text = _environment().render(source, **values, **given)
        except TemplateTooSlow as error:
            kind = PromptTooSlow if is_inline else PromptError
            raise kind(f"the model's chat template takes longer than {LONGEST_S:g} s for these messages") from error
        except Exception as error:
            raise PromptRejected(_reason(error, source, is_expected=is_patient)) from error
        return _until_end(text, messages[-1]["content"]) if continues else text

    def _needs_parts(self) -> bool:
        """Whether it renders what a user says as a list of parts alone, as Llama Guard's; tried once."""
        if self._takes_parts is None:
            said = [{"role": "user", "content": _SAID}]
            text, in_parts = (self._tried(messages) for messages in (said, _in_parts(said)))
            self._takes_parts = _SAID not in text and _SAID in in_parts
        return self._takes_parts

    def _tried(self, messages: list[dict[str, Any]]) -> str:
        try:
            with time_limit(LONGEST_S):
                return _environment().render(
                    self._tokenizer.get_chat_template(None, None),
                    **self._special_tokens,
                    messages=messages,
                    add_generation_prompt=True,
                    strftime_now=_moment(0.0).strftime,
                    tools=None,
                    documents=None,
                )
        except Exception:  # noqa: BLE001 - it says so at each prompt
            return ""


def _in_parts(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages]


def _moment(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        raise PromptError("the request's time is none that a calendar has") from None


def _reason(error: Exception, source: str, *, is_expected: bool) -> str:
    """A template's own words if they stand in it word by word: anything else may quote the conversation."""
    known = " ".join(str(error).split())
    if type(error) is TemplateError and known and known in source:
        return f"the model's chat template rejects these messages: {known[:_LONGEST_REASON]}"
    if isinstance(error, TemplateTooLarge):
        return "the model's chat template writes too large a text for these messages"
    if not is_expected:
        log.warning("a chat template failed: %s", type_and_line(error))
    return f"the model's chat template rejects these messages ({type(error).__name__})"


def _marked(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*messages[:-1], {**messages[-1], "content": messages[-1]["content"] + _END}]


def _until_end(text: str, message: str) -> str:
    """The text up to where the message that is continued ends."""
    at = text.rfind(_END.rstrip())
    if at < 0 or message.strip() not in text:
        raise PromptError("continue_final_message: the model's chat template does not keep the last message as it is")
    return text[:at] if text.startswith(_END, at) else text[:at].rstrip()


@cache
def _environment() -> BoundedEnvironment:
    """One for all checkpoints: it has what transformers' has."""
    # It takes longest of all that a worker imports before it has checked its setup.
    from transformers.utils.chat_template_utils import _compile_jinja_template

    known = _compile_jinja_template("").environment
    environment = BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[type(one) for one in known.extensions.values()]
    )
    environment.filters |= known.filters
    environment.globals |= {name: value for name, value in known.globals.items() if name not in environment.globals}
    environment.bound()
    return environment
